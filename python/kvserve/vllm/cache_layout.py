"""What the connector must know of an engine's KV cache, or why it cannot serve it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Elements that KVServe knows, by torch's name. 8-bit floats are moved without loss.
_DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
}


class UnsupportedCacheError(ValueError):
    """This model's or engine's KV cache cannot be transferred; the message says why."""


@dataclass(frozen=True)
class LayerShape:
    """One layer on this rank."""

    name: str
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class CacheDescription:
    """The cache of one rank. `tensors` are the engine's own, [layer] in the model's order."""

    tensors: list[torch.Tensor]
    layers: list[LayerShape]
    layer_index: dict[str, int]
    dtype: str
    layout: str  # a name that kvserve.PagedCache knows
    block_tokens: int
    fingerprint: bytes  # 16 bytes: model, dtype and scales; engines with another are refused


def lossless_only(kv_cache_dtype: str) -> str:
    """A reason code when lossy profiles make no sense for a cache of this dtype, else ""."""
    return "8_bit_cache" if kv_cache_dtype.startswith(("fp8", "int8")) else ""


def layer_specs(config: KVCacheConfig) -> dict[str, AttentionSpec]:
    """The spec of every layer, in the model's order. UnsupportedCacheError names the first layer
    that is not plain attention, and what it is."""
    specs: dict[str, AttentionSpec] = {}
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        for name in group.layer_names:
            one = spec.kv_cache_specs[name] if isinstance(spec, UniformTypeKVCacheSpecs) else spec
            specs[name] = one
    if len(config.kv_cache_groups) > 1:
        raise UnsupportedCacheError(
            "this model's cache has several groups of blocks (hybrid KV cache manager); start with "
            "--disable-hybrid-kv-cache-manager, which keeps all tokens of window layers")
    for name, spec in specs.items():
        if isinstance(spec, MLAAttentionSpec):
            raise UnsupportedCacheError(f"{name} has a latent (MLA) cache, which is not supported")
        if not isinstance(spec, (FullAttentionSpec, SlidingWindowSpec)):
            raise UnsupportedCacheError(
                f"{name} keeps {type(spec).__name__.removesuffix('Spec')} state; only attention "
                "layers are supported")
        if spec.head_size != spec.head_size_v:
            raise UnsupportedCacheError(
                f"{name} has keys of {spec.head_size} and values of {spec.head_size_v} channels; "
                "they must be equal in this engine's blocks")
    return dict(sorted(specs.items(), key=lambda item: _order(item[0])))


def _order(layer_name: str) -> tuple[int, str]:
    from vllm.model_executor.models.utils import extract_layer_index

    return extract_layer_index(layer_name), layer_name


def window_cost(config: KVCacheConfig) -> str:
    """For the log at start: what it costs that window layers keep all tokens; "" when nothing."""
    windows = {name: spec for name, spec in layer_specs(config).items()
               if getattr(spec, "sliding_window", None)}
    if not windows:
        return ""
    per_token = sum(spec.page_size_bytes / spec.block_size for spec in windows.values())
    return (f"{len(windows)} sliding-window layers keep all tokens, not only their window: "
            f"{per_token:.0f} bytes per token more of KV cache")


def describe_cache(vllm_config: VllmConfig, config: KVCacheConfig,
                   tensors: Mapping[str, torch.Tensor], model_id: str) -> CacheDescription:
    """Checks everything that a transfer relies on. UnsupportedCacheError otherwise."""
    specs = layer_specs(config)
    missing = [name for name in specs if name not in tensors]
    if missing:
        raise UnsupportedCacheError(f"the engine registered no cache for {missing[0]}")
    first = tensors[next(iter(specs))]
    dtype = _dtype_name(first, vllm_config.cache_config.cache_dtype)
    block_tokens = next(iter(specs.values())).block_size
    if first.device.type != "cpu":
        raise UnsupportedCacheError(
            f"the cache is on {first.device.type}; this release transfers caches in host memory")
    layers = [LayerShape(name, spec.num_kv_heads, spec.head_size) for name, spec in specs.items()]
    for shape in layers:
        tensor = tensors[shape.name]
        expected = (tensor.shape[0], shape.kv_heads, block_tokens, 2 * shape.head_dim)
        if tuple(tensor.shape) != expected or not tensor.is_contiguous():
            raise UnsupportedCacheError(
                f"the cache of {shape.name} has shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}; contiguous {expected} was expected")
        if tensor.dtype != first.dtype:
            raise UnsupportedCacheError(f"the cache of {shape.name} is {tensor.dtype}, the first "
                                        f"layer's {first.dtype}")
    shape = layers[0]
    probe_cpu_layout(shape.kv_heads, shape.head_dim, block_tokens, vllm_config,
                     getattr(torch, dtype))
    return CacheDescription(
        tensors=[tensors[shape.name] for shape in layers], layers=layers,
        layer_index={shape.name: index for index, shape in enumerate(layers)}, dtype=dtype,
        layout="vllm_cpu", block_tokens=block_tokens,
        fingerprint=model_fingerprint(vllm_config, dtype, model_id, list(specs)))


def _dtype_name(tensor: torch.Tensor, cache_dtype: str) -> str:
    if tensor.dtype in _DTYPES:
        return _DTYPES[tensor.dtype]
    if tensor.dtype == torch.uint8 and cache_dtype.startswith("fp8"):
        return "float8_e5m2" if "e5m2" in cache_dtype else "float8_e4m3fn"
    raise UnsupportedCacheError(
        f"a KV cache of {tensor.dtype} (--kv-cache-dtype {cache_dtype}) is not supported")


def probe_cpu_layout(kv_heads: int, head_dim: int, block_tokens: int, vllm_config: VllmConfig,
                     dtype: torch.dtype) -> None:
    """Writes known keys and values through the engine's own kernel into a scratch block and checks
    that they lie where the "vllm_cpu" layout says: the order inside a block depends on the
    processor's instruction set. UnsupportedCacheError when they do not."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    cache_dtype = vllm_config.cache_config.cache_dtype
    model_dtype = vllm_config.model_config.dtype
    isa = _get_attn_isa(model_dtype, block_tokens, head_dim, cache_dtype)
    stored = torch.uint8 if dtype.itemsize == 1 else dtype
    cache = torch.zeros((1, kv_heads, 2 * block_tokens, head_dim), dtype=stored)
    written = [_exact_values((block_tokens, kv_heads, head_dim), seed).to(model_dtype)
               for seed in (1, 2)]
    ops.cpu_attn_reshape_and_cache(*written, *cache.chunk(2, dim=2), torch.arange(block_tokens),
                                   isa, kv_cache_dtype=cache_dtype)
    flat = cache.view(kv_heads, 2, block_tokens * head_dim)
    found = (flat[:, 0].reshape(kv_heads, head_dim, block_tokens).permute(2, 0, 1),
             flat[:, 1].reshape(kv_heads, block_tokens, head_dim).permute(1, 0, 2))
    for there, was in zip(found, written):
        if not torch.equal(there, was.to(dtype).view(stored)):
            raise UnsupportedCacheError(
                f"this processor's attention kernel ({isa}) keeps blocks in an order that is not "
                "supported")


