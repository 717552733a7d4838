// Planes of a cache as float32 and back: any strides, fp16, bf16 and fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvserve/view.h"

namespace kvserve {

// Copies a plane to contiguous float32 [token, head, dim], exactly. `out` has plane.values()
// floats.
void LoadFloats(const ConstPlaneView& plane, std::span<float> out);

// Rounds float32 [token, head, dim] to the plane's dtype, to nearest even. Magnitudes beyond the
// dtype's largest finite value (65504 for fp16), infinity included, become that value. False, and
// nothing is stored, when a value is NaN.
[[nodiscard]] bool StoreFloats(std::span<const float> values, const PlaneView& plane);

// The same for the tokens [first_token, first_token + tokens) of a plane, in one pass.
// LoadRows returns whether all values are finite. StoreRows returns false when a value is NaN; some
// of the rows are stored nevertheless.
[[nodiscard]] bool LoadRows(const ConstPlaneView& plane, std::uint32_t first_token,
                            std::uint32_t tokens, std::span<float> out);
[[nodiscard]] bool StoreRows(std::span<const float> values, const PlaneView& plane,
                             std::uint32_t first_token, std::uint32_t tokens);

// Asks for the memory of such rows ahead of LoadRows or StoreRows, which otherwise wait for it:
// work between two tiles lets the hardware forget the stream. Rows beyond the plane are left out.
void FetchRows(const ConstPlaneView& plane, std::uint32_t first_token, std::uint32_t tokens);
void FetchRows(const PlaneView& plane, std::uint32_t first_token, std::uint32_t tokens);

// The largest magnitude that a transform may give: whatever a decoder makes of such coefficients
// and their quantization error, sums of them stay finite, so that no NaN comes out.
inline constexpr float kLargestCoefficient = 0x1p100F;

// No magnitude is above kLargestCoefficient, and nothing is NaN.
[[nodiscard]] bool AllBounded(std::span<const float> values);
// Index of the first that is.
[[nodiscard]] std::optional<std::size_t> FindUnbounded(std::span<const float> values);

// Index of the first NaN or infinity.
[[nodiscard]] std::optional<std::size_t> FindNonFinite(std::span<const float> values);

}  // namespace kvserve
