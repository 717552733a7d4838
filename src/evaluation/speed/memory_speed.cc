#include "evaluation/speed/memory_speed.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/try.h"
#include "base/workers.h"
#include "evaluation/speed/repetitions.h"

namespace kvserve {

Result<Rate> MeasureMemcpy(std::uint64_t bytes, std::uint32_t threads, double seconds) {
  if (bytes == 0 || threads == 0) {
    return MakeError(ErrorCode::kInvalidArgument, "memcpy needs bytes and a thread");
  }
  const std::unique_ptr<std::byte[]> from(new (std::nothrow) std::byte[bytes]);
  const std::unique_ptr<std::byte[]> to(new (std::nothrow) std::byte[bytes]);
  if (from == nullptr || to == nullptr) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "no memory for two buffers of " + std::to_string(bytes) + " bytes");
  }
  Workers workers(threads);
  const auto part = [&](std::size_t i) { return bytes * i / threads; };
  const auto each_part = [&](const auto& work) {
    return workers.Run(threads, [&](std::size_t i, Arena& /*scratch*/) -> Status {
      work(part(i), part(i + 1) - part(i));
      return {};
    });
  };
  // Memory that nobody wrote to is one page of zeros over and over.
  KVSERVE_TRY(each_part([&](std::uint64_t at, std::uint64_t count) {
    std::memset(from.get() + at, 1, count);
    std::memset(to.get() + at, 2, count);
  }));
  auto rate = MeasureRate(1, seconds, [&](std::size_t /*item*/) -> Result<std::uint64_t> {
    KVSERVE_TRY(each_part([&](std::uint64_t at, std::uint64_t count) {
      std::memcpy(to.get() + at, from.get() + at, count);
    }));
    return bytes;
  });
  if (rate && (to[0] != std::byte{1} || to[bytes - 1] != std::byte{1})) {
    return MakeError(ErrorCode::kInternal, "memcpy did not copy");
  }
  return rate;
}

}  // namespace kvserve
