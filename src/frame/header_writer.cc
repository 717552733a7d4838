#include <algorithm>
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

// Consecutive layers of one shape, after `skipped` layers that the frame leaves out.
struct LayerRun {
  std::uint32_t skipped = 0;
  std::uint32_t count = 0;
  std::uint32_t shape = 0;
};

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

// Shapes are listed once, in order of first use, and runs point to them: a model that alternates
// between two shapes costs three bytes per run.
Status PutLayers(const FrameHeader& header, ByteWriter& out) {
  std::vector<LayerShape> shapes;
  std::vector<LayerRun> runs;
  std::uint32_t next = 0;
  for (const auto& layer : header.layers) {
    const LayerShape shape{layer.geometry, layer.tokens};
    const bool adjacent = layer.layer == next && !runs.empty();
    const std::uint32_t skipped = layer.layer - next;
    next = layer.layer + 1;
    if (adjacent && shapes[runs.back().shape] == shape) {
      ++runs.back().count;
      continue;
    }
    const auto found = std::find(shapes.begin(), shapes.end(), shape);
    const auto index = static_cast<std::uint32_t>(found - shapes.begin());
    if (found == shapes.end()) shapes.push_back(shape);
    if (shapes.size() > kMaxShapes) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "more than " + std::to_string(kMaxShapes) + " distinct layer shapes");
    }
    runs.push_back({skipped, 1, index});
  }
  out.PutVarint(shapes.size());
  for (const auto& shape : shapes) PutShape(shape, header.tokens, out);
  out.PutVarint(runs.size());
  for (const auto& run : runs) {
    out.PutVarint(run.skipped);
    out.PutVarint(run.count);
    out.PutVarint(run.shape);
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
void Patch(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

}  // namespace

Result<std::vector<std::byte>> EncodeHeader(const FrameHeader& header,
                                            std::span<const SectionEntry> sections) {
  std::vector<std::byte> bytes;
  bytes.reserve(256);
  ByteWriter out(bytes);
  out.PutBytes(std::as_bytes(std::span(kFrameMagic)));
  out.Put(header.version);
  (void)out.Grow(kPrefixBytes - kHeaderBytesOffset);
  KVSERVE_TRY(PutBody(header, sections, out));
  if (bytes.size() > kMaxHeaderBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "header of " + std::to_string(bytes.size()) +
                                                      " bytes is over " +
                                                      std::to_string(kMaxHeaderBytes));
  }
  std::uint64_t frame_bytes = bytes.size();
  for (const auto& section : sections) {
    const auto sum = CheckedAdd(frame_bytes, section.bytes);
    if (!sum) return MakeError(ErrorCode::kInvalidArgument, "section bytes overflow 64 bits");
    frame_bytes = *sum;
  }
  Patch(bytes, kHeaderBytesOffset, static_cast<std::uint32_t>(bytes.size()));
  Patch(bytes, kFeaturesOffset, header.features);
  Patch(bytes, kFrameBytesOffset, frame_bytes);
  Patch(bytes, kChecksumOffset, Hash64(bytes));
  return bytes;
}

}  // namespace kvserve
