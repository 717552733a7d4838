// What operators watch, in Prometheus form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvserve/geometry.h"
#include "kvserve/profile.h"

namespace kvserve {

// One per node. Thread-safe. Every name begins with kvserve_.
class NodeMetrics {
 public:
  explicit NodeMetrics(std::string_view role);  // label role="prefill" or "decode"
  ~NodeMetrics();
  NodeMetrics(const NodeMetrics&) = delete;
  NodeMetrics& operator=(const NodeMetrics&) = delete;

  void CountRequest(std::string_view outcome);  // "ok" or an ErrorName
  void CountFallback(std::string_view reason);  // "recompute" reasons: an ErrorName
  // Chunks that the profile could not encode, or would have made larger than they are.
  void CountLosslessFallback(std::uint32_t chunks);
  // Chunks unlike the texts of the calibration artefact, encoded by the fallback profile;
  // `reason` is FrameDrift::cause of the first of a request.
  void CountDriftFallback(std::string_view reason, std::uint32_t chunks);
  void CountClampedValues(std::uint64_t values);       // limited to a quantizer's range
  void CountTransfer(std::string_view quality_class);  // complete ones; "lossless" or "lossy"
  // The profile in force, on a prefill node that of the last request: an info metric of value 1
  // whose labels say its quality class and where each stage's scales come from.
  void SetProfile(const Profile& profile, DType cache_dtype);
  void CountConnection(std::string_view outcome);  // "accepted", "refused", "handshake_failed", ...
  void AddBytes(std::uint64_t raw_bytes, std::uint64_t wire_bytes);
  void ObserveStage(std::string_view stage, double seconds);
  void ObserveFirstToken(double seconds);
  void ObserveCompletion(double seconds);
  void SetLinkRate(double bytes_per_s);
  [[nodiscard]] double fallbacks() const;

  // A gauge read at exposition. `read` must be callable until destruction and thread-safe.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> read);

  [[nodiscard]] std::string Expose() const;

 private:
  struct Registry;
  std::unique_ptr<Registry> registry_;
};

}  // namespace kvserve
