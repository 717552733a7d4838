// KV to measure speed with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvserve/codec.h"
#include "kvserve/view.h"

namespace kvserve {

// Copies of one request in memory of their own, so many that a lap over all of them finds nothing
// in the processor's caches. Immutable.
class KvSet {
 public:
  static constexpr std::uint64_t kLapBytes = 80U << 20;  // the last-level cache held 32 MiB

  // `name` is for people and reports. At least `lap_bytes` of raw KV. kBadInput without tokens,
  // kResourceExhausted without memory.
  [[nodiscard]] static Result<KvSet> Create(std::string name, KvBuffer request,
                                            std::uint32_t prompt_tokens = 0,
                                            std::uint64_t lap_bytes = kLapBytes);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] ConstKvView request() const { return copies_.front().view(); }
  [[nodiscard]] std::uint32_t prompt_tokens() const { return prompt_tokens_; }

  // The chunks of all copies in order, `frame_tokens` each; the last of a copy may be shorter.
  // Valid as long as this.
  [[nodiscard]] std::vector<ConstKvView> Chunks(std::uint32_t frame_tokens) const;

 private:
  KvSet() = default;

  std::string name_;
  std::vector<KvBuffer> copies_;
  std::uint32_t prompt_tokens_ = 0;
};

// Same shapes, other memory.
[[nodiscard]] Status CopyKv(const ConstKvView& from, KvBuffer& to);

}  // namespace kvserve
