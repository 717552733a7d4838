// Stages and settings chosen by a fuzzer's bytes. Choices name a stage by its pinned id, so that a
// new stage changes no input's meaning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/stage.h"

namespace kvserve::fuzzing {

// An input that is taken from the front; zeros follow its end.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  std::span<const std::uint8_t> Take(std::size_t size) {
    const auto part = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return part;
  }
  [[nodiscard]] std::span<const std::uint8_t> rest() const { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

struct ChosenStage {
  const StageEntry* entry = nullptr;
  Settings settings;
};

// A stage of this kind, from: u8 low byte of its id (of an unknown one: the next stage's); u8
// version, 0: the newest; u8 number of parameter bytes and those, in ascending id order, each 0:
// the default, 1: the least, 2: the largest, else something between. The environment variable
// KVSERVE_FUZZ_STAGE (its name, or "codec-none") holds all inputs to one stage; then there is none
// of another kind.
[[nodiscard]] std::optional<ChosenStage> ChooseStage(StageKind kind, Choices& choices);

// The bytes that ChooseStage reads as this stage in its newest version with these parameter bytes.
[[nodiscard]] std::vector<std::uint8_t> StageBytes(const StageInfo& info,
                                                   std::span<const std::uint8_t> parameters = {});

// Scratch memory that is kept between inputs.
[[nodiscard]] Arena& SharedArena();
// What a codec gets: that memory, taken back, a thread, and an artefact with tables for every
// alphabet.
[[nodiscard]] FrameContext CodecContext();

}  // namespace kvserve::fuzzing
