#include "pipeline/side_section.h"

#include <cstdint>
#include <string>

#include "base/checked.h"
#include "base/try.h"

namespace kvserve {
namespace {

std::size_t BytesOf(const StageSides& sides) {
  std::size_t bytes = 0;
  for (const auto& stage : sides) bytes += stage.size();
  return bytes;
}

}  // namespace

void AppendSides(const StageSides& sides, ByteWriter& out) {
  for (std::size_t i = sides.size(); i-- > 0;) out.PutBytes(sides[i]);
}

void WriteSide(std::span<const StageSides> planes, std::vector<std::byte>& out) {
  out.clear();
  std::size_t total = 0;
  for (const StageSides& sides : planes) total += BytesOf(sides);
  if (total == 0) return;
  ByteWriter writer(out);
  for (const StageSides& sides : planes) writer.PutVarint(BytesOf(sides));
  for (const StageSides& sides : planes) AppendSides(sides, writer);
}

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
