// The wire format of one frame: header, section table, checksums. Pure bytes; knows no stage.
// docs/FORMAT.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/profile.h"

namespace kvserve {

inline constexpr std::uint16_t kFrameVersion = 1;
inline constexpr std::uint64_t kKnownFeatures = 0;  // feature bits this build understands

// Kind of a section; values are on the wire. An unknown kind is refused.
enum class SectionKind : std::uint8_t {
  kClasses = 1,  // token classes of all planes, coding order
  kSide = 2,     // varint bytes of each plane, then each plane's own (see src/pipeline)
  kSymbols = 3,  // the codec's stream over all planes
};
[[nodiscard]] std::string_view SectionName(SectionKind kind);

struct FrameLayer {
  std::uint32_t layer = 0;
  LayerGeometry geometry;
  TokenRange tokens;  // absolute; a window layer may hold fewer than the frame
  friend bool operator==(const FrameLayer&, const FrameLayer&) = default;
};

struct FrameHeader {
  std::uint16_t version = kFrameVersion;
  std::uint64_t features = 0;
  DType dtype = DType::kFloat16;
  std::uint32_t model_layers = 0;  // of the whole model; layers below may be fewer
  TokenRange tokens;
  std::uint32_t prompt_tokens = 0;  // 0: not known to the encoder
  Fingerprint model;
  Fingerprint key;
  Fingerprint artefact;            // calibration artefact; all zero: none
  std::vector<FrameLayer> layers;  // ascending
  std::vector<StageSpec> stages;   // chain order, every parameter
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Geometry of the whole model. Layers that the frame leaves out get the least that is valid. Layer
// indices are below model_layers.
[[nodiscard]] KvGeometry ModelGeometry(const FrameHeader& header);
// The same into a geometry whose memory is kept.
void ModelGeometry(const FrameHeader& header, KvGeometry& geometry);

// Bytes of all planes in the cache dtype; at most 2^48 in a header from ReadFrame.
[[nodiscard]] std::uint64_t RawBytes(const FrameHeader& header);

struct Section {
  SectionKind kind = SectionKind::kSymbols;
  std::span<const std::byte> bytes;
};

// A parsed frame; section bytes point into the input.
struct FrameView {
  FrameHeader header;
  std::vector<Section> sections;
  std::vector<std::uint64_t> section_checksums;
  std::size_t frame_bytes = 0;  // length of this frame; the next one of a file starts there
};

// Appends one frame to `out`, which no section may point into; nothing is appended on an error.
// Sections come in ascending kind, each kind at most once; one that is left out is empty.
// kInvalidArgument when a field is outside what the format can say.
[[nodiscard]] Status WriteFrame(const FrameHeader& header, std::span<const Section> sections,
                                std::vector<std::byte>& out);

// Parses and verifies the frame at the start of `bytes`. Every length is checked against what is
// there before anything is allocated. kUnsupported names an unknown version, feature bit or dtype
// with both sides' values; kCorruptData names the field or section that is wrong.
[[nodiscard]] Result<FrameView> ReadFrame(std::span<const std::byte> bytes);

// Reads frame after frame and keeps its memory: headers of shapes that it has seen take none.
class FrameReader {
 public:
  // As ReadFrame. The view is valid until the next call.
  [[nodiscard]] Result<const FrameView*> Read(std::span<const std::byte> bytes);

 private:
  friend Result<FrameView> ReadFrame(std::span<const std::byte> bytes);
  FrameView view_;
  std::vector<std::byte> canonical_;  // the header as the writer has it
};

}  // namespace kvserve
