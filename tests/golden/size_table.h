// sizes.csv: bytes and error of real KV by chain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kvserve/view.h"

namespace kvserve::testing {

struct SizeRow {
  std::uint64_t raw_bytes = 0;
  std::uint64_t wire_bytes = 0;
  double k_rms_relative = 0.0;
  double v_rms_relative = 0.0;
};
using SizeRows = std::map<std::string, SizeRow>;  // by profile

// Every chain that the stage table gives with its defaults: each quantizer with each codec, bare or
// behind one transform; and the published settings. Combinations that the chain refuses are left
// out, and so are stages that need a calibration artefact.
[[nodiscard]] std::vector<std::string> SizeChains();

// Encodes and decodes `view` as one frame by each of the chains. Chains that refuse its dtype are
// left out; any other failure is a test failure.
[[nodiscard]] SizeRows MeasureSizes(const ConstKvView& view);

// The rows of one data set; the others stay what they are. A missing file has none.
[[nodiscard]] SizeRows ReadSizes(const std::filesystem::path& file, const std::string& data);
void WriteSizes(const std::filesystem::path& file, const std::string& data, const SizeRows& rows);

// How far rows may be from the recorded ones.
struct SizeTolerance {
  double bytes = 0.0;          // share
  double foreign_bytes = 0.0;  // of chains whose codec is another library's
  double error = 0.0;          // share
};
// Fails for each difference. KVSERVE_RECORD_GOLDEN records first.
void CheckSizes(const std::filesystem::path& file, const std::string& data, const SizeRows& rows,
                const SizeTolerance& tolerance);

}  // namespace kvserve::testing
