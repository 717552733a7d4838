#include <utility>

#include "kernels/rotate/rope_series.h"
#include "kernels/rotate/rotate.h"

namespace kvserve {
namespace {

struct CosineSine {
  float cosine = 1.0F;
  float sine = 0.0F;
};

CosineSine At(std::uint64_t phase) {
  const std::uint64_t quarter = (phase + (std::uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<std::int64_t>(phase - (quarter << 62)) >> kPhaseShift;
  const double z = static_cast<double>(rest) * kRadians;
  const double w = z * z;
  double sine = kSine[0];
  for (std::size_t i = 1; i < std::size(kSine); ++i) sine = sine * w + kSine[i];
  sine = sine * z;
  double cosine = kCosine[0];
  for (std::size_t i = 1; i < std::size(kCosine); ++i) cosine = cosine * w + kCosine[i];
  switch (quarter) {
    case 1: return {static_cast<float>(-sine), static_cast<float>(cosine)};
    case 2: return {static_cast<float>(-cosine), static_cast<float>(-sine)};
    case 3: return {static_cast<float>(sine), static_cast<float>(-cosine)};
    default: return {static_cast<float>(cosine), static_cast<float>(sine)};
  }
}

template <typename Turn>
void ForEachPair(std::span<float> values, const RopeRows& rope, const Turn& turn) {
  const std::size_t columns = std::size_t{rope.heads} * rope.dim;
  const bool halves = rope.style == RopeStyle::kHalves;
  std::uint64_t position = rope.first_position;
  for (std::size_t row = 0; row < values.size(); row += columns, ++position) {
    for (std::size_t i = 0; i < rope.dim / 2; ++i) {
      const CosineSine at = At(position * rope.turns[i]);
      for (std::size_t head = row; head < row + columns; head += rope.dim) {
        float& a = values[head + (halves ? i : 2 * i)];
        float& b = values[head + (halves ? i + rope.dim / 2 : 2 * i + 1)];
        turn(a, b, at);
      }
    }
  }
}

}  // namespace

void UndoRopeRef(std::span<float> values, const RopeRows& rope) {
  ForEachPair(values, rope, [](float& a, float& b, CosineSine at) {
    const float turned = a * at.cosine + b * at.sine;
    b = b * at.cosine - a * at.sine;
    a = turned;
  });
}

void ApplyRopeRef(std::span<float> values, const RopeRows& rope) {
  ForEachPair(values, rope, [](float& a, float& b, CosineSine at) {
    const float turned = a * at.cosine - b * at.sine;
    b = b * at.cosine + a * at.sine;
    a = turned;
  });
}

}  // namespace kvserve
