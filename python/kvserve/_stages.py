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


@dataclass(frozen=True)
class Preset:
    """A profile with a name: a published method, or a combination of their parts."""

    name: str  # for Profile, alone or as "name:option=value,..."
    profile: str  # short form
    source: str
    differs: str  # from the source


def presets() -> list[Preset]:
    """Every preset, in the order of docs/PRESETS.md."""
    return [Preset(**row) for row in _native.preset_rows()]


def stages() -> list[Stage]:
    """Every stage of this build, in ascending id order; `kvserve stages` shows the same."""
    return [Stage(**{**row, "parameters": {name: Parameter(**parameter) for name, parameter
                                           in row["parameters"].items()}})
            for row in _native.stage_rows()]
