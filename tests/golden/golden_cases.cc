#include "golden/golden_cases.h"

namespace kvserve::testing {
namespace {

constexpr DType kF16 = DType::kFloat16;
constexpr DType kBf16 = DType::kBFloat16;
constexpr DType kF32 = DType::kFloat32;
constexpr DType kE4M3 = DType::kFloat8E4M3FN;
constexpr DType kE4M3Fnuz = DType::kFloat8E4M3FNUZ;
constexpr DType kE5M2 = DType::kFloat8E5M2;
constexpr DType kE5M2Fnuz = DType::kFloat8E5M2FNUZ;
constexpr DType kBytes = DType::kUint8;

constexpr GoldenCase kCases[] = {
    {"none-plain-f16", "plain", kF16, "none"},
    {"none-window-bf16", "window", kBf16, "none"},
    {"none-token-f32", "token", kF32, "none"},
    {"lossless-plain-bf16", "plain", kBf16, "lossless"},
    {"lossless-window-f16", "window", kF16, "lossless"},
    {"lossless-uneven-f32", "uneven", kF32, "lossless"},
    {"lossless-latent-f16", "latent", kF16, "lossless"},
    {"lossless-token-bf16", "token", kBf16, "lossless"},
    {"lossless-bitpack-token-f32", "token", kF32, "lossless|bitpack"},
    {"zstd-latent-f16", "latent", kF16, "none|zstd", true},
    {"lz4-latent-f16", "latent", kF16, "none|lz4", true},
    {"lz4-uniform-plain-f16", "plain", kF16, "uniform:levels=4|lz4", true},
    {"uniform-none-token-f16", "token", kF16, "uniform|none"},
    {"uniform-bitpack-plain-f16", "plain", kF16, "uniform:k_levels=16,v_levels=8|bitpack"},
    {"uniform-bitpack-latent-f32", "latent", kF32,
     "uniform:levels=200,axis=group,group=24|bitpack"},
    {"uniform-rans-window-bf16", "window", kBf16, "uniform:levels=8,axis=token|rans"},
    {"uniform-rans-uneven-f16", "uneven", kF16, "uniform:levels=3,axis=group,group=32|rans"},
    {"uniform-zstd-latent-f32", "latent", kF32, "uniform:levels=32|zstd", true},
    {"hadamard-rans-plain-f16", "plain", kF16, "hadamard|uniform:k_levels=16,v_levels=8|rans"},
    {"hadamard-rans-dim80-bf16", "dim80", kBf16,
     "hadamard:seed=7|uniform:levels=6,raw_first=0|rans"},
    {"hadamard-rans-latent-f16", "latent", kF16, "hadamard|uniform:levels=16|rans"},
    {"hadamard-rans-uneven-f32", "uneven", kF32, "hadamard:v_on=0|uniform:levels=16|rans"},
    {"hadamard-rans-long-bf16", "long", kBf16, "hadamard|uniform:levels=5|rans"},
    {"hadamard-bitpack-window-f16", "window", kF16, "hadamard|uniform:levels=4|bitpack"},
    {"uniform-mean-long-f16", "long", kF16,
     "uniform:levels=3,axis=tensor,reconstruct=mean,raw_first=0|rans"},
    {"uniform-symmetric-dim80-f32", "dim80", kF32,
     "hadamard|uniform:k_levels=7,v_levels=16,range=symmetric,k_dead_zone=0.25,v_reconstruct=mean"
     "|rans"},
    {"uniform-fixed-window-bf16", "window", kBf16,
     "uniform:levels=15,range=fixed,step=0.3,dead_zone=0.3|rans"},
    {"uniform-fixed-mean-plain-f16", "plain", kF16,
     "uniform:levels=8,k_range=fixed,k_step=0.25,reconstruct=mean|bitpack"},
    {"affine-rans-plain-bf16", "plain", kBf16, "affine|uniform:levels=16,axis=token|rans"},
    {"affine-hadamard-window-f16", "window", kF16,
     "affine:v_center=0,k_scale=1|hadamard|uniform:levels=8,axis=token|rans"},
    {"affine-scale-dim80-f32", "dim80", kF32, "affine:center=0,scale=1|uniform:levels=16|bitpack"},
    {"affine-token-f16", "token", kF16, "affine:scale=1|uniform:raw_first=0|none"},
    {"affine-calibrated-plain-f16", "plain", kF16,
     "affine:source=calibrated,scale=1|uniform:levels=16,axis=token|rans", false, true},
    {"delta-tokens-plain-f16", "plain", kF16, "delta:group=8|uniform:levels=16|rans"},
    {"delta-tokens-uneven-f32", "uneven", kF32, "delta:group=3,k_on=0|uniform:levels=16|rans"},
    {"delta-layers-plain-bf16", "plain", kBf16, "delta:axis=layer|uniform:levels=8|rans"},
    {"delta-layers-window-f16", "window", kF16,
     "affine|delta:axis=layer|hadamard|uniform:levels=16,raw_first=0|rans"},
    {"unrope-rans-roped-f16", "roped", kF16, "unrope|uniform:levels=16|rans"},
    {"unrope-hadamard-dim80-bf16", "dim80", kBf16, "unrope|hadamard|uniform:levels=16|rans"},
    {"klt-heads-roped-f16", "roped", kF16, "unrope|klt|uniform:levels=32,axis=tensor|rans", false,
     true},
    {"klt-joint-roped-f32", "roped", kF32,
     "unrope|klt:scope=joint|uniform:levels=32,axis=token|bitpack", false, true},
    {"klt-values-roped-f16", "roped", kF16,
     "klt:k_on=0,v_scope=joint|uniform:levels=16|rans:tables=calibrated", false, true},
    {"rans-wide-plain-f16", "plain", kF16, "uniform:k_levels=30,v_levels=200|rans"},
    {"rans-calibrated-plain-bf16", "plain", kBf16,
     "hadamard|uniform:k_levels=16,v_levels=8|rans:tables=calibrated", false, true},
    {"contexts-roped-f16", "roped", kF16, "uniform:levels=255,range=fixed,step=0.1|contexts", false,
     true},
    {"contexts-runs-roped-bf16", "roped", kBf16,
     "expected:recent=2,beta=1,horizon=64|mixed|contexts", false, true},
    {"contexts-columns-roped-f32", "roped", kF32,
     "uniform:k_levels=255,v_levels=30,range=fixed,k_step=0.3,v_step=1|contexts:point=2,energy=0",
     false, true},
    {"cut-rans-f16", "cut", kF16, "uniform:levels=4,axis=tensor,raw_first=0|rans"},
    {"cut-lz4-f16", "cut", kF16, "uniform:levels=4,axis=tensor,raw_first=0|lz4", true},
    {"none-window-e5m2fnuz", "window", kE5M2Fnuz, "none"},
    {"none-latent-bytes", "latent", kBytes, "none"},
    {"lossless-long-e4m3", "long", kE4M3, "lossless"},
    {"lossless-plain-e5m2", "plain", kE5M2, "lossless"},
    {"lossless-latent-bytes", "latent", kBytes, "lossless"},
    {"uniform-rans-window-e4m3fnuz", "window", kE4M3Fnuz, "uniform:levels=16|rans"},
    {"uniform-bitpack-plain-e4m3", "plain", kE4M3, "uniform|bitpack"},
    {"uniform-rans-uneven-e5m2fnuz", "uneven", kE5M2Fnuz, "uniform:levels=9,axis=token|rans"},
    {"fp8-rans-plain-f16", "plain", kF16, "fp8|rans"},
    {"fp8-none-latent-bf16", "latent", kBf16, "fp8:format=e5m2,scale=float,axis=tensor|none"},
    {"fp8-rans-dim80-f32", "dim80", kF32,
     "hadamard|fp8:k_scale=none,v_scale=float,axis=token|rans"},
    {"mixed-bitpack-plain-f16", "plain", kF16, "mixed:levels=16,low_levels=3,low_share=0.5|bitpack",
     false, true},
    {"mixed-rans-model-bf16", "plain", kBf16,
     "hadamard|mixed:low_share=0.4,scope=model,reconstruct=mean|rans", false, true},
    {"mixed-layers-window-f16", "window", kF16,
     "mixed:k_levels=9,v_levels=5,k_first_layers=1,last_layers=1,k_last_levels=200,axis=tensor|"
     "rans"},
    {"mixed-none-token-f32", "token", kF32, "mixed:raw_first=0|none"},
    {"window-drops-plain-f16", "plain", kF16,
     "window:sinks=2,recent=5,outside=0,inside=4|hadamard|mixed|rans"},
    {"attention-thins-window-bf16", "window", kBf16,
     "attention:recent=3,observed=4,keep=0.4|mixed|bitpack"},
    {"attention-layers-latent-f16", "latent", kF16,
     "attention:scope=layer,recent=2,observed=0,pool=1,outside=0|mixed|rans"},
    {"expected-weights-roped-f16", "roped", kF16, "expected:recent=2,beta=1,horizon=64|mixed|rans",
     false, true},
    {"expected-seen-roped-f16", "roped", kF16,
     "expected:keys=seen,recent=2,beta=1,horizon=64|mixed|rans", false, true},
    {"expected-drops-roped-f32", "roped", kF32,
     "window:recent=2,inside=8,outside=1|expected:recent=2,keep=0.5,outside=0|mixed|rans", false,
     true},
    {"buckets-drops-uneven-f32", "uneven", kF32, "buckets:outside=0,recent=4,bits=4|mixed|rans"},
    {"fp8-none-uneven-e5m2", "uneven", kE5M2, "fp8:format=e5m2|none"},
    {"uniform-blocks-plain-f16", "plain", kF16,
     "uniform:levels=4,group_tokens=5,v_axis=group,v_group=24,grids=float16|bitpack"},
    {"uniform-blocks-window-bf16", "window", kBf16,
     "uniform:levels=9,axis=channel,group_tokens=8,range=symmetric,dead_zone=0.2,grids=float16|"
     "rans"},
    {"uniform-half-dim80-f32", "dim80", kF32,
     "hadamard|uniform:levels=16,grids=float16,reconstruct=mean,raw_first=0|rans"},
    {"fp4-bitpack-plain-f16", "plain", kF16, "fp4:raw_first=0|bitpack"},
    {"fp4-rans-dim80-f32", "dim80", kF32, "hadamard|fp4:k_group=24,v_group=200|rans"},
    {"lloydmax-bitpack-plain-bf16", "plain", kBf16, "hadamard|lloydmax|bitpack"},
    {"lloydmax-rans-uneven-f32", "uneven", kF32,
     "hadamard|lloydmax:k_levels=5,v_levels=2,group=24,v_scale=rms,raw_first=0|rans"},
};

}  // namespace

std::span<const GoldenCase> GoldenCases() {
  return kCases;
}

}  // namespace kvserve::testing
