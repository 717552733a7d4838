#include "codec_rows.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/isa/isa.h"
#include "table.h"

namespace kvserve::tool {
namespace {

using Json = nlohmann::json;

Json QuartilesJson(const Rate& rate) {
  return {rate.low_bytes_per_s, rate.high_bytes_per_s};
}

double Share(const Rate& rate, const Rate& memcpy_rate) {
  return memcpy_rate.median_bytes_per_s > 0.0
             ? rate.median_bytes_per_s / memcpy_rate.median_bytes_per_s
             : 0.0;
}

Json RowJson(const CodecRow& row, const Rate& memcpy_rate) {
  const CodecSpeed& speed = row.speed;
  return {{"name", row.name},
          {"profile", row.profile},
          {"data", row.data},
          {"dtype", DTypeName(row.dtype)},
          {"isa", row.isa},
          {"threads", row.threads},
          {"frame_tokens", row.frame_tokens},
          {"whole_request", row.whole_request},
          {"encode_bytes_per_s", speed.encode.median_bytes_per_s},
          {"decode_bytes_per_s", speed.decode.median_bytes_per_s},
          {"encode_quartiles_bytes_per_s", QuartilesJson(speed.encode)},
          {"decode_quartiles_bytes_per_s", QuartilesJson(speed.decode)},
          {"combined_bytes_per_s", CombinedBytesPerSecond(speed.encode.median_bytes_per_s,
                                                          speed.decode.median_bytes_per_s)},
          {"encode_share_of_memcpy", Share(speed.encode, memcpy_rate)},
          {"decode_share_of_memcpy", Share(speed.decode, memcpy_rate)},
          {"compression_ratio", speed.compression_ratio()},
          {"raw_bytes", speed.raw_bytes},
          {"wire_bytes", speed.wire_bytes},
          {"k_rms_relative", row.error.k_rms_relative},
          {"v_rms_relative", row.error.v_rms_relative},
          {"encode_stages_s", speed.encode_stages},
          {"decode_stages_s", speed.decode_stages},
          {"stages_raw_bytes", speed.stage_raw_bytes}};
}

// "uniform 41 %, rans 38 %, ...": of the time that all stages took.
std::string SharesText(const StageSeconds& stages) {
  double total_s = 0.0;
  for (const auto& [name, seconds] : stages) total_s += seconds;
  std::string text;
  for (const auto& [name, seconds] : stages) {
    if (!text.empty()) text += ", ";
    text += name + " " + Fixed(100.0 * seconds / total_s, 0) + " %";
  }
  return text;
}

}  // namespace

CodecRows::CodecRows() {
  double load = 0.0;
  if (getloadavg(&load, 1) == 1) load_average_ = load;
}

void CodecRows::AddMemcpy(std::uint32_t threads, std::uint64_t bytes, const Rate& rate) {
  memcpy_[threads] = rate;
  memcpy_bytes_ = bytes;
}

void CodecRows::Add(const CodecRow& row) {
  rows_.push_back(row);
}

Json CodecRows::Json() const {
  auto rows = nlohmann::json::array();
  for (const auto& [threads, rate] : memcpy_) {
    rows.push_back({{"name", "memcpy"},
                    {"data", "memory"},
                    {"isa", ActiveIsa()},
                    {"threads", threads},
                    {"frame_tokens", 0},
                    {"encode_bytes_per_s", rate.median_bytes_per_s},
                    {"decode_bytes_per_s", rate.median_bytes_per_s},
                    {"encode_quartiles_bytes_per_s", QuartilesJson(rate)},
                    {"decode_quartiles_bytes_per_s", QuartilesJson(rate)},
                    {"compression_ratio", 1.0},
                    {"raw_bytes", memcpy_bytes_}});
  }
  for (const CodecRow& row : rows_) rows.push_back(RowJson(row, memcpy_.at(row.threads)));
  return {{"rows", std::move(rows)}, {"load_average_1min", load_average_}};
}

void CodecRows::PrintTables() const {
  for (const auto& [threads, rate] : memcpy_) {
    std::printf("memcpy, %u thread%s, buffers of %s: %s\n", threads, threads == 1 ? "" : "s",
                BytesText(memcpy_bytes_).c_str(), RateText(rate.median_bytes_per_s).c_str());
  }
  if (load_average_ > 0.5) {
    std::printf("The machine was busy (load %.2f): the figures are lower bounds.\n", load_average_);
  }
  std::string data;
  Table table;
  Table stages({"profile", "frame", "encode", "decode"});
  const auto flush = [&] {
    if (!data.empty()) table.Print();
  };
  for (const CodecRow& row : rows_) {
    if (row.data != data) {
      flush();
      data = row.data;
      std::printf("\n%s (%s)\n", data.c_str(), std::string(DTypeName(row.dtype)).c_str());
      table = Table({"profile", "isa", "threads", "frame", "encode", "decode", "of memcpy", "ratio",
                     "rms error K, V"});
    }
    const Rate& memcpy_rate = memcpy_.at(row.threads);
    const std::string frame =
        std::to_string(row.frame_tokens) + (row.whole_request ? " (all)" : "");
    table.Add({row.name, row.isa, std::to_string(row.threads), frame,
               RateText(row.speed.encode.median_bytes_per_s),
               RateText(row.speed.decode.median_bytes_per_s),
               Fixed(Share(row.speed.encode, memcpy_rate), 3) + " " +
                   Fixed(Share(row.speed.decode, memcpy_rate), 3),
               Fixed(row.speed.compression_ratio(), 3),
               Fixed(row.error.k_rms_relative, 4) + " " + Fixed(row.error.v_rms_relative, 4)});
    if (row.name == kHeadlineProfile || row.name == "lossless" || row.name == kCalibratedProfile) {
      stages.Add({row.name + ", " + row.data + ", " + row.isa + ", " + std::to_string(row.threads) +
                      (row.threads == 1 ? " thread" : " threads"),
                  frame, SharesText(row.speed.encode_stages), SharesText(row.speed.decode_stages)});
    }
  }
  flush();
  std::printf("\nWhere the time goes\n");
  stages.Print();
}

void CodecRows::Print(const Invocation& invocation) const {
  if (invocation.json) {
    PrintJson(invocation, Json());
  } else {
    PrintTables();
  }
}

}  // namespace kvserve::tool
