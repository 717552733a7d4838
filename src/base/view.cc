#include "kvserve/view.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::string Where(std::uint32_t layer, const char* plane) {
  return "layer " + std::to_string(layer) + " " + plane + ": ";
}

Status CheckPlane(const ConstPlaneView& plane, const ConstKvView& view, std::uint32_t layer,
                  const char* name, std::uint32_t tokens, std::uint32_t dim) {
  const auto& geometry = view.geometry->layers[layer];
  if (plane.dtype != view.geometry->dtype) {
    return MakeError(ErrorCode::kInvalidArgument, Where(layer, name) + "dtype " +
                                                      std::string(DTypeName(plane.dtype)) +
                                                      " differs from the cache's " +
                                                      std::string(DTypeName(view.geometry->dtype)));
  }
  if (plane.tokens != tokens || plane.heads != geometry.kv_heads || plane.dim != dim) {
    return MakeError(ErrorCode::kInvalidArgument,
                     Where(layer, name) + "shape [" + std::to_string(plane.tokens) + ", " +
                         std::to_string(plane.heads) + ", " + std::to_string(plane.dim) +
                         "] should be [" + std::to_string(tokens) + ", " +
                         std::to_string(geometry.kv_heads) + ", " + std::to_string(dim) + "]");
  }
  if (plane.device != view.device) {
    return MakeError(ErrorCode::kInvalidArgument, Where(layer, name) + "is on another device");
  }
  if (plane.data == nullptr && plane.values() > 0) {
    return MakeError(ErrorCode::kInvalidArgument, Where(layer, name) + "has no data");
  }
  return {};
}

std::string RangeText(TokenRange tokens) {
  return "[" + std::to_string(tokens.begin) + ", " + std::to_string(tokens.end) + ")";
}

Status CheckTokens(TokenRange tokens) {
  if (tokens.begin <= tokens.end && tokens.end <= kMaxTokens) return {};
  return MakeError(
      ErrorCode::kInvalidArgument,
      "token range " + RangeText(tokens) + " is not within 0.." + std::to_string(kMaxTokens));
}

// One entry of an ascending list of layers; moves `next_layer` behind it.
Status CheckLayer(std::uint32_t layer, TokenRange held, TokenRange chunk, std::size_t model_layers,
                  std::uint32_t& next_layer) {
  if (layer < next_layer || layer >= model_layers) {
    return MakeError(ErrorCode::kInvalidArgument, "layer " + std::to_string(layer) +
                                                      " is out of order or not among the model's " +
                                                      std::to_string(model_layers));
  }
  next_layer = layer + 1;
  if (held.begin < chunk.begin || held.end > chunk.end || held.end < held.begin) {
    return MakeError(ErrorCode::kInvalidArgument, Where(layer, "tokens") + RangeText(held) +
                                                      " is not inside the chunk's " +
                                                      RangeText(chunk));
  }
  return {};
}

template <typename Byte>
Byte* Aligned(Byte* base) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  return base + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

Status CheckView(const ConstKvView& view) {
  if (view.geometry == nullptr)
    return MakeError(ErrorCode::kInvalidArgument, "view has no geometry");
  KVSERVE_TRY(CheckGeometry(*view.geometry));
  KVSERVE_TRY(CheckTokens(view.tokens));
  std::uint32_t next_layer = 0;
  for (const auto& layer : view.layers) {
    KVSERVE_TRY(CheckLayer(layer.layer, layer.tokens, view.tokens, view.geometry->layers.size(),
                           next_layer));
    const auto& geometry = view.geometry->layers[layer.layer];
    const std::uint32_t tokens = layer.tokens.size();
    KVSERVE_TRY(CheckPlane(layer.k, view, layer.layer, "K", tokens, geometry.k_dim));
    if (!geometry.single_plane()) {
      KVSERVE_TRY(CheckPlane(layer.v, view, layer.layer, "V", tokens, geometry.v_dim));
    }
  }
  return {};
}

std::uint64_t RawBytes(const ConstKvView& view) {
  std::uint64_t bytes = 0;
  for (const auto& layer : view.layers) {
    bytes +=
        LayerBytes(view.geometry->layers[layer.layer], view.geometry->dtype, layer.tokens.size());
  }
  return bytes;
}

// Storage starts anywhere, so its bytes lie elsewhere behind another block's first aligned address.
KvBuffer::KvBuffer(const KvBuffer& other)
    : geometry_(other.geometry_),
      tokens_(other.tokens_),
      layers_(other.layers_),
      offsets_(other.offsets_),
      used_bytes_(other.used_bytes_) {
  if (other.storage_ == nullptr) return;
  capacity_bytes_ = used_bytes_ + kAlignment;
  storage_.reset(new std::byte[capacity_bytes_]);
  std::memcpy(Aligned(storage_.get()), Aligned(other.storage_.get()), used_bytes_);
}

KvBuffer& KvBuffer::operator=(const KvBuffer& other) {
  if (this != &other) *this = KvBuffer(other);
  return *this;
}

