#include "evaluation/speed/synthetic_kv.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/split_mix.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kOutlierEvery = 32;
constexpr float kOutlierScale = 8.0F;
constexpr float kOutlierMean = 3.0F;

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}

  // Mean 0, variance 1: four uniform 16-bit numbers of one draw.
  float Next() {
    const std::uint64_t bits = random_.Next();
    const auto sum = static_cast<std::int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                               ((bits >> 32) & 0xFFFF) + (bits >> 48));
    constexpr double kDeviation = 37837.2;  // sqrt(4 / 12) * 65536
    return static_cast<float>((sum - 131070) / kDeviation);
  }
  // Log-normal around 1.
  float Factor(float sigma) { return std::exp(sigma * Next()); }

 private:
  SplitMix64 random_;
};

// How the values of a plane are spread.
struct PlaneShape {
  bool key = false;
  float scale_sigma = 0.0F;
  float loudness_sigma = 0.0F;
  float memory = 0.0F;  // correlation of neighbouring tokens
  float sink = 1.0F;    // loudness of token 0
};
constexpr PlaneShape kKeys{true, 0.5F, 0.15F, 0.6F, 2.0F};
constexpr PlaneShape kValues{false, 0.3F, 0.35F, 0.3F, 0.1F};

struct Channels {
  std::vector<float> scale;
  std::vector<float> mean;
};

Channels MakeChannels(const PlaneShape& shape, std::size_t columns, float loudness, Noise& noise) {
  Channels channels{std::vector<float>(columns), std::vector<float>(columns)};
  for (std::size_t i = 0; i < columns; ++i) {
    float scale = loudness * noise.Factor(shape.scale_sigma);
    float mean = shape.key ? scale * noise.Next() : 0.0F;
    if (shape.key && i % kOutlierEvery == 5) {
      scale *= kOutlierScale;
      mean = std::copysign(kOutlierMean * scale, mean);
    }
    channels.scale[i] = scale;
    channels.mean[i] = mean;
  }
  return channels;
}

// Rotates a row of heads as the model does at this position.
void Rotate(const LayerGeometry& layer, std::uint32_t position, std::vector<float>& row) {
  const std::uint32_t half = layer.k_dim / 2;
  for (std::uint32_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(layer.rope_theta, -2.0 * i / layer.k_dim);
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    for (std::uint32_t head = 0; head < layer.kv_heads; ++head) {
      float& x = row[std::size_t{head} * layer.k_dim + i];
      float& y = row[std::size_t{head} * layer.k_dim + half + i];
      const float turned = x * cosine - y * sine;
      y = x * sine + y * cosine;
      x = turned;
    }
  }
}

void StoreRow(const std::vector<float>& row, std::byte* to) {
  for (const float value : row) {
    const std::uint16_t bits = FloatToBFloat16(value);
    std::memcpy(to, &bits, sizeof(bits));
    to += sizeof(bits);
  }
}

void FillPlane(const PlaneShape& shape, const LayerGeometry& layer, float loudness,
               std::uint64_t seed, const PlaneView& plane) {
  const std::size_t columns = std::size_t{plane.heads} * plane.dim;
  Noise noise(seed);
  const Channels channels = MakeChannels(shape, columns, loudness, noise);
  const float fresh = std::sqrt(1.0F - shape.memory * shape.memory);
  std::vector<float> state(columns);
  for (float& value : state) value = noise.Next();
  std::vector<float> row(columns);
  for (std::uint32_t token = 0; token < plane.tokens; ++token) {
    const float factor = (token == 0 ? shape.sink : 1.0F) * noise.Factor(shape.loudness_sigma);
    for (std::size_t i = 0; i < columns; ++i) {
      state[i] = shape.memory * state[i] + fresh * noise.Next();
      row[i] = factor * (channels.mean[i] + channels.scale[i] * state[i]);
    }
    if (shape.key) Rotate(layer, token, row);
    StoreRow(row, plane.at(token, 0, 0));
  }
}

}  // namespace

KvGeometry LlamaGeometry() {
  KvGeometry geometry;
  geometry.dtype = DType::kBFloat16;
  geometry.layers.assign(32, {.kv_heads = 8,
                              .k_dim = 128,
                              .v_dim = 128,
                              .rope_style = RopeStyle::kHalves,
                              .rope_theta = 500000.0F});
  return geometry;
}

Status MakeSyntheticKv(const KvGeometry& geometry, std::uint32_t tokens, KvBuffer& out) {
  if (geometry.dtype != DType::kBFloat16) {
    return MakeError(ErrorCode::kUnsupported, "synthetic KV is bfloat16");
  }
  KVSERVE_TRY(out.Resize(geometry, {0, tokens}, tokens));
  for (const LayerView& layer : out.view().layers) {
    const LayerGeometry& shape = geometry.layers[layer.layer];
    const float depth =
        static_cast<float>(layer.layer) / static_cast<float>(geometry.layers.size());
    const float loudness = std::exp(std::log(3.0F) * depth);
    FillPlane(kKeys, shape, loudness, 2 * layer.layer + 1, layer.k);
    if (!shape.single_plane()) FillPlane(kValues, shape, loudness, 2 * layer.layer + 2, layer.v);
  }
  return {};
}

}  // namespace kvserve
