// What the tests of `uniform` share: a plane with the stage's parameters, and the stage run over
// it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/settings.h"
#include "pipeline/testing/plane_run.h"

namespace kvserve {

const StageEntry& UniformStage();

namespace testing {

struct PlaneSetup {
  std::uint32_t tokens = 1, heads = 1, dim = 1, first_token = 16;
  PlaneKind kind = PlaneKind::kKey;
  DType dtype = DType::kFloat16;
  double levels = 16, axis = 0, group = 64, raw_first = 1;
  double range = 0, step = 1, dead_zone = 0, reconstruct = 0;
  double block = 0, half = 0;  // group_tokens, grids
  [[nodiscard]] PlaneCase plane() const { return {tokens, heads, dim, first_token, kind, dtype}; }
  [[nodiscard]] std::string text() const {
    return "tokens " + std::to_string(tokens) + " heads " + std::to_string(heads) + " dim " +
           std::to_string(dim) + " levels " + std::to_string(levels) + " axis " +
           std::to_string(axis) + " group " + std::to_string(group) + " range " +
           std::to_string(range) + " dead_zone " + std::to_string(dead_zone) + " reconstruct " +
           std::to_string(reconstruct);
  }
};

using Decoded = PlaneRun::Coded;

class UniformTest : public ::testing::Test {
 protected:
  Decoded Run(const PlaneSetup& setup, const std::vector<float>& values) {
    return run_.Whole(*TryMake(setup).value(), setup.plane(), values);
  }
  Decoded RunTiled(const PlaneSetup& setup, const std::vector<float>& values, std::uint32_t tile) {
    return run_.Tiled(*TryMake(setup).value(), setup.plane(), values, tile);
  }
  Status Dequantize(const PlaneSetup& setup, std::span<const std::byte> side) {
    return run_.Dequantize(*TryMake(setup).value(), setup.plane(), side);
  }
  static Error MakeError(const PlaneSetup& setup) {
    const auto made = TryMake(setup);
    return made ? Error{} : made.error();
  }
  [[nodiscard]] std::size_t arena_bytes() const { return run_.arena_bytes(); }

 private:
  static Result<std::unique_ptr<Quantizer>> TryMake(const PlaneSetup& setup) {
    const std::vector<ParameterValue> parameters = {
        {1, setup.levels},     {2, setup.levels},       {3, setup.axis},
        {4, setup.axis},       {5, setup.group},        {6, setup.group},
        {7, setup.raw_first},  {8, setup.range},        {9, setup.range},
        {10, setup.step},      {11, setup.step},        {12, setup.dead_zone},
        {13, setup.dead_zone}, {14, setup.reconstruct}, {15, setup.reconstruct},
        {16, setup.block},     {17, setup.block},       {18, setup.half}};
    const auto settings = CheckedSettings(*UniformStage().info, UniformStage().info->version,
                                          parameters, ErrorCode::kInternal);
    return UniformStage().make_quantizer(settings.value());
  }

  PlaneRun run_;
};

}  // namespace testing
}  // namespace kvserve
