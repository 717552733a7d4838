// Arrays of numbers and planes by their index, as several sections have them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_io.h"
#include "base/try.h"
#include "kvserve/geometry.h"
#include "library/transform_contents.h"

namespace kvserve {

// Values per token of plane [2 * layer + kind]; 0 where a layer has no V plane.
inline std::size_t PlaneColumns(const KvGeometry& geometry, std::size_t plane) {
  const LayerGeometry& layer = geometry.layers[plane / 2];
  return std::size_t{layer.kv_heads} * (plane % 2 == 0 ? layer.k_dim : layer.v_dim);
}

// Of one head.
inline std::size_t PlaneDim(const KvGeometry& geometry, std::size_t plane) {
  const LayerGeometry& layer = geometry.layers[plane / 2];
  return plane % 2 == 0 ? layer.k_dim : layer.v_dim;
}

inline std::string PlaneText(std::size_t plane) {
  return "layer " + std::to_string(plane / 2) + (plane % 2 == 0 ? " K: " : " V: ");
}

// Checks a list of planes [2 * layer + kind], of which at least one is `present`, by
// check(plane, p), and says which one is wrong.
template <typename Plane, typename Check>
Status CheckPlanes(const KvGeometry& geometry, const std::vector<Plane>& planes, bool present,
                   const Check& check) {
  if (planes.size() != 2 * geometry.layers.size() || !present) {
    return MakeError(ErrorCode::kCorruptData, "there is no plane, or not two for each layer");
  }
  for (std::size_t p = 0; p < planes.size(); ++p) {
    const Status status = check(planes[p], p);
    if (!status) {
      return MakeError(ErrorCode::kCorruptData, PlaneText(p) + status.error().message);
    }
  }
  return {};
}

// Nothing is allocated before the bytes are there. `count` below 2^60.
template <typename T>
Status ReadValues(ByteReader& in, std::size_t count, std::vector<T>& out) {
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(count * sizeof(T)));
  out.resize(count);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(out)).begin());
  return {};
}

inline Status ReadFloats(ByteReader& in, std::size_t count, std::vector<float>& out) {
  return ReadValues(in, count, out);
}

inline bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// What is wrong with a matrix of integers of so many bits; empty: nothing.
inline std::string MatrixFault(std::span<const std::int8_t> values, unsigned bits) {
  if (bits < kLeastMatrixBits || bits > kMostMatrixBits) {
    return std::to_string(bits) + " bits per value are not 2..8";
  }
  const int most = MostOf(bits);
  const auto wrong = std::find_if(values.begin(), values.end(), [most](std::int8_t value) {
    return value < -most || value > most;
  });
  if (wrong == values.end()) return {};
  return "a value of the matrix is " + std::to_string(*wrong);
}

// A flag in front of what may be there: 0 or 1.
inline Result<bool> ReadPresent(ByteReader& in) {
  KVSERVE_ASSIGN(const auto present, in.Get<std::uint8_t>());
  if (present > 1) return MakeError(ErrorCode::kCorruptData, "a flag is neither 0 nor 1");
  return present == 1;
}

}  // namespace kvserve
