// Begin and Stage note and queue; a thread gathers, others encode, each connection's thread sends,
// and one more drops what nobody has used for the length of a lease.
#include "kvserve/sender.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/try.h"
#include "net/connection_server.h"
#include "net/fetch_messages.h"
#include "net/handshake.h"
#include "net/pacer.h"
#include "paged/check.h"
#include "stages/profile_facts.h"
#include "transfer/encode_pool.h"
#include "transfer/gatherer.h"
#include "transfer/node_hello.h"
#include "transfer/sender_session.h"
#include "transfer/ticket_table.h"

namespace kvserve {
namespace {

constexpr std::size_t kMaxConnections = 1024;
constexpr double kStopSeconds = 2.0;  // for aborts to reach the receivers
constexpr double kLongestLookSeconds = 1.0;
constexpr double kMaxLeaseSeconds = 1e8;

Status CheckOptions(const SenderOptions& options) {
  const auto within = [](const char* name, std::uint32_t value, std::uint32_t most) -> Status {
    if (value >= 1 && value <= most) return {};
    return MakeError(ErrorCode::kInvalidArgument, std::string(name) + " " + std::to_string(value) +
                                                      " is outside 1.." + std::to_string(most));
  };
  KVSERVE_TRY(within("frame_tokens", options.frame_tokens, kMaxBlockTokens));
  KVSERVE_TRY(within("threads", options.threads, 64));
  if (!(options.lease_s > 0) || options.lease_s > kMaxLeaseSeconds) {
    return MakeError(ErrorCode::kInvalidArgument, "lease_s is outside 0..1e8 seconds, 0 excluded");
  }
  return {};
}

Status CheckFallback(const Profile& fallback, DType dtype) {
  if (fallback.stages.empty()) return {};
  KVSERVE_ASSIGN(const ProfileFacts facts, FactsOf(fallback.stages, dtype, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckKeepsTokens(facts));
  KVSERVE_TRY(CheckNeedsNoQueries(facts));
  if (!facts.needs_artefact) return {};
  return MakeError(ErrorCode::kInvalidArgument,
                   "the fallback profile " + fallback.name +
                       " needs a calibration artefact itself; take one that needs none, such as "
                       "published");
}

Result<AuthToken> TokenOf(const std::string& file) {
  return file.empty() ? Result<AuthToken>(AuthToken()) : AuthToken::FromFile(file);
}

class Sender final : public KvSender {
 public:
  Sender(PagedCache cache, SenderOptions options)
      : cache_(std::move(cache)),
        options_(std::move(options)),
        budget_(options_.max_staged_bytes),
        buffers_(2 * std::size_t{options_.threads} + 2),
        encoders_(tickets_, options_.model, options_.calibration, options_.fallback,
                  options_.threads),
        gatherer_(cache_, tickets_, buffers_, encoders_),
        lease_thread_([this] { WatchLeases(); }) {}
  ~Sender() override;

  [[nodiscard]] Status Listen();

  std::string address() const override { return server_->address().text(); }
  Status Begin(std::string_view ticket, Offer offer) override;
  Status Stage(std::string_view ticket, std::span<const BlockTable> tables, TokenRange tokens,
               std::uint32_t first_layer, std::uint32_t layers) override;
  void WaitRead() override { gatherer_.WaitRead(); }
  void Withdraw(std::string_view ticket, const Error& reason) override;
  std::vector<OfferReport> TakeReports() override { return tickets_.TakeReports(); }
  std::size_t open_tickets() const override { return tickets_.open(); }
  std::uint64_t staged_bytes() const override { return budget_.used_bytes(); }

 private:
  [[nodiscard]] Status CheckStage(std::span<const BlockTable> tables, TokenRange tokens,
                                  std::uint32_t first_layer, std::uint32_t layers,
                                  const StagedOffer& offer) const;
  void Serve(Connection& connection);
  void WatchLeases();

  const PagedCache cache_;
  const SenderOptions options_;
  AuthToken token_;
  Hello hello_;
  std::shared_ptr<Pacer> pacer_;
  StagingBudget budget_;
  BufferPool buffers_;
  TicketTable tickets_;
  EncodePool encoders_;
  Gatherer gatherer_;
  IdleConnections idle_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread lease_thread_;
  std::unique_ptr<ConnectionServer> server_;  // last: its threads use all of the above
};

Sender::~Sender() {
  tickets_.EndAll(OfferOutcome::kWithdrawn, {ErrorCode::kCancelled, "the sender is stopping"});
  idle_.Stop();
  if (server_) server_->Stop(kStopSeconds);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_.notify_all();
  }
  lease_thread_.join();
}

Status Sender::Listen() {
  KVSERVE_ASSIGN(const HostPort address, ParseHostPort(options_.listen));
  KVSERVE_ASSIGN(token_, TokenOf(options_.token_file));
  KVSERVE_ASSIGN(hello_, MakeHello(options_.model, cache_.geometry, NodeRole::kPrefill));
  if (options_.pace_bytes_per_s > 0) pacer_ = std::make_shared<Pacer>(options_.pace_bytes_per_s);
  ConnectionServer::Options server;
  server.max_connections = kMaxConnections;
  server.serve = [this](Connection& connection) { Serve(connection); };
  KVSERVE_ASSIGN(server_, ConnectionServer::Start(address, token_, std::move(server)));
  return {};
}

void Sender::Serve(Connection& connection) {
  connection.SetPacer(pacer_);
  const auto agreement = ServerHandshake(connection, hello_, token_, After(kHandshakeSeconds));
  if (!agreement) return connection.Finish(After(1.0));
  RunSenderSession(tickets_, *agreement, idle_, connection);
}

Status Sender::Begin(std::string_view ticket, Offer offer) {
  if (ticket.empty() || ticket.size() > kMaxTicketBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "a ticket of " + std::to_string(ticket.size()) +
                                                      " bytes is outside 1.." +
                                                      std::to_string(kMaxTicketBytes));
  }
  KVSERVE_ASSIGN(auto staged, StagedOffer::Create(std::string(ticket), std::move(offer), options_,
                                                  cache_.geometry));
  return tickets_.Add(std::move(staged));
}

Status Sender::CheckStage(std::span<const BlockTable> tables, TokenRange tokens,
                          std::uint32_t first_layer, std::uint32_t layers,
                          const StagedOffer& offer) const {
  const std::size_t all = cache_.layers.size();
  if (tokens.begin >= tokens.end || tokens.end > offer.grid().tokens() || layers == 0 ||
      first_layer >= all || layers > all - first_layer) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "tokens " + std::to_string(tokens.begin) + ".." + std::to_string(tokens.end) +
                         " of " + std::to_string(layers) + " layers from " +
                         std::to_string(first_layer) + " on are not within the offer");
  }
  for (std::uint32_t i = first_layer; i < first_layer + layers; ++i) {
    const TokenRange held = TokensHeld(cache_.geometry.layers[i], tokens, offer.grid().tokens());
    KVSERVE_TRY(CheckTable(cache_, i, tables, held));
  }
  return {};
}

