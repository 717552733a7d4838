// KV chunks for tests: seeded values that look like a cache, and copies with other strides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvserve/view.h"

namespace kvserve::testing {

struct LayerShape {
  std::uint32_t heads = 1;
  std::uint32_t k_dim = 8;
  std::uint32_t v_dim = 8;
  std::uint32_t window_tokens = 0;
};
// Keys are rotated where k_dim is even: in halves for multiples of 32, else in neighbours.
[[nodiscard]] KvGeometry MakeGeometry(DType dtype, const std::vector<LayerShape>& layers);

// Every layer is a noisy copy of one base, tokens differ in loudness and channels in scale. The
// request ends at `total_tokens` (0: at tokens.end), which decides what window layers hold.
[[nodiscard]] KvBuffer MakeChunk(const KvGeometry& geometry, TokenRange tokens,
                                 std::uint32_t total_tokens = 0, std::uint32_t seed = 1);
// The same shapes with every byte random: NaN payloads, infinities and subnormals included.
[[nodiscard]] KvBuffer MakeRandomBits(const KvGeometry& geometry, TokenRange tokens,
                                      std::uint32_t seed = 1);

// Another layout of a chunk, with gaps: [head, dim, token] (keys of a paged block), or contiguous
// channels with gaps between tokens, or also between heads.
enum class Layout { kTransposed, kTokenGaps, kHeadGaps };
inline constexpr Layout kLayouts[] = {Layout::kTransposed, Layout::kTokenGaps, Layout::kHeadGaps};

class StridedChunk {
 public:
  explicit StridedChunk(const ConstKvView& source, Layout layout = Layout::kTransposed,
                        bool copy = true);
  [[nodiscard]] const KvView& view() const { return view_; }
  [[nodiscard]] ConstKvView const_view() const;

 private:
  std::vector<std::vector<std::byte>> storage_;
  KvView view_;
};

[[nodiscard]] std::vector<float> PlaneValues(const ConstPlaneView& plane);
void SetValue(const PlaneView& plane, std::uint32_t token, std::uint32_t head, std::uint32_t d,
              float value);

// Empty when both have the same shapes and element bits; else the first difference.
[[nodiscard]] std::string Difference(const ConstKvView& a, const ConstKvView& b);

[[nodiscard]] ConstKvView AsConst(const KvView& view);

}  // namespace kvserve::testing
