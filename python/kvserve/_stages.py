"""The strategy space of this build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from . import _native

Value = Union[int, float, bool, str]


@dataclass(frozen=True)
class Parameter:
    """One option of a stage."""

    id: int
    type: str  # "integer", "real", "boolean" or "choice"
    range: tuple[Value, ...]  # (low, high), or the choices
    default: Value
    unit: str
    help: str


@dataclass(frozen=True)
class Stage:
    """What a profile can be made of."""

    kind: str  # "selector", "transform", "quantizer" or "codec"
    name: str
    id: int
    version: int
    lossless: bool  # a profile is bit-exact when all of its stages are
    devices: tuple[str, ...]
    summary: str
    parameters: Mapping[str, Parameter]  # by its name in the short form


def stages() -> list[Stage]:
    """Every stage of this build, in ascending id order; `kvserve stages` shows the same."""
    return [Stage(**{**row, "parameters": {name: Parameter(**parameter) for name, parameter
                                           in row["parameters"].items()}})
            for row in _native.stage_rows()]
