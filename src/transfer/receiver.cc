// Fetches wait in one queue; each of `connections` threads takes one at a time from a connection
// and hands its frames to the threads that decode. One more thread watches the deadlines of those
// that wait.
#include "kvserve/receiver.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "net/peer_pool.h"
#include "paged/check.h"
#include "transfer/decode_pool.h"
#include "transfer/fetch_transfer.h"
#include "transfer/node_hello.h"
#include "transfer/release_worker.h"
#include "transfer/running_fetch.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kMaxConnections = 1024;
constexpr double kMaxSeconds = 1e6;
constexpr double kLongestBackoffSeconds = 1.0;  // after a sender that could not be reached

Status CheckOptions(const ReceiverOptions& options) {
  const auto within = [](const char* name, std::uint32_t value, std::uint32_t most) -> Status {
    if (value >= 1 && value <= most) return {};
    return MakeError(ErrorCode::kInvalidArgument, std::string(name) + " " + std::to_string(value) +
                                                      " is outside 1.." + std::to_string(most));
  };
  KVSERVE_TRY(within("threads", options.threads, 64));
  KVSERVE_TRY(within("connections", options.connections, kMaxConnections));
  if (!(options.stall_s > 0) || options.stall_s > kMaxSeconds) {
    return MakeError(ErrorCode::kInvalidArgument, "stall_s is outside 0..1e6 seconds, 0 excluded");
  }
  return {};
}

class Receiver final : public KvReceiver {
 public:
  Receiver(PagedCache cache, ReceiverOptions options, AuthToken token, Hello hello);
  ~Receiver() override;

  Status Fetch(FetchRequest request) override;
  void Cancel(std::string_view id) override;
  void Release(const std::string& address, const std::string& ticket) override;
  std::vector<FetchReport> TakeReports() override;
  std::size_t running() const override;

 private:
  using FetchPtr = std::shared_ptr<RunningFetch>;

  [[nodiscard]] Status CheckRequest(const FetchRequest& request) const;
  [[nodiscard]] PeerPool* PoolOf(const HostPort& address);
  void Stop();
  void TransferLoop();
  void WatchDeadlines();
  void Run(const FetchPtr& fetch);
  [[nodiscard]] Status Transfer(const FetchPtr& fetch);
  void Finish(const FetchPtr& fetch, const Status& outcome);
  [[nodiscard]] bool TakeWaiting(const FetchPtr& fetch);  // false: a thread has it already

  const PagedCache cache_;
  const ReceiverOptions options_;
  const AuthToken token_;
  const Hello hello_;
  std::atomic<std::uint64_t> next_transfer_{1};

  std::mutex pools_mutex_;
  std::map<std::string, std::unique_ptr<PeerPool>> pools_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, FetchPtr> fetches_;  // [id], waiting and running
  std::deque<FetchPtr> waiting_;
  std::vector<FetchReport> reports_;
  bool stopping_ = false;

  DecodePool decoders_;
  ReleaseWorker releases_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

Receiver::Receiver(PagedCache cache, ReceiverOptions options, AuthToken token, Hello hello)
    : cache_(std::move(cache)),
      options_(std::move(options)),
      token_(std::move(token)),
      hello_(std::move(hello)),
      decoders_(cache_, options_.model, {.threads = 1, .calibration = options_.calibration},
                options_.threads),
      releases_([this](const HostPort& address) { return PoolOf(address); }) {
  try {
    for (std::uint32_t i = 0; i < options_.connections; ++i) {
      threads_.emplace_back([this] { TransferLoop(); });
    }
    threads_.emplace_back([this] { WatchDeadlines(); });
  } catch (...) {
    Stop();
    throw;
  }
}

Receiver::~Receiver() {
  Stop();
}

void Receiver::Stop() {
  std::vector<FetchPtr> running;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, fetch] : fetches_) running.push_back(fetch);
    changed_.notify_all();
  }
  for (const auto& fetch : running) {
    fetch->Fail({ErrorCode::kCancelled, "the receiver is stopping"});
    decoders_.Drop(*fetch);
  }
  for (std::thread& thread : threads_) thread.join();
}

// ---- calls -------------------------------------------------------------------------------------

Status Receiver::CheckRequest(const FetchRequest& request) const {
  const auto fault = [](const std::string& what) {
    return MakeError(ErrorCode::kInvalidArgument, what);
  };
  if (request.ticket.empty() || request.ticket.size() > kMaxTicketBytes) {
    return fault("a ticket of " + std::to_string(request.ticket.size()) + " bytes is outside 1.." +
                 std::to_string(kMaxTicketBytes));
  }
  if (request.tokens.size() > kMaxTokens || request.wanted.begin >= request.wanted.end ||
      request.wanted.end != request.tokens.size()) {
    return fault("wanted tokens " + std::to_string(request.wanted.begin) + ".." +
                 std::to_string(request.wanted.end) + " are no range that ends at " +
                 std::to_string(request.tokens.size()));
  }
  if (!(request.deadline_s > 0) || request.deadline_s > kMaxSeconds) {
    return fault("deadline_s is outside 0..1e6 seconds, 0 excluded");
  }
  for (std::uint32_t i = 0; i < cache_.layers.size(); ++i) {
    KVSERVE_TRY(
        CheckTable(cache_, i, request.tables,
                   TokensHeld(cache_.geometry.layers[i], request.wanted, request.wanted.end)));
  }
  return {};
}

