"""The one decision per request: by which profile its KV is sent. Made in the scheduler of the
prefill engine; everybody else is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import kvserve
from kvserve.vllm.settings import MODES, Settings, dropping

# What a request may say in kv_transfer_params.kvserve, or as vllm_xargs.kvserve_<name> where a
# router writes kv_transfer_params itself.
REQUEST_FIELDS = ("profile",)
_NOT_YET = {
    "min_accuracy": "is not supported yet: name a profile instead",
    "slo_ms": "is not supported yet: name a profile instead",
}
_XARG_PREFIX = "kvserve_"
UNCOMPRESSED = "none"
LOSSLESS = "lossless"


class RequestError(ValueError):
    """What a request asks of KVServe cannot be."""


@dataclass(frozen=True)
class Decision:
    """`profile` is what the KV is coded with; `would_be` what it would have been coded with where
    the connector only observes; `reason` one of the codes that are counted in the metrics."""

    profile: str
    reason: str
    would_be: str = ""
    error: str = ""


def requested(params: Mapping[str, Any] | None, xargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields a request sets, from both places. RequestError: a field that does not exist, is
    not supported yet, or is said twice and differently."""
    fields: dict[str, Any] = {}
    stated = (params or {}).get("kvserve")
    if stated is not None and not isinstance(stated, Mapping):
        raise RequestError(f"kv_transfer_params.kvserve is {stated!r}; an object is expected")
    for name, value in (stated or {}).items():
        fields[name] = value
    for key, value in (xargs or {}).items():
        if not key.startswith(_XARG_PREFIX):
            continue
        name = key[len(_XARG_PREFIX):]
        if name in fields and fields[name] != value:
            raise RequestError(f"kvserve.{name} is {fields[name]!r} in kv_transfer_params and "
                               f"{value!r} in vllm_xargs")
        fields[name] = value
    for name in fields:
        if name in _NOT_YET:
            raise RequestError(f"kvserve.{name} {_NOT_YET[name]}")
        if name not in REQUEST_FIELDS:
            raise RequestError(
                f"kvserve has no request field {name!r}; there are {', '.join(REQUEST_FIELDS)}")
    return fields


def parse_profile(text: Any) -> kvserve.Profile:
    """RequestError names what is wrong with it."""
    if not isinstance(text, str):
        raise RequestError(f"kvserve.profile is {text!r}; a profile's short form is expected")
    try:
        profile = kvserve.Profile(text)
    except kvserve.KVServeError as error:
        raise RequestError(f"kvserve.profile: {error}") from error
    if profile.may_drop:
        raise RequestError(f"kvserve.profile: {dropping(profile.may_drop)}")
    return profile


def class_of(profile_name: str) -> str:
    """The quality class of KV that is sent by a profile: its name, or "" when every bit is kept.
    KVServeError when this release has no such profile."""
    profile = kvserve.Profile(profile_name)
    return "" if profile.lossless else profile.name


class ModeSwitch:
    """The mode in force: the setting, or what the mode file says, read at most once a second. A
    file that is missing or says something else leaves the setting in force."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic):
        self._settings = settings
        self._clock = clock
        self._read_at = float("-inf")
        self._from_file = ""

    def mode(self) -> str:
        if not self._settings.mode_file:
            return self._settings.mode
        if self._clock() - self._read_at >= 1.0:
            self._read_at = self._clock()
            self._from_file = self._read()
        return self._from_file or self._settings.mode

    def _read(self) -> str:
        try:
            with open(self._settings.mode_file, encoding="utf-8") as file:
                text = file.read(64).strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return text if text in MODES else ""


class Decider:
    """Chooses per request. `lossless_only` is the reason why this cache takes no lossy profile
    (its elements are 8 bits wide already), or ""."""

    def __init__(self, settings: Settings, lossless_only: str = ""):
        self._default = settings.profile
        self._calibrated = bool(settings.calibration)
        self._switch = ModeSwitch(settings)
        self._lossless_only = lossless_only

    def decide(self, params: Mapping[str, Any] | None, xargs: Mapping[str, Any] | None) -> Decision:
        """Never raises: a request that cannot be is sent uncompressed, with the error in it."""
        try:
            fields = requested(params, xargs)
            profile = parse_profile(fields.get("profile", self._default))
            if profile.needs_calibration and not self._calibrated:
                raise RequestError(f"kvserve.profile: {profile.name} needs a calibration artefact, "
                                   "and this engine was given none")
        except RequestError as error:
            return Decision(UNCOMPRESSED, "invalid_request", error=str(error))
        reason = "requested" if "profile" in fields else "default"
        if self._lossless_only and not profile.lossless:
            profile, reason = kvserve.Profile(LOSSLESS), self._lossless_only
        mode = self._switch.mode()
        if mode != "on":
            return Decision(UNCOMPRESSED, mode,
                            would_be=profile.name if mode == "observe" else "")
        return Decision(profile.name, reason)


def context_of(request: Any) -> str:
    """Whatever the KV of a request depends on besides its tokens, the same on both engines: adapter,
    images, the client's cache salt. Receivers refuse KV of another context."""
    parts = []
    if (lora := getattr(request, "lora_request", None)) is not None:
        parts.append(f"lora={lora.lora_name}")
    for feature in getattr(request, "mm_features", None) or ():
        position = feature.mm_position
        parts.append(f"mm={feature.identifier}@{position.offset}+{position.length}")
    if salt := getattr(request, "cache_salt", None):
        parts.append(f"salt={salt}")
    return "\n".join(parts)
