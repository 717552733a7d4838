#include "pipeline/side_section.h"

#include <cstdint>
#include <string>

#include "base/byte_io.h"
#include "base/checked.h"
#include "base/try.h"

namespace kvserve {

Status SplitSide(std::span<const std::byte> section, std::size_t count,
                 std::vector<std::span<const std::byte>>& planes) {
  planes.assign(count, {});
  if (section.empty()) return {};
  ByteReader lengths(section);
  std::uint64_t total = 0;
  for (std::size_t p = 0; p < count; ++p) {
    KVSERVE_ASSIGN(const std::uint64_t bytes, lengths.GetVarint());
    const auto sum = CheckedAdd(total, bytes);
    if (!sum) return MakeError(ErrorCode::kCorruptData, "section side: lengths overflow");
    total = *sum;
  }
  if (total != lengths.remaining()) {
    return MakeError(ErrorCode::kCorruptData,
                     "section side: lengths sum to " + std::to_string(total) + " where " +
                         std::to_string(lengths.remaining()) + " bytes follow");
  }
  std::span<const std::byte> rest = section.subspan(lengths.position());
  ByteReader again(section);  // rather than memory for the lengths
  for (auto& plane : planes) {
    KVSERVE_ASSIGN(const std::uint64_t bytes, again.GetVarint());
    plane = rest.first(bytes);
    rest = rest.subspan(bytes);
  }
  return {};
}

}  // namespace kvserve
