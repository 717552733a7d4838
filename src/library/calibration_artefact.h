// The contents of a calibration artefact: statistics per channel and entropy tables per model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/geometry.h"

namespace kvserve {

// Per channel of one plane over the calibration texts, on the cache's values (keys after RoPE).
struct ChannelStatistics {
  std::vector<float> mean;   // [head * dim]
  std::vector<float> scale;  // [head * dim] standard deviation, positive and finite
};

// 12-bit frequencies of up to 64 classes for one alphabet, most useful first: a coder picks one per
// plane instead of sending a table. Every symbol of the alphabet has a frequency of at least 1.
struct EntropyClasses {
  std::uint32_t alphabet = 0;                               // 2..256
  std::vector<std::array<std::uint16_t, 256>> frequencies;  // [class][symbol], sums are 4096
};

class CalibrationArtefact {
 public:
  struct Contents {
    Fingerprint model;
    KvGeometry geometry;
    std::uint64_t tokens = 0;                   // calibrated on
    std::string source;                         // names of the data, for people
    std::vector<ChannelStatistics> statistics;  // [2 * layer + kind]; empty vectors: not there
    std::vector<EntropyClasses> entropy;        // ascending alphabets
  };

  CalibrationArtefact(Contents contents, Fingerprint fingerprint)
      : contents_(std::move(contents)), fingerprint_(fingerprint) {}

  [[nodiscard]] const Fingerprint& fingerprint() const { return fingerprint_; }
  [[nodiscard]] const Contents& contents() const { return contents_; }
  // Null when the artefact has none for this plane.
  [[nodiscard]] const ChannelStatistics* statistics(std::uint32_t layer, PlaneKind kind) const;
  // Null when it has none for this alphabet.
  [[nodiscard]] const EntropyClasses* entropy(std::uint32_t alphabet) const;

 private:
  Contents contents_;
  Fingerprint fingerprint_;
};

}  // namespace kvserve
