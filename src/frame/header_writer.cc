#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/byte_io.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/try.h"
#include "frame/layout.h"

namespace kvserve {
namespace {

void PutShape(const LayerShape& shape, TokenRange frame_tokens, ByteWriter& out) {
  out.PutVarint(shape.geometry.kv_heads);
  out.PutVarint(shape.geometry.k_dim);
  out.PutVarint(shape.geometry.v_dim);
  out.PutVarint(shape.geometry.window_tokens);
  out.Put(static_cast<std::uint8_t>(shape.geometry.rope_style));
  if (shape.geometry.rope_style != RopeStyle::kNone) out.Put(shape.geometry.rope_theta);
  out.PutVarint(shape.tokens.begin - frame_tokens.begin);
  out.PutVarint(shape.tokens.size());
}

// Which shape each layer has; shapes are numbered in order of first use. On the stack: 10 KiB.
class ShapeTable {
 public:
  explicit ShapeTable(const FrameHeader& header) : header_(header) {}

  Status Fill() {
    const auto& layers = header_.layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i > 0 && Same(i, i - 1)) {
        shape_of_[i] = shape_of_[i - 1];
        continue;
      }
      std::uint32_t shape = 0;
      while (shape < count_ && !Same(i, first_of_[shape])) ++shape;
      if (shape == kMaxShapes) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "more than " + std::to_string(kMaxShapes) + " distinct layer shapes");
      }
      if (shape == count_) first_of_[count_++] = static_cast<std::uint16_t>(i);
      shape_of_[i] = static_cast<std::uint16_t>(shape);
    }
    return {};
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] LayerShape shape(std::uint32_t index) const {
    const FrameLayer& layer = header_.layers[first_of_[index]];
    return {layer.geometry, layer.tokens};
  }
  [[nodiscard]] std::uint32_t shape_of(std::size_t layer) const { return shape_of_[layer]; }
  // Layer i continues the run of the one before.
  [[nodiscard]] bool Continues(std::size_t i) const {
    return i > 0 && header_.layers[i].layer == header_.layers[i - 1].layer + 1 &&
           shape_of_[i] == shape_of_[i - 1];
  }

 private:
  [[nodiscard]] bool Same(std::size_t i, std::size_t k) const {
    const FrameLayer& a = header_.layers[i];
    const FrameLayer& b = header_.layers[k];
    return a.tokens == b.tokens && a.geometry == b.geometry;
  }

  const FrameHeader& header_;
  std::uint32_t count_ = 0;
  std::array<std::uint16_t, kMaxShapes> first_of_;
  std::array<std::uint16_t, kMaxLayers> shape_of_;
};

// Shapes are listed once, in order of first use, and runs point to them: a model that alternates
// between two shapes costs three bytes per run.
Status PutLayers(const FrameHeader& header, ByteWriter& out) {
  const auto& layers = header.layers;
  ShapeTable table(header);
  KVSERVE_TRY(table.Fill());
  out.PutVarint(table.count());
  for (std::uint32_t i = 0; i < table.count(); ++i) PutShape(table.shape(i), header.tokens, out);
  std::size_t runs = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) runs += table.Continues(i) ? 0 : 1;
  out.PutVarint(runs);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < layers.size();) {
    const std::size_t first = i++;
    while (i < layers.size() && table.Continues(i)) ++i;
    out.PutVarint(layers[first].layer - next);
    out.PutVarint(i - first);
    out.PutVarint(table.shape_of(first));
    next = layers[i - 1].layer + 1;
  }
  return {};
}

// Whole numbers as zigzag varints with the lowest bit clear, anything else as the byte 1 and f64.
void PutParameterValue(double value, ByteWriter& out) {
  if (value != std::trunc(value)) {
    out.Put(std::uint8_t{1});
    out.Put(value);
    return;
  }
  const auto whole = static_cast<std::int64_t>(value);
  const auto zigzag =
      (static_cast<std::uint64_t>(whole) << 1) ^ static_cast<std::uint64_t>(whole >> 63);
  out.PutVarint(zigzag << 1);
}

void PutStages(const FrameHeader& header, ByteWriter& out) {
  out.PutVarint(header.stages.size());
  for (const auto& stage : header.stages) {
    out.PutVarint(stage.id);
    out.Put(stage.version);
    out.Put(static_cast<std::uint8_t>(stage.parameters.size()));
    for (const auto& parameter : stage.parameters) {
      out.Put(parameter.id);
      PutParameterValue(parameter.value, out);
    }
  }
}

void PutFingerprint(const Fingerprint& fingerprint, ByteWriter& out) {
  out.PutBytes(std::as_bytes(std::span(fingerprint.bytes)));
}

Status PutBody(const FrameHeader& header, std::span<const SectionEntry> sections, ByteWriter& out) {
  const bool has_artefact = !header.artefact.empty();
  out.Put(static_cast<std::uint8_t>(has_artefact ? kFlagArtefact : 0));
  out.Put(static_cast<std::uint8_t>(header.dtype));
  out.PutVarint(header.model_layers);
  out.PutVarint(header.tokens.begin);
  out.PutVarint(header.tokens.size());
  out.PutVarint(header.prompt_tokens);
  PutFingerprint(header.model, out);
  PutFingerprint(header.key, out);
  if (has_artefact) PutFingerprint(header.artefact, out);
  KVSERVE_TRY(PutLayers(header, out));
  PutStages(header, out);
  out.Put(static_cast<std::uint8_t>(sections.size()));
  for (const auto& section : sections) {
    out.Put(static_cast<std::uint8_t>(section.kind));
    out.PutVarint(section.bytes);
    out.Put(section.checksum);
  }
  return {};
}

template <typename T>
void Patch(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

Status PutHeader(const FrameHeader& header, std::span<const SectionEntry> sections,
                 std::vector<std::byte>& bytes) {
  const std::size_t begin = bytes.size();
  ByteWriter out(bytes);
  out.PutBytes(std::as_bytes(std::span(kFrameMagic)));
  out.Put(header.version);
  (void)out.Grow(kPrefixBytes - kHeaderBytesOffset);
  KVSERVE_TRY(PutBody(header, sections, out));
  const std::span<std::byte> written = std::span(bytes).subspan(begin);
  if (written.size() > kMaxHeaderBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "header of " + std::to_string(written.size()) +
                                                      " bytes is over " +
                                                      std::to_string(kMaxHeaderBytes));
  }
  std::uint64_t frame_bytes = written.size();
  for (const auto& section : sections) {
    const auto sum = CheckedAdd(frame_bytes, section.bytes);
    if (!sum) return MakeError(ErrorCode::kInvalidArgument, "section bytes overflow 64 bits");
    frame_bytes = *sum;
  }
  Patch(written, kHeaderBytesOffset, static_cast<std::uint32_t>(written.size()));
  Patch(written, kFeaturesOffset, header.features);
  Patch(written, kFrameBytesOffset, frame_bytes);
  Patch(written, kChecksumOffset, Hash64(written));
  return {};
}

}  // namespace

Status EncodeHeader(const FrameHeader& header, std::span<const SectionEntry> sections,
                    std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  Status status = PutHeader(header, sections, out);
  if (!status) out.resize(before);
  return status;
}

}  // namespace kvserve
