// Order of checks: magic, version, feature bits, lengths, header checksum, fields, section lengths,
// section checksums. Version and features come before anything whose meaning depends on them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "base/hash.h"
#include "base/try.h"
#include "frame/frame.h"
#include "frame/layout.h"

namespace kvserve {
namespace {

using Bytes = std::span<const std::byte>;

struct Prefix {
  std::uint16_t version = 0;
  std::uint64_t features = 0;
  std::size_t header_bytes = 0;
  std::size_t frame_bytes = 0;
};

tl::unexpected<Error> Corrupt(const std::string& message) {
  return MakeError(ErrorCode::kCorruptData, "frame: " + message);
}

Status CheckMagicAndVersion(Bytes bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kFrameMagic.size()));
  if (!kFrameMagic.starts_with(start)) {
    return Corrupt("does not start with the magic \"KVSF\"");
  }
  if (bytes.size() < kHeaderBytesOffset) {
    return Corrupt("truncated at byte " + std::to_string(bytes.size()) + ", before its version");
  }
  const auto version = PrefixField<std::uint16_t>(bytes, kVersionOffset);
  if (version != kFrameVersion) {
    return MakeError(ErrorCode::kUnsupported, "frame version " + std::to_string(version) +
                                                  " is not supported; this build reads version " +
                                                  std::to_string(kFrameVersion));
  }
  return {};
}

Status CheckFeatures(Bytes bytes) {
  if (bytes.size() < kPrefixBytes) {
    return Corrupt("truncated at byte " + std::to_string(bytes.size()) + " of a prefix of " +
                   std::to_string(kPrefixBytes));
  }
  const std::uint64_t unknown =
      PrefixField<std::uint64_t>(bytes, kFeaturesOffset) & ~kKnownFeatures;
  if (unknown != 0) {
    return MakeError(ErrorCode::kUnsupported, "frame feature bit " +
                                                  std::to_string(std::countr_zero(unknown)) +
                                                  " is not supported; this build knows the mask " +
                                                  std::to_string(kKnownFeatures));
  }
  return {};
}

Result<Prefix> ReadPrefix(Bytes bytes) {
  KVSERVE_TRY(CheckMagicAndVersion(bytes));
  KVSERVE_TRY(CheckFeatures(bytes));
  const auto header_bytes = PrefixField<std::uint32_t>(bytes, kHeaderBytesOffset);
  const auto frame_bytes = PrefixField<std::uint64_t>(bytes, kFrameBytesOffset);
  if (header_bytes < kPrefixBytes || header_bytes > kMaxHeaderBytes) {
    return Corrupt("header_bytes " + std::to_string(header_bytes) + " is outside " +
                   std::to_string(kPrefixBytes) + ".." + std::to_string(kMaxHeaderBytes));
  }
  if (frame_bytes < header_bytes) {
    return Corrupt("frame_bytes " + std::to_string(frame_bytes) + " is less than header_bytes " +
                   std::to_string(header_bytes));
  }
  if (frame_bytes > bytes.size()) {
    return Corrupt("truncated: frame_bytes is " + std::to_string(frame_bytes) + ", " +
                   std::to_string(bytes.size()) + " are there");
  }
  return Prefix{PrefixField<std::uint16_t>(bytes, kVersionOffset),
                PrefixField<std::uint64_t>(bytes, kFeaturesOffset), header_bytes,
                static_cast<std::size_t>(frame_bytes)};
}

// Anything that the writer would have written otherwise is refused: one header, one encoding.
Status CheckCanonical(const FrameHeader& header, const SectionTable& table, Bytes bytes,
                      std::vector<std::byte>& again) {
  again.clear();
  const auto status = EncodeHeader(header, table.sections(), again);
  if (!status || !std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) {
    return Corrupt("header is not in the canonical form, or its lengths disagree");
  }
  return {};
}

Status CheckSectionLengths(const SectionTable& table, const Prefix& prefix) {
  std::uint64_t total = prefix.header_bytes;
  for (const auto& entry : table.sections()) {
    const auto sum = CheckedAdd(total, entry.bytes);
    if (!sum || *sum > prefix.frame_bytes) {
      return Corrupt("section " + std::string(SectionName(entry.kind)) + " of " +
                     std::to_string(entry.bytes) + " bytes ends past frame_bytes " +
                     std::to_string(prefix.frame_bytes));
    }
    total = *sum;
  }
  if (total != prefix.frame_bytes) {
    return Corrupt("header and sections take " + std::to_string(total) + " bytes, frame_bytes is " +
                   std::to_string(prefix.frame_bytes));
  }
  return {};
}

}  // namespace

bool HeaderChecksumHolds(std::span<const std::byte> header) {
  constexpr std::array<std::byte, sizeof(std::uint64_t)> kZeros{};
  return Hash64(header.first(kChecksumOffset), kZeros,
                header.subspan(kChecksumOffset + kZeros.size())) ==
         PrefixField<std::uint64_t>(header, kChecksumOffset);
}

std::uint64_t SectionChecksum(SectionKind kind, std::span<const std::byte> bytes) {
  return Hash64(bytes, static_cast<std::uint64_t>(kind));
}

Result<const FrameView*> FrameReader::Read(std::span<const std::byte> bytes) {
  KVSERVE_ASSIGN(const Prefix prefix, ReadPrefix(bytes));
  const Bytes header = bytes.first(prefix.header_bytes);
  if (!HeaderChecksumHolds(header)) return Corrupt("header does not match its checksum");
  SectionTable table;
  KVSERVE_TRY(DecodeHeaderBody(header.subspan(kPrefixBytes), prefix.version, prefix.features,
                               view_.header, table));
  KVSERVE_TRY(CheckSectionLengths(table, prefix));
  KVSERVE_TRY(CheckCanonical(view_.header, table, header, canonical_));
  view_.sections.clear();
  view_.section_checksums.clear();
  view_.frame_bytes = prefix.frame_bytes;
  std::size_t offset = prefix.header_bytes;
  for (const auto& entry : table.sections()) {
    const Bytes section = bytes.subspan(offset, entry.bytes);
    offset += entry.bytes;
    if (SectionChecksum(entry.kind, section) != entry.checksum) {
      return Corrupt("section " + std::string(SectionName(entry.kind)) +
                     " does not match its checksum");
    }
    view_.sections.push_back({entry.kind, section});
    view_.section_checksums.push_back(entry.checksum);
  }
  return &view_;
}

Result<FrameView> ReadFrame(std::span<const std::byte> bytes) {
  FrameReader reader;
  KVSERVE_TRY(reader.Read(bytes));
  return std::move(reader.view_);
}

}  // namespace kvserve
