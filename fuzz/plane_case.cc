#include "plane_case.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/half.h"
#include "library/testing/sample_sections.h"

namespace kvserve::fuzzing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16,        DType::kBFloat16,       DType::kFloat32,
                             DType::kFloat8E4M3FN,   DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                             DType::kFloat8E5M2FNUZ, DType::kUint8};
constexpr std::uint32_t kLaterChunk = 77;

std::uint8_t At(std::span<const std::uint8_t> fill, std::size_t i) {
  return fill.empty() ? std::uint8_t{0} : fill[i % fill.size()];
}

}  // namespace

PlaneCase::PlaneCase(Choices& choices) {
  geometry_.dtype = kDTypes[choices.Byte() % std::size(kDTypes)];
  shape_.heads = 1U + choices.Byte() % 4;
  shape_.dim = 1U + choices.Byte();
  shape_.tokens = choices.Byte() % 34;
  const std::uint8_t bits = choices.Byte();
  halves_ = (bits & 8) != 0;
  tile_rows_ = 1U + choices.Byte();
  const std::size_t low = choices.Byte();
  side_ = std::as_bytes(choices.Take(low + 256 * std::size_t{choices.Byte()}));
  fill_ = choices.rest();
  LayerGeometry layer{.kv_heads = shape_.heads, .k_dim = shape_.dim, .v_dim = shape_.dim};
  if ((bits & 48) != 0) {
    layer.rope_style = (bits & 16) != 0 ? RopeStyle::kHalves : RopeStyle::kInterleaved;
    layer.rope_theta = 10000.0F;
  }
  geometry_.layers.assign(2, layer);
  const std::uint32_t first = (bits & 1) != 0 ? 0 : kLaterChunk;
  frame_.geometry = &geometry_;
  frame_.tokens = {first, first + shape_.tokens};
  context_.frame = &frame_;
  context_.layer = (bits & 4) != 0 ? 1 : 0;
  context_.kind = (bits & 2) != 0 ? PlaneKind::kValue : PlaneKind::kKey;
  context_.tokens = frame_.tokens;
}

PlaneContext PlaneCase::ContextIn(Arena& arena) const {
  PlaneContext context = context_;
  context.arena = &arena;
  context.decoded = earlier_;
  return context;
}

std::vector<float> PlaneCase::Floats() const {
  std::vector<float> floats(values());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    float value = 0.0F;
    if (halves_) {
      value =
          Float16ToFloat(static_cast<std::uint16_t>(At(fill_, 2 * i) | At(fill_, 2 * i + 1) << 8));
    } else {
      std::uint32_t word = 0;
      for (unsigned k = 0; k < 4; ++k) word |= std::uint32_t{At(fill_, 4 * i + k)} << (8 * k);
      value = std::bit_cast<float>(word);
    }
    floats[i] = std::isfinite(value) ? value : 1.0F;
  }
  return floats;
}

void PlaneCase::FillElements(std::span<std::byte> elements) const {
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = std::byte{At(fill_, i)};
}

void PlaneCase::FillSymbols(std::uint32_t alphabet, std::span<std::uint8_t> symbols) const {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i] = static_cast<std::uint8_t>(At(fill_, i) % alphabet);
  }
}

std::span<const DecodedPlane> PlaneCase::earlier() {
  if (!earlier_.empty()) return earlier_;
  const std::size_t count = 2 * context_.layer + (context_.kind == PlaneKind::kValue ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    auto& floats = earlier_values_.emplace_back(Floats());
    for (float& value : floats) value *= 0.25F * static_cast<float>(i);
    DecodedPlane plane;
    plane.layer = static_cast<std::uint32_t>(i / 2);
    plane.kind = i % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
    plane.tokens = context_.tokens;
    plane.values = {floats.data(), shape_.tokens, shape_.heads, shape_.dim};
    earlier_.push_back(plane);
  }
  return earlier_;
}

void PlaneCase::Calibrate() {
  CalibrationArtefact::Contents contents;
  contents.geometry = geometry_;
  ChannelStatistics statistics;
  for (std::uint32_t i = 0; i < shape_.columns(); ++i) {
    statistics.mean.push_back(static_cast<float>(i % 5) - 2.0F);
    statistics.scale.push_back(0.5F + static_cast<float>(i % 7));
  }
  const std::size_t planes = 2 * geometry_.layers.size();
  contents.statistics.assign(planes, statistics);
  const std::size_t plane = 2 * context_.layer + (context_.kind == PlaneKind::kValue ? 1 : 0);
  contents.klt_heads.resize(planes);
  contents.klt_joint.resize(planes);
  contents.klt_heads[plane] = testing::SampleKlt(shape_.columns(), shape_.dim);
  contents.klt_joint[plane] = testing::SampleKlt(shape_.columns(), shape_.columns());
  std::vector<float> scores;
  for (std::uint32_t h = 0; h < shape_.heads; ++h) {
    scores.push_back(static_cast<float>(h * 5 % 7) / 7.0F);
  }
  contents.head_scores.assign(geometry_.layers.size(), scores);
  artefact_ = std::make_unique<CalibrationArtefact>(std::move(contents), Fingerprint{});
  frame_.artefact = artefact_.get();
}

}  // namespace kvserve::fuzzing
