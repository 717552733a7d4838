// Positions and limits of the wire form that writer and reader share; docs/FORMAT.md explains them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "frame/frame.h"
#include "kvserve/error.h"

namespace kvserve {

// Fixed prefix. Magic and version keep their place in every version to come.
inline constexpr std::string_view kFrameMagic = "KVSF";
inline constexpr std::size_t kVersionOffset = 4;      // u16
inline constexpr std::size_t kHeaderBytesOffset = 6;  // u32, prefix included
inline constexpr std::size_t kFeaturesOffset = 10;    // u64
inline constexpr std::size_t kFrameBytesOffset = 18;  // u64
inline constexpr std::size_t kChecksumOffset = 26;    // u64, zero while the header is hashed
inline constexpr std::size_t kPrefixBytes = 34;

// The value at a position of the prefix, which `bytes` must reach.
template <typename T>
[[nodiscard]] T PrefixField(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// `header` is the whole of it, prefix included.
[[nodiscard]] bool HeaderChecksumHolds(std::span<const std::byte> header);
[[nodiscard]] std::uint64_t SectionChecksum(SectionKind kind, std::span<const std::byte> bytes);

inline constexpr std::uint8_t kFlagArtefact = 1;  // an artefact fingerprint follows the key's

inline constexpr std::uint32_t kMaxHeaderBytes = 1U << 20;
inline constexpr std::uint32_t kMaxShapes = 1024;  // distinct layer shapes of one frame
inline constexpr std::uint32_t kMaxStages = 32;
inline constexpr std::uint64_t kMaxFrameRawBytes = std::uint64_t{1} << 48;
inline constexpr double kMaxParameter = 9007199254740992.0;  // 2^53

struct SectionEntry {
  SectionKind kind = SectionKind::kSymbols;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // SectionChecksum
};

// What layers of one run have in common.
struct LayerShape {
  LayerGeometry geometry;
  TokenRange tokens;  // absolute
  friend bool operator==(const LayerShape&, const LayerShape&) = default;
};

// Everything a header claims that does not depend on how it is written: ranges, order, finiteness,
// no overflow of the raw size. kInvalidArgument names field and value; kUnsupported for the dtype.
[[nodiscard]] Status CheckHeader(const FrameHeader& header);

// Sections of one frame: kinds ascend and are there once, so there are no more than kinds.
struct SectionTable {
  std::array<SectionEntry, 3> entries;
  std::size_t count = 0;
  [[nodiscard]] std::span<const SectionEntry> sections() const {
    return std::span(entries).first(count);
  }
};

// Appends the whole header, prefix and section table included. There is one form for each header,
// and the reader refuses any other. `header` must have passed CheckHeader. kInvalidArgument, and
// nothing is appended, when it has more shapes or bytes than the format allows.
[[nodiscard]] Status EncodeHeader(const FrameHeader& header, std::span<const SectionEntry> sections,
                                  std::vector<std::byte>& out);

// Parses what follows the prefix; `body` ends where the header ends. kCorruptData names the field.
// `header` keeps its memory.
[[nodiscard]] Status DecodeHeaderBody(std::span<const std::byte> body, std::uint16_t version,
                                      std::uint64_t features, FrameHeader& header,
                                      SectionTable& sections);

}  // namespace kvserve
