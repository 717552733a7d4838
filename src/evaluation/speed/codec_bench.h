// The plan of `kvserve bench codec`: which profiles run on which frames with how many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluation/speed/codec_speed.h"
#include "evaluation/speed/kv_set.h"

namespace kvserve {

struct CodecCase {
  std::string name;  // as it was asked for; profile.name is the canonical form
  Profile profile;
  std::uint32_t frame_tokens = 0;  // kMaxTokens: the whole request
  std::vector<std::uint32_t> threads;
};

// The profile that the figures of merit are about.
inline constexpr const char* kHeadlineProfile = "hadamard|uniform:k_levels=16,v_levels=8|rans";

// None, LZ4 and zstd on the elements as they are, the lossless profile, and chains with the parts
// of the headline profile left out or exchanged. A name whose stages this build lacks is left out.
[[nodiscard]] std::vector<std::string> DefaultProfiles();

inline constexpr const char* kCalibratedProfile = "calibrated";

// Every profile with frames of 64, 128, 256 tokens and the whole request for the headline profile
// and lossless, 256 tokens for the others; 1 and 2 threads. `calibrated`: there is an artefact, so
// that kCalibratedProfile is one of them.
[[nodiscard]] std::vector<CodecCase> DefaultCases(bool calibrated = false);

// All combinations. An error is ParseProfile's.
[[nodiscard]] Result<std::vector<CodecCase>> CrossCases(std::span<const std::string> profiles,
                                                        std::span<const std::uint32_t> frame_tokens,
                                                        std::span<const std::uint32_t> threads);

struct CodecRow {
  std::string name;
  std::string profile;
  std::string data;
  DType dtype = DType::kFloat16;
  std::string isa;
  std::uint32_t threads = 0;
  std::uint32_t frame_tokens = 0;
  bool whole_request = false;  // one frame holds it
  KvError error;
  CodecSpeed speed;
};

struct BenchOptions {
  std::vector<std::string> isas;  // empty: the one in force
  double seconds = 0.3;           // as SpeedOptions
  // Profiles that refuse the data, or whose artefact is another model's, instead of failing.
  bool skip_unsupported = false;
  std::shared_ptr<const CalibrationArtefact> calibration;  // for profiles that need one
};

// Whether the machine and the build have them; errors as SetIsa's.
[[nodiscard]] Status CheckIsas(std::span<const std::string> isas);

// Gives one row after another. Frames longer than the request hold all of it, and are measured
// once. The instruction set is pinned for the process while this runs. An error names the case.
[[nodiscard]] Status RunCodecBench(const KvSet& data, std::span<const CodecCase> cases,
                                   const BenchOptions& options,
                                   const std::function<void(const CodecRow&)>& row);

}  // namespace kvserve
