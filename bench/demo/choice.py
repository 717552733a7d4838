"""Which profile a link should use, by the serial latency model and speeds measured beforehand."""

import dataclasses

from demo.client import Answer

# Profiles above this KL from the uncompressed next-token distribution are never recommended.
KL_LIMIT = 0.02


@dataclasses.dataclass
class Speed:
    """What one warm-up request told about a profile."""

    compression_ratio: float
    encode_bytes_per_s: float  # of raw bytes
    decode_bytes_per_s: float


def speed_of(answer: Answer) -> Speed:
    def rate(stage: str) -> float:
        milliseconds = answer.stages_ms[stage]
        return answer.raw_bytes / milliseconds * 1e3 if milliseconds > 0 else float("inf")
    return Speed(answer.compression_ratio, rate("encode"), rate("decode"))


def link_rate(answer: Answer) -> float:
    """Bytes/s of the link as this transfer saw it."""
    if answer.link_bytes_per_s > 0:
        return answer.link_bytes_per_s
    return answer.wire_bytes / max(answer.stages_ms["wire"], 1e-3) * 1e3


def predicted_s(profile: str, speed: Speed, raw_bytes: int, bytes_per_s: float) -> float:
    """Time that moving the KV takes: V/e + V/(B cr) + V/d; uncompressed V/B."""
    if profile == "none":
        return raw_bytes / bytes_per_s
    return raw_bytes * (1 / speed.encode_bytes_per_s + 1 / speed.decode_bytes_per_s
                        + 1 / (bytes_per_s * speed.compression_ratio))


def recommend(speeds: dict[str, Speed], kl: dict[str, float], raw_bytes: int,
              bytes_per_s: float) -> str:
    allowed = [profile for profile in speeds if kl[profile] <= KL_LIMIT]
    return min(allowed, key=lambda p: predicted_s(p, speeds[p], raw_bytes, bytes_per_s))
