#include "codec_report.h"

#include "table.h"

namespace kvserve::tool {

void PrintCodecReport(const Invocation& invocation, const CodecReport& report,
                      const char* seconds_key, nlohmann::json extra) {
  const double ratio = report.wire_bytes == 0 ? 0.0
                                              : static_cast<double>(report.raw_bytes) /
                                                    static_cast<double>(report.wire_bytes);
  if (invocation.json) {
    extra["raw_bytes"] = report.raw_bytes;
    extra["wire_bytes"] = report.wire_bytes;
    extra["compression_ratio"] = ratio;
    extra["frames"] = report.frames;
    extra["clamped_values"] = report.clamped_values;
    extra[seconds_key] = report.seconds;
    extra["stages_s"] = report.stage_seconds;
    PrintJson(invocation, std::move(extra));
    return;
  }
  Table table;
  for (const auto& item : extra.items()) {
    const auto& value = item.value();
    table.Add({item.key(), value.is_string() ? value.get<std::string>() : value.dump()});
  }
  table.Add({"raw", BytesText(report.raw_bytes)});
  table.Add({"wire", BytesText(report.wire_bytes) + " in " + std::to_string(report.frames) +
                         (report.frames == 1 ? " frame" : " frames")});
  table.Add({"compression ratio", Fixed(ratio, 3)});
  if (report.clamped_values > 0) {
    table.Add({"clamped values", std::to_string(report.clamped_values)});
  }
  table.Add({seconds_key, Fixed(report.seconds, 4)});
  for (const auto& [stage, seconds] : report.stage_seconds) {
    table.Add({"  " + stage, Fixed(seconds, 4)});
  }
  table.Print();
}

}  // namespace kvserve::tool
