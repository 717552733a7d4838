// Options of every command that encodes or decodes: how many threads, and which calibration.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "kvserve/codec.h"
#include "kvserve/error.h"

namespace kvserve::tool {

struct CodecArguments {
  std::uint32_t threads = 0;  // 0: all cores
  std::string calibration;    // empty: none
};

// --calib and --threads.
void AddCodecOptions(CLI::App& command, CodecArguments& arguments);
// --calib alone, for commands whose --threads are the engine's.
void AddCalibrationOption(CLI::App& command, std::string& path);

// --fallback, for commands that encode.
void AddFallbackOption(CLI::App& command, std::string& profile);

// Reads the artefact: the errors of LoadCalibration, with the path.
[[nodiscard]] Result<CodecOptions> LoadCodecOptions(const CodecArguments& arguments);
// No stages for an empty text. The errors of LoadProfile.
[[nodiscard]] Result<Profile> LoadFallback(const std::string& text);
// Null for an empty path.
[[nodiscard]] Result<std::shared_ptr<const CalibrationArtefact>> LoadArtefact(
    const std::string& path);

}  // namespace kvserve::tool