Status Sender::Stage(std::string_view ticket, std::span<const BlockTable> tables, TokenRange tokens,
                     std::uint32_t first_layer, std::uint32_t layers) {
  const std::string name(ticket);
  const auto offer = tickets_.Find(name);
  if (!offer) {
    if (tickets_.HasEnded(name)) return {};
    return MakeError(ErrorCode::kInvalidArgument, "the ticket is not known");
  }
  KVSERVE_TRY(CheckStage(tables, tokens, first_layer, layers, **offer));
  Status reserved = (*offer)->Reserve(tokens, first_layer, layers, budget_);
  if (!reserved) {
    if (reserved.error().code != ErrorCode::kResourceExhausted) return reserved;
    tickets_.End(**offer, OfferOutcome::kFailed, reserved.error());
    return {};
  }
  gatherer_.Push({*offer, {tables.begin(), tables.end()}, tokens, first_layer, layers});
  return {};
}

void Sender::Withdraw(std::string_view ticket, const Error& reason) {
  const auto offer = tickets_.Find(std::string(ticket));
  if (offer) tickets_.End(**offer, OfferOutcome::kWithdrawn, reason);
}

void Sender::WatchLeases() {
  const auto lease =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.lease_s));
  const double look_s = std::min(options_.lease_s / 4, kLongestLookSeconds);
  std::unique_lock lock(mutex_);
  while (!stop_.wait_until(lock, After(look_s), [&] { return stopping_; })) {
    tickets_.Expire(Clock::now() - lease);
  }
}

}  // namespace

Result<std::unique_ptr<KvSender>> KvSender::Start(const PagedCache& cache,
                                                  const SenderOptions& options) {
  KVSERVE_TRY(CheckPagedCache(cache));
  KVSERVE_TRY(CheckOptions(options));
  KVSERVE_TRY(CheckFallback(options.fallback, cache.geometry.dtype));
  try {
    auto sender = std::make_unique<Sender>(cache, options);
    KVSERVE_TRY(sender->Listen());
    return sender;
  } catch (const std::exception& error) {  // no memory or threads
    return MakeError(ErrorCode::kResourceExhausted,
                     std::string("no memory or threads: ") + error.what());
  }
}

}  // namespace kvserve
