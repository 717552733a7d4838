"""The peers: LMCache's serdes for the CPU and a third-party one that plugs into LMCache.

Each is called as LMCache calls it, on objects that have what it looks at: a tensor.
"""

import warnings
from dataclasses import dataclass

import torch

warnings.filterwarnings("ignore")  # LMCache's imports complain about packages that are not here

from lmcache.v1.distributed.serde.asym_k16_v8 import (  # noqa: E402
    AsymK16V8MultiDeserializer, AsymK16V8MultiSerializer)
from lmcache.v1.distributed.serde.fp8 import (  # noqa: E402
    Fp8QuantizationDeserializer, Fp8QuantizationSerializer)
from lmcache_turbo_quant_serde import TqaiDeserializer, TqaiSerializer  # noqa: E402


@dataclass
class Memory:
    """As much of LMCache's MemoryObj as a serde uses."""
    tensor: torch.Tensor


class Peer:
    """encode() writes self.blob and returns its bytes; decode() fills self.decoded from it."""

    def __init__(self, name: str, kv: torch.Tensor):
        self.name = name
        self.kv = kv
        self.decoded = torch.empty_like(kv)
        self.blob = torch.empty(2 * kv.numel() * kv.itemsize, dtype=torch.uint8)
        self.bytes = 0

    def filled(self) -> Memory:
        return Memory(self.blob[:self.bytes])


class Fp8(Peer):
    def __init__(self, kv: torch.Tensor):
        super().__init__("LMCache fp8", kv)
        self.serializer, self.deserializer = (Fp8QuantizationSerializer(),
                                              Fp8QuantizationDeserializer())

    def encode(self) -> int:
        self.bytes = self.serializer.serialize(Memory(self.kv), Memory(self.blob), None)
        return self.bytes

    def decode(self) -> None:
        self.deserializer.deserialize(self.filled(), Memory(self.decoded), None)


class AsymmetricK16V8(Peer):
    def __init__(self, kv: torch.Tensor):
        super().__init__("LMCache asym_k16_v8", kv)
        self.serializer, self.deserializer = (AsymK16V8MultiSerializer(),
                                              AsymK16V8MultiDeserializer())

    def encode(self) -> int:
        planes = (Memory(self.kv[0]), Memory(self.kv[1]))
        self.bytes = self.serializer.serialize(planes, Memory(self.blob), None)
        return self.bytes

    def decode(self) -> None:
        planes = (Memory(self.decoded[0]), Memory(self.decoded[1]))
        self.deserializer.deserialize(self.filled(), planes, None)


class TurboQuant(Peer):
    """Written for LMCache before serialize() got a key: called without one."""

    def __init__(self, kv: torch.Tensor, head_dim: int, bits: int):
        super().__init__(f"lmcache-turbo-quant-serde, {bits} bits", kv)
        self.serializer = TqaiSerializer(head_dim=head_dim, bits=bits)
        self.deserializer = TqaiDeserializer()

    def encode(self) -> int:
        self.bytes = self.serializer.serialize(Memory(self.kv), Memory(self.blob))
        return self.bytes

    def decode(self) -> None:
        self.deserializer.deserialize(self.filled(), Memory(self.decoded))


def all_peers(kv: torch.Tensor, head_dim: int) -> list[Peer]:
    return [Fp8(kv), AsymmetricK16V8(kv),
            *(TurboQuant(kv, head_dim, bits) for bits in (8, 6, 4, 3))]
