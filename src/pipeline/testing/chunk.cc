#include "pipeline/testing/chunk.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/split_mix.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve::testing {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::uint64_t Bits() { return random_.Next(); }
  // Roughly normal, variance 1.
  float Normal() {
    double sum = 0.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(Bits() >> 40) / 16777216.0;
    return static_cast<float>(sum - 6.0);
  }

 private:
  SplitMix64 random_;
};

KvBuffer Laid(const KvGeometry& geometry, TokenRange tokens, std::uint32_t total_tokens) {
  KvBuffer buffer;
  const auto status =
      buffer.Resize(geometry, tokens, total_tokens == 0 ? tokens.end : total_tokens);
  if (!status) throw std::invalid_argument(status.error().message);
  return buffer;
}

}  // namespace

KvGeometry MakeGeometry(DType dtype, const std::vector<LayerShape>& layers) {
  KvGeometry geometry;
  geometry.dtype = dtype;
  for (const LayerShape& shape : layers) {
    LayerGeometry layer;
    layer.kv_heads = shape.heads;
    layer.k_dim = shape.k_dim;
    layer.v_dim = shape.v_dim;
    layer.window_tokens = shape.window_tokens;
    if (shape.k_dim % 2 == 0) {
      layer.rope_style = shape.k_dim % 32 == 0 ? RopeStyle::kHalves : RopeStyle::kInterleaved;
      layer.rope_theta = 10000.0F;
    }
    geometry.layers.push_back(layer);
  }
  return geometry;
}

KvBuffer MakeChunk(const KvGeometry& geometry, TokenRange tokens, std::uint32_t total_tokens,
                   std::uint32_t seed) {
  KvBuffer buffer = Laid(geometry, tokens, total_tokens);
  Random noise(seed * 7919ULL + tokens.begin);
  for (const auto& plane : CodingOrder(buffer.view())) {
    std::vector<float> values(plane.view.values());
    const std::size_t columns = std::size_t{plane.view.heads} * plane.view.dim;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t token = plane.tokens.begin + i / columns;
      Random base((token * 1315423911ULL + i % columns) ^ seed);
      const float loudness = token % 5 == 3 ? 4.0F : 1.0F;
      const float scale = i % columns % 7 == 2 ? 6.0F : 1.0F;
      values[i] = loudness * scale * (base.Normal() + 0.1F * noise.Normal());
    }
    if (!StoreFloats(values, plane.view)) throw std::invalid_argument("a value is NaN");
  }
  return buffer;
}

KvBuffer MakeRandomBits(const KvGeometry& geometry, TokenRange tokens, std::uint32_t seed) {
  KvBuffer buffer = Laid(geometry, tokens, tokens.end);
  Random random(seed);
  for (const auto& plane : CodingOrder(buffer.view())) {
    const std::size_t bytes = plane.view.values() * DTypeBytes(plane.view.dtype);
    for (std::size_t i = 0; i < bytes; ++i) {
      plane.view.data[i] = static_cast<std::byte>(random.Bits());
    }
  }
  return buffer;
}

StridedChunk::StridedChunk(const ConstKvView& source, Layout layout, bool copy) {
  view_.geometry = source.geometry;
  view_.tokens = source.tokens;
  const auto relay = [&](const ConstPlaneView& from) {
    PlaneView to;
    to.dtype = from.dtype;
    to.tokens = from.tokens;
    to.heads = from.heads;
    to.dim = from.dim;
    if (layout == Layout::kTransposed) {
      to.token_stride = 2;
      to.dim_stride = 2 * std::int64_t{from.tokens} + 2;
      to.head_stride = to.dim_stride * from.dim;
    } else {
      to.head_stride = from.dim + (layout == Layout::kHeadGaps ? 3 : 0);
      to.token_stride = to.head_stride * from.heads + 5;
    }
    const std::size_t size = DTypeBytes(from.dtype);
    const auto elements =
        to.token_stride * from.tokens + to.head_stride * from.heads + to.dim_stride * from.dim;
    storage_.emplace_back(static_cast<std::size_t>(elements) * size, std::byte{0xA5});
    to.data = storage_.back().data();
    for (std::uint32_t t = 0; copy && t < from.tokens; ++t) {
      for (std::uint32_t h = 0; h < from.heads; ++h) {
        for (std::uint32_t d = 0; d < from.dim; ++d) {
          std::memcpy(to.at(t, h, d), from.at(t, h, d), size);
        }
      }
    }
    return to;
  };
  for (const auto& layer : source.layers) {
    LayerView entry;
    entry.layer = layer.layer;
    entry.tokens = layer.tokens;
    entry.k = relay(layer.k);
    if (!source.geometry->layers[layer.layer].single_plane()) entry.v = relay(layer.v);
    view_.layers.push_back(entry);
  }
}

ConstKvView StridedChunk::const_view() const {
  return AsConst(view_);
}

std::vector<float> PlaneValues(const ConstPlaneView& plane) {
  std::vector<float> values(plane.values());
  LoadFloats(plane, values);
  return values;
}

void SetValue(const PlaneView& plane, std::uint32_t token, std::uint32_t head, std::uint32_t d,
              float value) {
  if (plane.dtype == DType::kFloat32) {
    std::memcpy(plane.at(token, head, d), &value, sizeof(value));
    return;
  }
  // The upper half of a float32 is a bfloat16; of a float16 only infinity and NaN are needed.
  std::uint16_t bits = 0x7E00;
  if (std::isinf(value)) bits = value < 0 ? 0xFC00 : 0x7C00;
  if (plane.dtype == DType::kBFloat16) {
    std::uint32_t whole = 0;
    std::memcpy(&whole, &value, sizeof(whole));
    bits = static_cast<std::uint16_t>(whole >> 16);
  }
  std::memcpy(plane.at(token, head, d), &bits, sizeof(bits));
}

std::string Difference(const ConstKvView& a, const ConstKvView& b) {
  const auto left = CodingOrder(a);
  const auto right = CodingOrder(b);
  if (left.size() != right.size()) return "different numbers of planes";
  for (std::size_t p = 0; p < left.size(); ++p) {
    const std::string where = PlaneName(left[p].layer, left[p].kind);
    const auto& x = left[p].view;
    const auto& y = right[p].view;
    if (left[p].layer != right[p].layer || left[p].tokens != right[p].tokens ||
        x.heads != y.heads || x.dim != y.dim || x.dtype != y.dtype) {
      return where + ": different shapes";
    }
    for (std::uint32_t t = 0; t < x.tokens; ++t) {
      for (std::uint32_t h = 0; h < x.heads; ++h) {
        for (std::uint32_t d = 0; d < x.dim; ++d) {
          if (std::memcmp(x.at(t, h, d), y.at(t, h, d), DTypeBytes(x.dtype)) != 0) {
            return where + ": token " + std::to_string(t) + " head " + std::to_string(h) +
                   " channel " + std::to_string(d);
          }
        }
      }
    }
  }
  return "";
}

ConstKvView AsConst(const KvView& view) {
  const auto plane = [](const PlaneView& from) {
    return ConstPlaneView{from.data,         from.dtype,       from.device,
                          from.tokens,       from.heads,       from.dim,
                          from.token_stride, from.head_stride, from.dim_stride};
  };
  ConstKvView result;
  result.geometry = view.geometry;
  result.tokens = view.tokens;
  for (const auto& layer : view.layers) {
    result.layers.push_back({layer.layer, layer.tokens, plane(layer.k), plane(layer.v)});
  }
  return result;
}

}  // namespace kvserve::testing