Status Receiver::Fetch(FetchRequest request) {
  KVSERVE_TRY(CheckRequest(request));
  KVSERVE_ASSIGN(HostPort address, ParseHostPort(request.address));
  const std::string id = request.id;
  auto fetch = std::make_shared<RunningFetch>(std::move(request), std::move(address),
                                              options_.model, cache_.geometry);
  const std::lock_guard lock(mutex_);
  if (!fetches_.emplace(id, fetch).second) {
    return MakeError(ErrorCode::kInvalidArgument, "a fetch of this id is running");
  }
  waiting_.push_back(std::move(fetch));
  changed_.notify_all();
  return {};
}

void Receiver::Cancel(std::string_view id) {
  FetchPtr fetch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = fetches_.find(std::string(id));
    if (found == fetches_.end()) return;
    fetch = found->second;
  }
  const Error reason{ErrorCode::kCancelled, "cancelled by the caller"};
  fetch->Fail(reason);
  decoders_.Drop(*fetch);
  if (TakeWaiting(fetch)) Finish(fetch, tl::unexpected(reason));
}

void Receiver::Release(const std::string& address, const std::string& ticket) {
  if (auto parsed = ParseHostPort(address)) releases_.Push(std::move(*parsed), ticket);
}

std::vector<FetchReport> Receiver::TakeReports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

std::size_t Receiver::running() const {
  const std::lock_guard lock(mutex_);
  return fetches_.size();
}

// ---- threads -----------------------------------------------------------------------------------

PeerPool* Receiver::PoolOf(const HostPort& address) {
  const std::lock_guard lock(pools_mutex_);
  auto& pool = pools_[address.text()];
  if (pool == nullptr) {
    PeerPoolOptions options;
    options.address = address;
    options.token = token_;
    options.max_backoff_s = kLongestBackoffSeconds;
    options.max_idle = options_.connections;
    pool = std::make_unique<PeerPool>(std::move(options), hello_);
  }
  return pool.get();
}

bool Receiver::TakeWaiting(const FetchPtr& fetch) {
  const std::lock_guard lock(mutex_);
  return std::erase(waiting_, fetch) > 0;
}

void Receiver::TransferLoop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const FetchPtr fetch = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Run(fetch);
    lock.lock();
  }
}

void Receiver::WatchDeadlines() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    Clock::time_point next = now + std::chrono::hours(1);
    std::vector<FetchPtr> late;
    for (const FetchPtr& fetch : waiting_) {
      if (fetch->deadline() <= now) late.push_back(fetch);
      next = std::min(next, fetch->deadline());
    }
    if (late.empty()) {
      changed_.wait_until(lock, next);
      continue;
    }
    lock.unlock();
    for (const FetchPtr& fetch : late) {
      const Status status = fetch->Check();
      if (TakeWaiting(fetch)) Finish(fetch, status);
    }
    lock.lock();
  }
}

void Receiver::Run(const FetchPtr& fetch) {
  Status status;
  try {
    status = Transfer(fetch);
  } catch (const std::exception& error) {
    status = MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
  }
  if (!status) fetch->Fail(status.error());
  decoders_.Drop(*fetch);
  fetch->WaitForJobs();
  if (status) return Finish(fetch, status);
  Finish(fetch, fetch->Check());
}

Status Receiver::Transfer(const FetchPtr& fetch) {
  KVSERVE_TRY(fetch->Check());
  KVSERVE_TRY(fetch->BeginTransfer());
  PeerPool* const pool = PoolOf(fetch->address());
  const FetchTransfer resources{decoders_, options_.stall_s, options_.threads + 2};
  for (bool allow_idle = true;; allow_idle = false) {
    auto peer = pool->Acquire(fetch->deadline(), allow_idle, &fetch->cancel());
    if (!peer) {
      KVSERVE_TRY(fetch->Check());
      return tl::unexpected(peer.error());
    }
    fetch->report().queue_s = SecondsSince(fetch->begun());
    bool started = false;
    bool in_order = false;
    Status status =
        RunFetchTransfer(resources, fetch, *peer->connection, next_transfer_++, started, in_order);
    if (in_order) pool->Return(std::move(peer->connection));
    // A connection that had been idle may have died unnoticed; that is not yet the sender's
    // failure.
    const bool stale =
        !status && !peer->fresh && !started && status.error().code == ErrorCode::kUnavailable;
    if (!stale) return status;
  }
}

void Receiver::Finish(const FetchPtr& fetch, const Status& outcome) {
  FetchReport report = fetch->report();
  report.drift_fallbacks = fetch->drift_fallbacks();
  report.decode_s = fetch->decode_s();
  report.total_s = SecondsSince(fetch->begun());
  if (!outcome) {
    report.error = outcome.error();
    report.tokens = 0;
    if (outcome.error().code != ErrorCode::kUnavailable) {
      releases_.Push(fetch->address(), fetch->request().ticket);
    }
  }
  const std::lock_guard lock(mutex_);
  fetches_.erase(report.id);
  reports_.push_back(std::move(report));
}

}  // namespace

Result<std::unique_ptr<KvReceiver>> KvReceiver::Start(const PagedCache& cache,
                                                      const ReceiverOptions& options) {
  KVSERVE_TRY(CheckPagedCache(cache));
  KVSERVE_TRY(CheckOptions(options));
  AuthToken token;
  if (!options.token_file.empty()) {
    KVSERVE_ASSIGN(token, AuthToken::FromFile(options.token_file));
  }
  KVSERVE_ASSIGN(Hello hello, MakeHello(options.model, cache.geometry, NodeRole::kDecode));
  try {
    return std::make_unique<Receiver>(cache, options, std::move(token), std::move(hello));
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kResourceExhausted,
                     std::string("no memory or threads: ") + error.what());
  }
}

}  // namespace kvserve
