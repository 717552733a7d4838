#include "golden/sample_tensors.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/try.h"
#include "kernels/convert/convert.h"
#include "library/calibration_file.h"
#include "library/testing/sample_sections.h"
#include "library/testing/sample_transform.h"

namespace kvserve::testing {
namespace {

constexpr float kTheta = 10000.0F;

LayerGeometry Layer(std::uint32_t heads, std::uint32_t k_dim, std::uint32_t v_dim,
                    std::uint32_t window = 0, RopeStyle style = RopeStyle::kHalves) {
  return {.kv_heads = heads,
          .k_dim = k_dim,
          .v_dim = v_dim,
          .window_tokens = window,
          .rope_style = style,
          .rope_theta = style == RopeStyle::kNone ? 0.0F : kTheta};
}

struct Shape {
  std::vector<LayerGeometry> layers;
  TokenRange tokens;
  std::uint32_t prompt_tokens = 0;
  std::vector<std::uint32_t> chosen;  // layers of the chunk; empty: all
  std::uint32_t every = 1;            // tokens that are not zero
};

Result<Shape> ShapeNamed(std::string_view name) {
  if (name == "plain") return Shape{{2, Layer(2, 64, 64)}, {0, 6}, 40, {}};
  if (name == "window") {
    return Shape{{Layer(1, 64, 64), Layer(2, 32, 32, 8), Layer(2, 32, 32, 2)}, {48, 64}, 67, {}};
  }
  if (name == "latent") return Shape{{Layer(1, 100, 0, 0, RopeStyle::kNone)}, {7, 16}, 0, {}};
  if (name == "dim80") {
    return Shape{{Layer(3, 80, 80, 0, RopeStyle::kInterleaved)}, {0, 9}, 9, {}};
  }
  if (name == "uneven") return Shape{{5, Layer(1, 192, 128)}, {256, 263}, 1000, {2, 3}};
  if (name == "token") return Shape{{Layer(1, 8, 8)}, {0, 1}, 2, {}};
  if (name == "long") return Shape{{Layer(1, 16, 16)}, {0, 300}, 300, {}};
  if (name == "roped") {
    LayerGeometry neighbours = Layer(3, 6, 4, 0, RopeStyle::kInterleaved);
    neighbours.rope_theta = 500000.0F;
    return Shape{
        {Layer(2, 8, 6), neighbours, Layer(1, 8, 8, 0, RopeStyle::kNone)}, {1000, 1014}, 1020, {}};
  }
  if (name == "cut") {
    return Shape{{Layer(1, 32, 0, 0, RopeStyle::kNone)}, {0, 17000}, 17000, {}, 512};
  }
  return MakeError(ErrorCode::kInvalidArgument, "no shape " + std::string(name));
}

// A bell of the integers -510..510: four bytes of a mixed counter, summed.
std::int32_t Bell(std::uint64_t counter) {
  std::uint64_t x = (counter + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  std::int32_t sum = -510;
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int32_t>((x >> (8 * i)) & 255);
  return sum;
}

// Quarters and small powers of two: exact in float32, rounded once to the dtype.
float Value(std::uint64_t seed, std::uint32_t token, std::uint32_t column) {
  if (column == 1) return 0.0F;
  if (column == 2) return 0.75F;
  const std::int32_t bell = Bell((seed << 40) + (std::uint64_t{token} << 20) + column);
  const auto scale = static_cast<float>(1 + column * 5 % 7);
  const float outlier = column == 5 ? 32.0F : 1.0F;
  return static_cast<float>(bell) * scale * outlier / 1024.0F;
}

void Store(float value, DType dtype, std::byte* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  if (dtype == DType::kUint8) {
    *to = static_cast<std::byte>(static_cast<int>(value * 8.0F) & 0xFF);
    return;
  }
  (void)FromFloat(dtype, {&value, 1}, {to, DTypeBytes(dtype)});
}

void Fill(const PlaneView& plane, std::uint64_t seed, std::uint32_t every) {
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    const bool zero = token % every != 0;
    for (std::uint32_t head = 0; head < plane.heads; ++head) {
      for (std::uint32_t d = 0; d < plane.dim; ++d) {
        Store(zero ? 0.0F : Value(seed, token, head * plane.dim + d), plane.dtype,
              plane.at(token, head, d));
      }
    }
  }
}

ChannelStatistics Statistics(std::uint32_t columns) {
  ChannelStatistics statistics;
  for (std::uint32_t c = 0; c < columns; ++c) {
    statistics.mean.push_back(static_cast<float>(c * 3 % 11) / 8.0F - 0.5F);
    statistics.scale.push_back(static_cast<float>(1 + c * 5 % 7) / 8.0F);
  }
  return statistics;
}

// Each symbol has its share, one of them what is left.
std::array<std::uint16_t, 256> Frequencies(std::uint32_t alphabet, std::uint32_t peak) {
  std::array<std::uint16_t, 256> frequencies{};
  std::uint16_t left = 4096;
  for (std::uint32_t s = 0; s < alphabet; ++s) {
    frequencies[s] = static_cast<std::uint16_t>(40 + 20 * (s % 3));
    left = static_cast<std::uint16_t>(left - frequencies[s]);
  }
  frequencies[peak] = static_cast<std::uint16_t>(frequencies[peak] + left);
  return frequencies;
}

constexpr std::uint32_t kMostColumns = 32;

// KLT and queries of every plane and layer, and what the transform chain needs; the artefacts of
// larger shapes lack them.
void AddModelSections(const KvGeometry& geometry, CalibrationArtefact::Contents& contents) {
  for (const LayerGeometry& layer : geometry.layers) {
    for (const std::uint32_t dim : {layer.k_dim, layer.v_dim}) {
      if (layer.kv_heads * dim > kMostColumns) return;
      contents.klt_heads.push_back(SampleKlt(layer.kv_heads * dim, dim));
      contents.klt_joint.push_back(SampleKlt(layer.kv_heads * dim, layer.kv_heads * dim));
    }
    contents.query_statistics.push_back(SampleQueries(2 * layer.kv_heads, layer.k_dim));
  }
  AddTransformSample(kMostColumns, contents);
}

}  // namespace

Result<SampleChunk> MakeSampleChunk(std::string_view name, DType dtype) {
  KVSERVE_ASSIGN(const Shape shape, ShapeNamed(name));
  const KvGeometry geometry{dtype, shape.layers};
  SampleChunk chunk;
  chunk.prompt_tokens = shape.prompt_tokens;
  std::vector<KvBuffer::LayerTokens> layers;
  for (std::uint32_t i = 0; i < geometry.layers.size(); ++i) {
    const bool wanted = shape.chosen.empty() || i == shape.chosen[0] || i == shape.chosen[1];
    if (!wanted) continue;
    layers.push_back({i, TokensHeld(geometry.layers[i], shape.tokens, shape.prompt_tokens)});
  }
  KVSERVE_TRY(chunk.buffer.Resize(geometry, shape.tokens, layers));
  for (const auto& layer : chunk.buffer.view().layers) {
    Fill(layer.k, 2 * layer.layer, shape.every);
    if (layer.v.data != nullptr) Fill(layer.v, 2 * layer.layer + 1, shape.every);
  }
  return chunk;
}

Result<std::vector<std::byte>> MakeSampleCalibration(const KvGeometry& geometry, bool compact) {
  CalibrationArtefact::Contents contents;
  for (std::uint8_t i = 0; i < 16; ++i) contents.model.bytes[i] = static_cast<std::uint8_t>(16 + i);
  contents.geometry = geometry;
  contents.tokens = 1000;
  contents.source = "made up";
  for (const LayerGeometry& layer : geometry.layers) {
    contents.statistics.push_back(Statistics(layer.kv_heads * layer.k_dim));
    contents.statistics.push_back(Statistics(layer.kv_heads * layer.v_dim));
    const auto index = static_cast<std::uint32_t>(contents.head_scores.size());
    contents.head_scores.push_back(SampleHeadScores(index, layer.kv_heads));
  }
  AddModelSections(geometry, contents);
  if (compact) MakeCompact(contents);
  for (const std::uint32_t alphabet : {8U, 16U}) {
    contents.entropy.push_back(
        {alphabet, {Frequencies(alphabet, alphabet / 2), Frequencies(alphabet, 1)}});
  }
  return FormatCalibration(contents);
}

}  // namespace kvserve::testing
