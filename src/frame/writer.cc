#include <algorithm>
#include <string>

#include "base/try.h"
#include "frame/frame.h"
#include "frame/layout.h"

namespace kvserve {
namespace {

Status CheckSections(std::span<const Section> sections) {
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto kind = static_cast<unsigned>(sections[i].kind);
    if (SectionName(sections[i].kind) == "unknown") {
      return MakeError(ErrorCode::kInvalidArgument,
                       "section kind " + std::to_string(kind) + " is unknown");
    }
    if (i > 0 && sections[i - 1].kind >= sections[i].kind) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "section kind " + std::to_string(kind) +
                           " is out of order; kinds ascend and appear once");
    }
  }
  return {};
}

}  // namespace

std::string_view SectionName(SectionKind kind) {
  switch (kind) {
    case SectionKind::kClasses: return "classes";
    case SectionKind::kSide: return "side";
    case SectionKind::kSymbols: return "symbols";
  }
  return "unknown";
}

Status WriteFrame(const FrameHeader& header, std::span<const Section> sections,
                  std::vector<std::byte>& out) {
  if (header.version != kFrameVersion) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "frame version " + std::to_string(header.version) +
                         " cannot be written, only " + std::to_string(kFrameVersion));
  }
  if ((header.features & ~kKnownFeatures) != 0) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "features " + std::to_string(header.features) + " has unknown bits");
  }
  KVSERVE_TRY(CheckHeader(header));
  KVSERVE_TRY(CheckSections(sections));
  SectionTable table;
  std::uint64_t bytes = 0;
  for (const auto& section : sections) {
    table.entries[table.count++] = {section.kind, section.bytes.size(),
                                    SectionChecksum(section.kind, section.bytes)};
    bytes += section.bytes.size();
  }
  KVSERVE_TRY(EncodeHeader(header, table.sections(), out));
  if (out.capacity() - out.size() < bytes) {
    out.reserve(std::max(out.size() + bytes, 2 * out.capacity()));
  }
  for (const auto& section : sections) {
    out.insert(out.end(), section.bytes.begin(), section.bytes.end());
  }
  return {};
}

}  // namespace kvserve
