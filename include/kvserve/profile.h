// A profile: the chain of stages that turns KV into wire bytes, with every parameter set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvserve {

// Kind of a stage; the order of a chain is selectors, transforms, one quantizer, one codec.
enum class StageKind : std::uint8_t { kSelector = 1, kTransform = 2, kQuantizer = 3, kCodec = 4 };

// One parameter. `id` is pinned by the stage's schema. Integers, booleans (0/1) and choices (index)
// are exact; magnitudes up to 2^53.
struct ParameterValue {
  std::uint8_t id = 0;
  double value = 0.0;
  friend bool operator==(const ParameterValue&, const ParameterValue&) = default;
};

// One stage with all of its parameters in ascending id order (none left to a default).
struct StageSpec {
  std::uint16_t id = 0;
  std::uint8_t version = 0;
  std::vector<ParameterValue> parameters;
  friend bool operator==(const StageSpec&, const StageSpec&) = default;
};

struct Profile {
  std::string name;               // canonical short form, or the name of a preset
  std::vector<StageSpec> stages;  // selectors, transforms, quantizer, codec
};

}  // namespace kvserve
