// One large fetch beside as much in 200 parallel ones, over loopback: transfer_bench [PROFILE]
// [PACE_MB_PER_S]. Queueing is shown apart from the wire's time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transfer/testing/transfer_pair.h"

namespace kvserve::testing {
namespace {

constexpr std::uint32_t kParallel = 200;
constexpr std::uint32_t kTokens = 64;  // of each of them

struct Times {
  double total_s = 0.0;
  double queue_s = 0.0;  // means over the fetches
  double wire_s = 0.0;
  double decode_s = 0.0;
};

// False when a fetch failed or left other bytes.
bool Measure(TransferPair& pair, const std::vector<TransferPair::Request>& requests,
             const std::string& profile, Times& times) {
  for (const auto& request : requests) {
    pair.Begin(request, profile);
    pair.StageAll(request);
  }
  pair.sender->WaitRead();
  const auto begin = Clock::now();
  for (const auto& request : requests) pair.Fetch(pair.FetchOf(request));
  times = {};
  bool good = true;
  for (const auto& request : requests) {
    const FetchReport report = pair.Await(request.ticket);
    good = good && !report.error;
    times.queue_s += report.queue_s / static_cast<double>(requests.size());
    times.wire_s += report.wire_s / static_cast<double>(requests.size());
    times.decode_s += report.decode_s / static_cast<double>(requests.size());
  }
  times.total_s = SecondsSince(begin);
  return good && (profile != "none" || pair.Sent(requests[0]) == pair.Received(requests[0]));
}

int Run(const std::string& profile, double pace_bytes_per_s) {
  TransferSetup setup;
  setup.geometry = Geometry(
      DType::kFloat16, std::vector<LayerGeometry>(8, {.kv_heads = 4, .k_dim = 64, .v_dim = 64}));
  setup.blocks = 2 * kParallel * kTokens / 16 + 8;
  setup.sender.pace_bytes_per_s = pace_bytes_per_s;
  TransferPair pair(setup);
  std::vector<TransferPair::Request> one = {pair.NewRequest("one", kParallel * kTokens)};
  const double bytes = static_cast<double>(kParallel) * kTokens * 8 * 2 * 4 * 64 * 2;
  std::vector<TransferPair::Request> many;
  for (std::uint32_t i = 0; i < kParallel; ++i) {
    many.push_back(pair.NewRequest("t" + std::to_string(i), kTokens));
  }
  std::printf("%-10s %10s %10s %10s %10s %10s\n", "fetches", "total_s", "raw MB/s", "queue_s",
              "wire_s", "decode_s");
  for (const auto* requests : {&one, &many}) {
    Times times;
    if (!Measure(pair, *requests, profile, times)) return 1;
    std::printf("%-10zu %10.3f %10.1f %10.3f %10.4f %10.4f\n", requests->size(), times.total_s,
                bytes / times.total_s * 1e-6, times.queue_s, times.wire_s, times.decode_s);
  }
  return 0;
}

}  // namespace
}  // namespace kvserve::testing

int main(int argc, char** argv) {
  return kvserve::testing::Run(argc > 1 ? argv[1] : "none",
                               argc > 2 ? std::strtod(argv[2], nullptr) * 1e6 : 0.0);
}
