#include "runtime/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "stages/profile_facts.h"

namespace kvserve {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSecondsBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250};

}  // namespace

struct NodeMetrics::Registry {
  explicit Registry(std::string_view role) : labels{{"role", std::string(role)}} {}

  Family<Counter>& Counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Family<Histogram>& Histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry);
  }

  prometheus::Labels labels;
  prometheus::Registry registry;
  Family<Counter>& requests = Counters("kvserve_requests_total", "Requests by outcome");
  Family<Counter>& fallbacks = Counters(
      "kvserve_fallbacks_total", "Prompts computed locally after a failed transfer, by reason");
  Family<Counter>& lossless_chunks =
      Counters("kvserve_lossless_fallback_chunks_total",
               "Chunks the profile could not encode or would have enlarged, sent lossless");
  Family<Counter>& drift_chunks =
      Counters("kvserve_drift_fallback_chunks_total",
               "Chunks unlike the calibration's texts, encoded by the fallback profile, by reason");
  Family<Counter>& clamped_values =
      Counters("kvserve_clamped_values_total", "Values limited to the range of a quantizer");
  Family<Counter>& transfers =
      Counters("kvserve_transfers_total", "Complete transfers of KV by quality class");
  Family<Gauge>& profile_info = prometheus::BuildGauge()
                                    .Name("kvserve_profile_info")
                                    .Help("Profile in force, its quality class and scale sources")
                                    .Labels(labels)
                                    .Register(registry);
  Family<Counter>& connections =
      Counters("kvserve_connections_total", "Node connections by outcome");
  Family<Counter>& raw_bytes =
      Counters("kvserve_raw_bytes_total", "KV bytes before encoding, in the cache dtype");
  Family<Counter>& wire_bytes =
      Counters("kvserve_wire_bytes_total", "Bytes of encoded KV frames on the wire");
  Family<Histogram>& stages =
      Histograms("kvserve_stage_seconds", "Busy time of a stage per request");
  Family<Histogram>& first_token =
      Histograms("kvserve_ttft_seconds", "Time from request to first token");
  Family<Histogram>& completion =
      Histograms("kvserve_jct_seconds", "Time from request to last token");
  Family<Gauge>& gauges = prometheus::BuildGauge()
                              .Name("kvserve_link_bytes_per_s")
                              .Help("Estimated rate of the link to the prefill node")
                              .Labels(labels)
                              .Register(registry);
  Counter& lossless_chunks_total = lossless_chunks.Add({});
  Counter& clamped_total = clamped_values.Add({});
  Counter& raw_total = raw_bytes.Add({});
  Counter& wire_total = wire_bytes.Add({});
  Gauge& link_rate = gauges.Add({});
  std::atomic<std::uint64_t> fallback_count{0};

  struct LiveGauge {
    Gauge* gauge;
    std::function<double()> read;
  };
  mutable std::mutex live_mutex;
  std::vector<LiveGauge> live;
  Gauge* profile = nullptr;  // in force
  std::string profile_name;
};

NodeMetrics::NodeMetrics(std::string_view role) : registry_(std::make_unique<Registry>(role)) {}
NodeMetrics::~NodeMetrics() = default;

void NodeMetrics::CountRequest(std::string_view outcome) {
  registry_->requests.Add({{"outcome", std::string(outcome)}}).Increment();
}

void NodeMetrics::CountFallback(std::string_view reason) {
  ++registry_->fallback_count;
  registry_->fallbacks.Add({{"reason", std::string(reason)}}).Increment();
}

void NodeMetrics::CountLosslessFallback(std::uint32_t chunks) {
  registry_->lossless_chunks_total.Increment(chunks);
}

void NodeMetrics::CountDriftFallback(std::string_view reason, std::uint32_t chunks) {
  registry_->drift_chunks.Add({{"reason", std::string(reason)}}).Increment(chunks);
}

void NodeMetrics::CountClampedValues(std::uint64_t values) {
  registry_->clamped_total.Increment(static_cast<double>(values));
}

void NodeMetrics::CountTransfer(std::string_view quality_class) {
  registry_->transfers.Add({{"quality_class", std::string(quality_class)}}).Increment();
}

void NodeMetrics::SetProfile(const Profile& profile, DType cache_dtype) {
  const std::lock_guard lock(registry_->live_mutex);
  if (registry_->profile != nullptr && registry_->profile_name == profile.name) return;
  const auto facts = FactsOf(profile.stages, cache_dtype, ProfileOrigin::kCaller);
  if (registry_->profile != nullptr) registry_->profile_info.Remove(registry_->profile);
  registry_->profile = &registry_->profile_info.Add(
      {{"profile", profile.name},
       {"quality_class", std::string(QualityClassName(IsLossless(profile.stages)))},
       {"scale_sources", facts ? ScaleSourcesText(*facts) : "unknown"}});
  registry_->profile->Set(1);
  registry_->profile_name = profile.name;
}

void NodeMetrics::CountConnection(std::string_view outcome) {
  registry_->connections.Add({{"outcome", std::string(outcome)}}).Increment();
}

void NodeMetrics::AddBytes(std::uint64_t raw_bytes, std::uint64_t wire_bytes) {
  registry_->raw_total.Increment(static_cast<double>(raw_bytes));
  registry_->wire_total.Increment(static_cast<double>(wire_bytes));
}

void NodeMetrics::ObserveStage(std::string_view stage, double seconds) {
  registry_->stages.Add({{"stage", std::string(stage)}}, kSecondsBuckets).Observe(seconds);
}

void NodeMetrics::ObserveFirstToken(double seconds) {
  registry_->first_token.Add({}, kSecondsBuckets).Observe(seconds);
}

void NodeMetrics::ObserveCompletion(double seconds) {
  registry_->completion.Add({}, kSecondsBuckets).Observe(seconds);
}

void NodeMetrics::SetLinkRate(double bytes_per_s) {
  registry_->link_rate.Set(bytes_per_s);
}

double NodeMetrics::fallbacks() const {
  return static_cast<double>(registry_->fallback_count);
}

void NodeMetrics::AddGauge(const std::string& name, const std::string& help,
                           std::function<double()> read) {
  Gauge& gauge = prometheus::BuildGauge()
                     .Name(name)
                     .Help(help)
                     .Labels(registry_->labels)
                     .Register(registry_->registry)
                     .Add({});
  const std::lock_guard lock(registry_->live_mutex);
  registry_->live.push_back({&gauge, std::move(read)});
}

std::string NodeMetrics::Expose() const {
  {
    const std::lock_guard lock(registry_->live_mutex);
    for (const auto& live : registry_->live) live.gauge->Set(live.read());
  }
  return prometheus::TextSerializer().Serialize(registry_->registry.Collect());
}

}  // namespace kvserve