def _exact_values(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Random values that every element type of _DTYPES holds exactly: +-{1, 1.5} * 2^(-3..3)."""
    draw = torch.randint(0, 28, shape, generator=torch.Generator().manual_seed(seed))
    return (1 - 2.0 * (draw % 2)) * (1 + 0.5 * (draw // 2 % 2)) * 2.0 ** (draw // 4 - 3)


def model_fingerprint(vllm_config: VllmConfig, dtype: str, model_id: str,
                      layer_names: list[str]) -> bytes:
    """16 bytes that are equal on two engines whose KV means the same: architecture, element type,
    layers, quantization, scales of an 8-bit cache, and what the operator says (model_id)."""
    text = vllm_config.model_config.hf_text_config.to_dict()
    volatile = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")
    facts: dict[str, Any] = {
        "config": {key: value for key, value in text.items() if key not in volatile},
        "dtype": dtype, "layers": layer_names, "model_id": model_id,
        "revision": vllm_config.model_config.revision,
        "quantization": vllm_config.model_config.quantization,
        "scales": _scales(vllm_config, layer_names) if dtype.startswith("float8") else None,
    }
    serialized = json.dumps(facts, sort_keys=True, default=str).encode()
    return hashlib.sha256(serialized).digest()[:16]


def _scales(vllm_config: VllmConfig, layer_names: list[str]) -> list[tuple[float, float]]:
    """Static scales of an 8-bit cache: its bytes mean nothing without them."""
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise UnsupportedCacheError(
            "--calculate-kv-scales gives every engine scales of its own, under which the same "
            "bytes mean different values; use static scales")
    modules = vllm_config.compilation_config.static_forward_context
    return [(float(modules[name]._k_scale_float), float(modules[name]._v_scale_float))
            for name in layer_names if name in modules]
