"""What stages of a chain are told: where a plane belongs, its symbols' shape, their settings."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from calibration import Artefact


@dataclasses.dataclass(frozen=True)
class Plane:
    """Where a plane belongs; its values are [token, head, dim]."""

    layer: int  # index in the whole model
    is_v: bool
    first_token: int
    tokens: int
    heads: int
    dim: int
    dtype: str
    rope_style: int
    rope_theta: float


class Extent(NamedTuple):
    """Symbols of a plane, or of one run of it."""

    rows: int
    columns: int
    alphabet: int
    token_classes: Sequence[int] = ()  # [row]; none: all nominal, or a run of several
    layer: int = -1
    is_v: bool = False

    @property
    def size(self) -> int:
        return self.rows * self.columns


class Settings(NamedTuple):
    """Of one stage of a frame."""

    parameters: dict[int, float]  # every one of the newest version
    version: int
    artefact: Artefact | None  # if a stage of the chain needs one
    model_layers: int = 0
