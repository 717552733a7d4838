// The result of kvserve bench codec as JSON or as tables.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "command.h"
#include "evaluation/speed/codec_bench.h"
#include "evaluation/speed/rate.h"

namespace kvserve::tool {

class CodecRows {
 public:
  // Takes the load of the machine: figures from a busy one are worth little.
  CodecRows();

  void AddMemcpy(std::uint32_t threads, std::uint64_t bytes, const Rate& rate);
  // memcpy of as many threads has been added before.
  void Add(const CodecRow& row);

  void Print(const Invocation& invocation) const;

 private:
  [[nodiscard]] nlohmann::json Json() const;
  void PrintTables() const;

  double load_average_ = 0.0;             // over the last minute, before anything was measured
  std::map<std::uint32_t, Rate> memcpy_;  // [threads]
  std::uint64_t memcpy_bytes_ = 0;
  std::vector<CodecRow> rows_;
};

}  // namespace kvserve::tool
