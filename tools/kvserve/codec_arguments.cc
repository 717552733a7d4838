#include "codec_arguments.h"

#include <algorithm>
#include <thread>

#include "base/try.h"
#include "profile_argument.h"

namespace kvserve::tool {
namespace {

constexpr std::uint32_t kMostThreads = 256;  // of CodecOptions

}  // namespace

void AddCalibrationOption(CLI::App& command, std::string& path) {
  command.add_option("--calib", path,
                     "Calibration artefact (.calib), for profiles and frames that need one");
}

void AddFallbackOption(CLI::App& command, std::string& profile) {
  command.add_option("--fallback", profile,
                     "Profile without calibration for frames that are unlike the artefact's texts; "
                     "default: none, all frames are taken as they are");
}

void AddCodecOptions(CLI::App& command, CodecArguments& arguments) {
  AddCalibrationOption(command, arguments.calibration);
  command.add_option("--threads", arguments.threads, "Threads that code a frame; 0: all cores")
      ->check(CLI::Range(0U, kMostThreads))
      ->capture_default_str();
}

Result<CodecOptions> LoadCodecOptions(const CodecArguments& arguments) {
  CodecOptions options;
  options.threads = arguments.threads;
  if (options.threads == 0) {
    options.threads = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  }
  KVSERVE_ASSIGN(options.calibration, LoadArtefact(arguments.calibration));
  return options;
}

Result<Profile> LoadFallback(const std::string& text) {
  if (text.empty()) return Profile{};
  return LoadProfile(text);
}

Result<std::shared_ptr<const CalibrationArtefact>> LoadArtefact(const std::string& path) {
  if (path.empty()) return nullptr;
  return LoadCalibration(path);
}

}  // namespace kvserve::tool
