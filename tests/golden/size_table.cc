#include "golden/size_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "evaluation/speed/kv_error.h"
#include "kvserve/codec.h"
#include "stages/registry.h"

namespace kvserve::testing {
namespace {

constexpr const char* kHeading =
    "data,profile,raw_bytes,wire_bytes,compression_ratio,k_rms_relative,v_rms_relative";

constexpr const char* kPublished[] = {
    "hadamard|uniform:levels=4|rans",  "hadamard|uniform:levels=6|rans",
    "hadamard|uniform:levels=16|rans", "uniform:k_levels=48,v_levels=96|rans",
    "uniform:levels=128|bitpack",      "uniform:levels=255|none"};

std::vector<std::string> Names(StageKind kind) {
  std::vector<std::string> names;
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind == kind) names.emplace_back(entry.info->name);
  }
  return names;
}

bool Foreign(const std::string& profile) {
  return profile.find("zstd") != std::string::npos || profile.find("lz4") != std::string::npos;
}

std::string Line(const std::string& data, const std::string& profile, const SizeRow& row) {
  char figures[160];
  std::snprintf(figures, sizeof(figures), "%llu,%llu,%.3f,%.4g,%.4g",
                static_cast<unsigned long long>(row.raw_bytes),
                static_cast<unsigned long long>(row.wire_bytes),
                static_cast<double>(row.raw_bytes) / static_cast<double>(row.wire_bytes),
                row.k_rms_relative, row.v_rms_relative);
  return data + ",\"" + profile + "\"," + figures;
}

// Profiles have commas, so they are quoted.
bool ParseLine(const std::string& line, std::string& data, std::string& profile, SizeRow& row) {
  const auto begin = line.find(",\"");
  const auto end = line.find("\",", begin + 2);
  if (begin == std::string::npos || end == std::string::npos) return false;
  data = line.substr(0, begin);
  profile = line.substr(begin + 2, end - begin - 2);
  std::istringstream rest(line.substr(end + 2));
  char comma = 0;
  double ratio = 0.0;
  rest >> row.raw_bytes >> comma >> row.wire_bytes >> comma >> ratio >> comma >>
      row.k_rms_relative >> comma >> row.v_rms_relative;
  return !rest.fail();
}

std::map<std::string, SizeRows> ReadAll(const std::filesystem::path& path) {
  std::map<std::string, SizeRows> all;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_TRUE(!file || line == kHeading) << path;
  while (std::getline(file, line)) {
    std::string data;
    std::string profile;
    SizeRow row;
    EXPECT_TRUE(ParseLine(line, data, profile, row)) << path << ": " << line;
    all[data][profile] = row;
  }
  return all;
}

void ExpectNear(double found, double recorded, double share, const std::string& what) {
  // Half a unit of the last digit that is written.
  EXPECT_LE(std::fabs(found - recorded), (share + 5e-4) * recorded) << what;
}

}  // namespace

std::vector<std::string> SizeChains() {
  std::vector<std::string> heads = {""};
  for (const std::string& transform : Names(StageKind::kTransform))
    heads.push_back(transform + "|");
  std::set<std::string> chains(std::begin(kPublished), std::end(kPublished));
  for (const std::string& head : heads) {
    for (const std::string& quantizer : Names(StageKind::kQuantizer)) {
      for (const std::string& codec : Names(StageKind::kCodec)) {
        std::string chain = head;
        chains.insert(chain.append(quantizer).append("|").append(codec));
      }
    }
  }
  std::erase_if(chains, [](const std::string& chain) { return !ParseProfile(chain); });
  return {chains.begin(), chains.end()};
}

SizeRows MeasureSizes(const ConstKvView& view) {
  SizeRows rows;
  for (const std::string& chain : SizeChains()) {
    const auto profile = ParseProfile(chain);
    std::vector<std::byte> frame;
    const auto encoded = EncodeFrame(view, *profile, {}, frame);
    if (!encoded && (encoded.error().code == ErrorCode::kUnsupported ||
                     encoded.error().code == ErrorCode::kInvalidArgument)) {
      continue;
    }
    EXPECT_TRUE(encoded) << chain << ": " << encoded.error().message;
    KvBuffer decoded;
    const auto used = DecodeFrame(frame, {}, decoded);
    EXPECT_TRUE(used) << chain << ": " << used.error().message;
    if (!encoded || !used) continue;
    const auto error = MeasureError(view, std::as_const(decoded).view());
    EXPECT_TRUE(error) << chain << ": " << error.error().message;
    if (!error) continue;
    rows[chain] = {RawBytes(view), frame.size(), error->k_rms_relative, error->v_rms_relative};
  }
  return rows;
}

SizeRows ReadSizes(const std::filesystem::path& file, const std::string& data) {
  return ReadAll(file)[data];
}

void WriteSizes(const std::filesystem::path& file, const std::string& data, const SizeRows& rows) {
  auto all = ReadAll(file);
  all[data] = rows;
  std::ofstream out(file, std::ios::trunc);
  out << kHeading << "\n";
  for (const auto& [name, set] : all) {
    for (const auto& [profile, row] : set) out << Line(name, profile, row) << "\n";
  }
}

void CheckSizes(const std::filesystem::path& file, const std::string& data, const SizeRows& rows,
                const SizeTolerance& tolerance) {
  if (std::getenv("KVSERVE_RECORD_GOLDEN") != nullptr) WriteSizes(file, data, rows);
  SizeRows recorded = ReadSizes(file, data);
  for (const auto& [profile, row] : rows) {
    std::string what = data;
    what.append(" by ").append(profile);
    const auto found = recorded.extract(profile);
    if (found.empty()) {
      ADD_FAILURE() << what << " is not recorded: run with KVSERVE_RECORD_GOLDEN=1";
      continue;
    }
    const SizeRow& wanted = found.mapped();
    const double share = Foreign(profile) ? tolerance.foreign_bytes : tolerance.bytes;
    EXPECT_EQ(row.raw_bytes, wanted.raw_bytes) << what;
    EXPECT_LE(
        std::fabs(static_cast<double>(row.wire_bytes) - static_cast<double>(wanted.wire_bytes)),
        share * static_cast<double>(wanted.wire_bytes))
        << what << ": " << row.wire_bytes << " bytes, recorded " << wanted.wire_bytes;
    ExpectNear(row.k_rms_relative, wanted.k_rms_relative, tolerance.error, what + ", K");
    ExpectNear(row.v_rms_relative, wanted.v_rms_relative, tolerance.error, what + ", V");
  }
  for (const auto& [profile, row] : recorded) {
    ADD_FAILURE() << data << " by " << profile << " is recorded, but this build cannot do it";
  }
}

}  // namespace kvserve::testing
