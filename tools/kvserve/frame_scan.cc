#include "frame_scan.h"

#include "frame/layout.h"

namespace kvserve::tool {
namespace {

using Bytes = std::span<const std::byte>;

// Fills what a damaged frame still says. `bytes` starts at the frame; ReadFrame refused it.
void Salvage(Bytes bytes, ScannedFrame& frame) {
  if (bytes.size() < kPrefixBytes ||
      PrefixField<std::uint16_t>(bytes, kVersionOffset) != kFrameVersion) {
    return;
  }
  const auto header_bytes = PrefixField<std::uint32_t>(bytes, kHeaderBytesOffset);
  const auto frame_bytes = PrefixField<std::uint64_t>(bytes, kFrameBytesOffset);
  if (header_bytes < kPrefixBytes || header_bytes > kMaxHeaderBytes ||
      header_bytes > bytes.size() || frame_bytes < header_bytes) {
    return;
  }
  const Bytes header = bytes.first(header_bytes);
  if (!HeaderChecksumHolds(header)) return;
  FrameHeader parsed;
  SectionTable table;
  if (!DecodeHeaderBody(header.subspan(kPrefixBytes), kFrameVersion,
                        PrefixField<std::uint64_t>(bytes, kFeaturesOffset), parsed, table)) {
    return;
  }
  frame.header = std::move(parsed);
  if (frame_bytes <= bytes.size()) frame.frame_bytes = frame_bytes;
  Bytes rest = bytes.subspan(header_bytes);
  for (const SectionEntry& entry : table.sections()) {
    ScannedSection section{entry.kind, entry.bytes, entry.checksum, false};
    const bool whole = entry.bytes <= rest.size();
    if (whole) {
      section.checksum_ok = SectionChecksum(entry.kind, rest.first(entry.bytes)) == entry.checksum;
    }
    rest = rest.subspan(whole ? entry.bytes : rest.size());
    frame.sections.push_back(section);
  }
}

}  // namespace

std::vector<ScannedFrame> ScanFrames(std::span<const std::byte> bytes) {
  std::vector<ScannedFrame> frames;
  for (std::size_t offset = 0; offset < bytes.size();) {
    ScannedFrame frame;
    frame.offset = offset;
    auto view = ReadFrame(bytes.subspan(offset));
    if (view) {
      frame.frame_bytes = view->frame_bytes;
      frame.header = std::move(view->header);
      for (std::size_t i = 0; i < view->sections.size(); ++i) {
        const Section& section = view->sections[i];
        frame.sections.push_back(
            {section.kind, section.bytes.size(), view->section_checksums[i], true});
      }
    } else {
      frame.error = view.error();
      Salvage(bytes.subspan(offset), frame);
    }
    const std::size_t step = frame.frame_bytes;
    frames.push_back(std::move(frame));
    if (step == 0) break;
    offset += step;
  }
  return frames;
}

}  // namespace kvserve::tool
