#include "transfer/release_worker.h"

#include <utility>
#include <vector>

#include "net/fetch_messages.h"

namespace kvserve {
namespace {

constexpr double kTellSeconds = 3.0;

}  // namespace

ReleaseWorker::ReleaseWorker(std::function<PeerPool*(const HostPort&)> pool_of)
    : pool_of_(std::move(pool_of)), thread_([this] { Run(); }) {}

ReleaseWorker::~ReleaseWorker() {
  work_.Close();
  cancel_.Cancel();
  thread_.join();
}

void ReleaseWorker::Push(HostPort address, std::string ticket) {
  (void)work_.TryPush({std::move(address), std::move(ticket)});
}

void ReleaseWorker::Run() {
  while (const auto work = work_.Pop()) {
    if (!cancel_.signal().cancelled()) Tell(*work);
  }
}

// An idle connection may have died unnoticed: then once more by a new one.
void ReleaseWorker::Tell(const Work& work) {
  std::vector<std::byte> payload;
  PeerPool* const pool = pool_of_(work.address);
  if (pool == nullptr || !Encode(TicketRelease{work.ticket}, payload)) return;
  for (const bool allow_idle : {true, false}) {
    auto peer = pool->Acquire(After(kTellSeconds), allow_idle, &cancel_);
    if (!peer) return;
    if (peer->connection->Send(MessageType::kRelease, 0, 0, payload, After(kTellSeconds))) {
      return pool->Return(std::move(peer->connection));
    }
    if (peer->fresh) return;
  }
}

}  // namespace kvserve
