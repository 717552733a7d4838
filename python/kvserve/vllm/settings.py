"""Settings of the connector: one schema for kv_connector_extra_config."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

MODES = ("on", "observe", "off")


class SettingsError(ValueError):
    """A key that does not exist, or a value outside of its range."""


@dataclass(frozen=True)
class Key:
    """One key of the schema: its default, unit, range and how text or a number becomes a value."""

    default: Any
    unit: str
    range: str
    help: str
    parse: Callable[[Any], Any]


def _number(kind: type, low: float, high: float) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError
        number = kind(value)
        if isinstance(value, float) and number != value:
            raise ValueError
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def dropping(selector: str) -> str:
    """Why this connector takes no profile that may leave tokens out."""
    return (f"selector {selector!r} drops tokens, which vLLM's paged cache cannot leave out; with "
            "outside above 0 it sends them at lower precision instead")


def _profile(value: Any) -> str:
    import kvserve

    profile = kvserve.Profile(_text(value))
    if profile.may_drop:
        raise ValueError(dropping(profile.may_drop))
    return profile.name


def _fallback(value: Any) -> str:
    import kvserve

    if _text(value) == "":
        return ""
    profile = kvserve.Profile(value)
    if profile.may_drop:
        raise ValueError(dropping(profile.may_drop))
    if profile.needs_calibration:
        raise ValueError(f"{value!r} needs a calibration artefact itself")
    return profile.name


def _mode(value: Any) -> str:
    if value not in MODES:
        raise ValueError
    return value


SCHEMA: dict[str, Key] = {
    "profile": Key("lossless", "", "a profile's short form", "what requests get that ask for none",
                   _profile),
    "mode": Key("on", "", "on, observe or off",
                "observe: send uncompressed and report what would have been chosen; off: send "
                "uncompressed", _mode),
    "mode_file": Key("", "", "a path, or empty",
                     "a file with one of the modes, read once a second: a switch at run time",
                     _text),
    "host": Key("127.0.0.1", "", "an address of this machine",
                "where a prefill engine listens, and what it tells decode engines", _text),
    "port": Key(0, "", "0..65535",
                "of tensor-parallel rank 0; rank r has port + r; 0: any free port",
                _number(int, 0, 65535)),
    "token_file": Key("", "", "a path, or empty",
                      "shared secret of all engines, mode 600; needed beyond loopback", _text),
    "model_id": Key("", "", "any text",
                    "tells weights apart that have one architecture (a fine-tune, a revision)",
                    _text),
    "calibration": Key("", "", "a path, or empty", "calibration artefact of the model", _text),
    "fallback": Key("", "", "a profile's short form without calibration, or empty",
                    "encodes frames whose KV is unlike that of the calibration's texts", _fallback),
    "frame_tokens": Key(256, "tokens", "16..65536", "tokens per frame", _number(int, 16, 65536)),
    "layers_per_frame": Key(0, "layers", "0..4096",
                            "layers per frame; 0: all. Fewer leave sooner and cost more bytes",
                            _number(int, 0, 4096)),
    "threads": Key(1, "threads", "1..64", "that encode (prefill) or decode", _number(int, 1, 64)),
    "connections": Key(16, "transfers", "1..1024", "transfers at the same time",
                       _number(int, 1, 1024)),
    "lease_s": Key(300.0, "seconds", "1..86400",
                   "encoded KV that no decode engine has taken is dropped after this",
                   _number(float, 1, 86400)),
    "max_staged_bytes": Key(4 << 30, "bytes", "1 MiB..1 TiB",
                            "encoded and raw KV held for decode engines, per rank",
                            _number(int, 1 << 20, 1 << 40)),
    "deadline_s": Key(120.0, "seconds", "0.1..86400", "a load that takes longer has failed",
                      _number(float, 0.1, 86400)),
    "stall_s": Key(30.0, "seconds", "0.1..3600",
                   "a load has failed after this long without a byte from the prefill engine",
                   _number(float, 0.1, 3600)),
    "pace_bytes_per_s": Key(0.0, "bytes/s", "0..1e12", "limits what is sent; 0: unlimited",
                            _number(float, 0, 1e12)),
}


@dataclass(frozen=True)
class Settings:
    """Values of SCHEMA, parsed."""

    profile: str
    mode: str
    mode_file: str
    host: str
    port: int
    token_file: str
    model_id: str
    calibration: str
    fallback: str
    frame_tokens: int
    layers_per_frame: int
    threads: int
    connections: int
    lease_s: float
    max_staged_bytes: int
    deadline_s: float
    stall_s: float
    pace_bytes_per_s: float


assert {field.name for field in fields(Settings)} == set(SCHEMA)


def parse_settings(extra: Mapping[str, Any] | None) -> tuple[Settings, dict[str, str]]:
    """Settings, and where each came from ("kv_connector_extra_config" or "default").

    Values may be numbers or text, as launchers pass both. SettingsError names an unknown key and
    those that exist, or the value and its range.
    """
    extra = dict(extra or {})
    unknown = sorted(set(extra) - set(SCHEMA))
    if unknown:
        raise SettingsError(
            f"kv_connector_extra_config has no key {unknown[0]!r}; there are {', '.join(SCHEMA)}"
        )
    values, sources = {}, {}
    for name, key in SCHEMA.items():
        if name not in extra:
            values[name], sources[name] = key.default, "default"
            continue
        try:
            values[name] = key.parse(extra[name])
        except (ValueError, TypeError, OverflowError) as error:
            why = f" ({error})" if str(error) and name in ("profile", "fallback") else ""
            raise SettingsError(
                f"kv_connector_extra_config.{name}={extra[name]!r}: {key.range} is expected{why}"
            ) from error
        sources[name] = "kv_connector_extra_config"
    return Settings(**values), sources


def describe(settings: Settings, sources: Mapping[str, str]) -> str:
    """One line for the log: every value with its source."""
    return ", ".join(
        f"{name}={json.dumps(getattr(settings, name))}"
        + ("" if sources[name] == "default" else " (set)")
        for name in SCHEMA
    )
