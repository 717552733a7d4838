// Non-owning views of KV tensors in host or device memory, and an owning host buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvserve/geometry.h"

namespace kvserve {

enum class Device : std::uint8_t { kHost = 0, kCuda = 1 };

// Opaque execution stream of the device (cudaStream_t on CUDA); null on the host. Work on a device
// view is ordered on its stream and nothing synchronises behind the caller's back.
struct Stream {
  void* handle = nullptr;
};

// One plane (K or V of one layer), axes [token, head, dim]. Strides are in elements and may be
// anything (a transposed K of a paged block has dim_stride > 1); `data` is aligned to the element.
template <typename Byte>
struct BasicPlaneView {
  Byte* data = nullptr;
  DType dtype = DType::kFloat16;
  Device device = Device::kHost;
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t dim = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t dim_stride = 1;

  [[nodiscard]] bool contiguous() const {
    return dim_stride == 1 && head_stride == dim &&
           token_stride == static_cast<std::int64_t>(heads) * dim;
  }
  [[nodiscard]] std::uint64_t values() const { return std::uint64_t{tokens} * heads * dim; }
  // Element (token, head, dim) as raw bytes; no bounds check.
  [[nodiscard]] Byte* at(std::uint32_t token, std::uint32_t head, std::uint32_t d) const {
    const std::int64_t index = token * token_stride + head * head_stride + d * dim_stride;
    return data + index * static_cast<std::int64_t>(DTypeBytes(dtype));
  }
};
using PlaneView = BasicPlaneView<std::byte>;
using ConstPlaneView = BasicPlaneView<const std::byte>;

// One layer of a chunk: which layer of the model, which tokens of the request it holds (a window
// layer may hold fewer than the chunk, or none), and its planes. `v` has no data when single-plane.
template <typename Byte>
struct BasicLayerView {
  std::uint32_t layer = 0;
  TokenRange tokens;
  BasicPlaneView<Byte> k;
  BasicPlaneView<Byte> v;
};
using LayerView = BasicLayerView<std::byte>;
using ConstLayerView = BasicLayerView<const std::byte>;

// A chunk of tokens over some layers, in ascending layer order. `geometry` is the whole model's and
// outlives the view.
template <typename Byte>
struct BasicKvView {
  const KvGeometry* geometry = nullptr;
  TokenRange tokens;
  std::vector<BasicLayerView<Byte>> layers;
  Device device = Device::kHost;
  Stream stream;
};
using KvView = BasicKvView<std::byte>;
using ConstKvView = BasicKvView<const std::byte>;

// Checks shapes, dtype, token ranges and null data against the geometry. kInvalidArgument names the
// first fault.
[[nodiscard]] Status CheckView(const ConstKvView& view);

// Bytes of all planes in the cache dtype, of a view that CheckView accepts.
[[nodiscard]] std::uint64_t RawBytes(const ConstKvView& view);

// Copies every element, bit for bit, between host views of equal geometry, tokens and layers;
// strides may differ. The views do not overlap. kInvalidArgument for a view that CheckView refuses
// or when they differ, kUnsupported on a device; nothing was copied then.
[[nodiscard]] Status CopyKv(const ConstKvView& from, const KvView& to);

// The same memory, to be read only.
[[nodiscard]] ConstKvView ReadOnly(const KvView& view);

// Owning host storage of one chunk: planes contiguous [token, head, dim], 64-byte aligned, K then V
// per layer. Reused between chunks: Resize keeps capacity, and takes no memory for shapes that were
// there before. Not thread-safe.
class KvBuffer {
 public:
  KvBuffer() = default;
  KvBuffer(const KvBuffer& other);
  KvBuffer& operator=(const KvBuffer& other);
  KvBuffer(KvBuffer&& other) noexcept = default;
  KvBuffer& operator=(KvBuffer&& other) noexcept = default;
  ~KvBuffer() = default;

  struct LayerTokens {
    std::uint32_t layer = 0;
    TokenRange tokens;
  };

  // Lays out `layers` (ascending) of `geometry` (copied). Contents are unspecified afterwards.
  // kInvalidArgument for a bad geometry, range or order; kResourceExhausted above `max_bytes` or
  // without memory. An error changes nothing.
  [[nodiscard]] Status Resize(const KvGeometry& geometry, TokenRange tokens,
                              std::span<const LayerTokens> layers,
                              std::uint64_t max_bytes = UINT64_MAX);
  // All layers, each with the tokens it holds when the request ends at `total_tokens`.
  [[nodiscard]] Status Resize(const KvGeometry& geometry, TokenRange tokens,
                              std::uint32_t total_tokens);

  // Views are valid until the next Resize, move or destruction.
  [[nodiscard]] KvView view();
  [[nodiscard]] ConstKvView view() const;
  // The same into a view whose memory is kept.
  void ViewInto(KvView& view);
  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  [[nodiscard]] TokenRange tokens() const { return tokens_; }
  [[nodiscard]] std::uint64_t bytes() const { return used_bytes_; }

 private:
  template <typename Byte>
  void FillView(Byte* base, BasicKvView<Byte>& view) const;

  KvGeometry geometry_;
  TokenRange tokens_;
  std::vector<LayerTokens> layers_;
  std::vector<std::uint64_t> offsets_;    // [2 * layer index + plane]
  std::unique_ptr<std::byte[]> storage_;  // not initialised: a page costs memory once it is filled
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace kvserve
