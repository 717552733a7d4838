// Arithmetic of rates: bytes per second, in raw KV bytes of the cache's dtype.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvserve {

// 0 where no time has passed: nothing was measured.
[[nodiscard]] double BytesPerSecond(std::uint64_t bytes, double seconds);

// Encoding and decoding one after the other: 1 / (1/e + 1/d); 0 if either is 0.
[[nodiscard]] double CombinedBytesPerSecond(double encode_bytes_per_s, double decode_bytes_per_s);

// Middle and quartiles of repetitions; all 0 without any.
struct Rate {
  double median_bytes_per_s = 0.0;
  double low_bytes_per_s = 0.0;   // a quarter of the repetitions were slower
  double high_bytes_per_s = 0.0;  // a quarter were faster
};
[[nodiscard]] Rate SummariseRates(std::vector<double> bytes_per_s);

// Three digits and the unit that suits them: "1.40 GB/s", "87.5 MB/s"; 10^9 bytes are a GB.
[[nodiscard]] std::string RateText(double bytes_per_s);

}  // namespace kvserve