namespace {

// Bytes of a plane with what follows it up to the next boundary; nothing when they pass `most`.
std::optional<std::uint64_t> PlaneBytes(std::uint64_t values, DType dtype, std::uint64_t most) {
  const auto bytes = CheckedMul(values, DTypeBytes(dtype));
  if (!bytes || *bytes > most) return std::nullopt;
  const auto padded = CheckedAdd(*bytes, kAlignment - 1);
  if (!padded) return std::nullopt;
  return *padded / kAlignment * kAlignment;
}

// Calls place(offset) for K and V of every layer; the bytes of all, or nothing past `most`.
template <typename Place>
std::optional<std::uint64_t> LayOut(const KvGeometry& geometry,
                                    std::span<const KvBuffer::LayerTokens> layers,
                                    std::uint64_t most, const Place& place) {
  std::uint64_t total = 0;
  for (const auto& entry : layers) {
    const auto& layer = geometry.layers[entry.layer];
    const std::uint64_t rows = std::uint64_t{entry.tokens.size()} * layer.kv_heads;
    for (const std::uint32_t dim : {layer.k_dim, layer.v_dim}) {
      place(total);
      const auto bytes = PlaneBytes(rows * dim, geometry.dtype, most);
      const auto sum = bytes ? CheckedAdd(total, *bytes) : bytes;
      if (!sum || *sum > most) return std::nullopt;
      total = *sum;
    }
  }
  return total;
}

}  // namespace

Status KvBuffer::Resize(const KvGeometry& geometry, TokenRange tokens,
                        std::span<const LayerTokens> layers, std::uint64_t max_bytes) {
  KVSERVE_TRY(CheckGeometry(geometry));
  KVSERVE_TRY(CheckTokens(tokens));
  std::uint32_t next_layer = 0;
  for (const auto& entry : layers) {
    KVSERVE_TRY(CheckLayer(entry.layer, entry.tokens, tokens, geometry.layers.size(), next_layer));
  }
  const auto total = LayOut(geometry, layers, max_bytes, [](std::uint64_t) {});
  if (!total) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "KV chunk needs more than " + std::to_string(max_bytes) + " bytes");
  }
  if (*total > static_cast<std::uint64_t>(PTRDIFF_MAX) - kAlignment) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "a KV chunk of " + std::to_string(*total) + " bytes is beyond any memory");
  }
  if (storage_ == nullptr || *total + kAlignment > capacity_bytes_) {
    try {
      std::unique_ptr<std::byte[]> larger(new std::byte[*total + kAlignment]);
      storage_ = std::move(larger);
    } catch (const std::bad_alloc&) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "no memory for a KV chunk of " + std::to_string(*total) + " bytes");
    }
    capacity_bytes_ = *total + kAlignment;
  }
  if (&geometry_ != &geometry) geometry_ = geometry;
  tokens_ = tokens;
  layers_.assign(layers.begin(), layers.end());
  offsets_.clear();
  (void)LayOut(geometry_, layers_, max_bytes,
               [this](std::uint64_t offset) { offsets_.push_back(offset); });
  used_bytes_ = *total;
  return {};
}

Status KvBuffer::Resize(const KvGeometry& geometry, TokenRange tokens, std::uint32_t total_tokens) {
  KVSERVE_TRY(CheckTokens(tokens));
  std::vector<LayerTokens> layers;
  layers.reserve(geometry.layers.size());
  for (std::uint32_t i = 0; i < geometry.layers.size(); ++i) {
    layers.push_back({i, TokensHeld(geometry.layers[i], tokens, total_tokens)});
  }
  return Resize(geometry, tokens, layers);
}

template <typename Byte>
void KvBuffer::FillView(Byte* base, BasicKvView<Byte>& view) const {
  base = Aligned(base);
  view.geometry = &geometry_;
  view.tokens = tokens_;
  view.device = Device::kHost;
  view.stream = {};
  view.layers.clear();
  view.layers.reserve(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = geometry_.layers[layers_[i].layer];
    const auto plane = [&](std::uint64_t offset, std::uint32_t dim) {
      BasicPlaneView<Byte> result;
      result.data = base + offset;
      result.dtype = geometry_.dtype;
      result.tokens = layers_[i].tokens.size();
      result.heads = layer.kv_heads;
      result.dim = dim;
      result.head_stride = dim;
      result.token_stride = std::int64_t{layer.kv_heads} * dim;
      return result;
    };
    BasicLayerView<Byte> entry;
    entry.layer = layers_[i].layer;
    entry.tokens = layers_[i].tokens;
    entry.k = plane(offsets_[2 * i], layer.k_dim);
    if (!layer.single_plane()) entry.v = plane(offsets_[2 * i + 1], layer.v_dim);
    view.layers.push_back(entry);
  }
}

KvView KvBuffer::view() {
  KvView view;
  FillView<std::byte>(storage_.get(), view);
  return view;
}

ConstKvView KvBuffer::view() const {
  ConstKvView view;
  FillView<const std::byte>(storage_.get(), view);
  return view;
}

void KvBuffer::ViewInto(KvView& view) {
  FillView<std::byte>(storage_.get(), view);
}

}  // namespace kvserve
