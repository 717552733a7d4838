// Coder loops with AVX2 (vectors of 8 states) and AVX-512 (16 states, up to 8 vectors in flight so
// that the latency of a step is hidden). Called only where these instruction sets are in force.

#include "kernels/rans/rans_kernels.h"

#if defined(__x86_64__) && !defined(HWY_COMPILE_ONLY_SCALAR)
#define KVSERVE_RANS_X86 1
// Highway lacks expand and compress of 32-bit lanes by mask in this form, hence intrinsics.
#define KVSERVE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt,bmi2")))
#define KVSERVE_AVX2 __attribute__((target("avx2,popcnt")))
#else
#define KVSERVE_RANS_X86 0
#endif

namespace kvserve {

[[nodiscard]] std::size_t RansDecodeAvx512(const RansDecoderTable& table, unsigned lanes_log2,
                                           std::uint32_t* states, std::span<std::uint8_t> symbols,
                                           RansWords& words);
[[nodiscard]] std::uint16_t* RansEncodeAvx512(const RansEncoderTable& table, unsigned lanes_log2,
                                              std::uint32_t* states,
                                              std::span<const std::uint8_t> symbols,
                                              std::uint16_t* words);

}  // namespace kvserve
