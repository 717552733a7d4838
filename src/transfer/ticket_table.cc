#include "transfer/ticket_table.h"

#include <utility>

#include "base/try.h"

namespace kvserve {

Status TicketTable::Add(std::shared_ptr<StagedOffer> offer) {
  const std::lock_guard lock(mutex_);
  const std::string& ticket = offer->ticket();
  if (open_.contains(ticket) || ended_.contains(ticket)) {
    return MakeError(ErrorCode::kInvalidArgument, "the ticket is or was in use");
  }
  open_.emplace(ticket, std::move(offer));
  return {};
}

Result<std::shared_ptr<StagedOffer>> TicketTable::Find(const std::string& ticket) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(ticket); found != open_.end()) return found->second;
  if (const auto found = ended_.find(ticket); found != ended_.end()) {
    return tl::unexpected(found->second);
  }
  return MakeError(ErrorCode::kUnavailable, "the ticket is not known here");
}

bool TicketTable::HasEnded(const std::string& ticket) const {
  const std::lock_guard lock(mutex_);
  return ended_.contains(ticket);
}

void TicketTable::End(StagedOffer& offer, OfferOutcome outcome, const Error& error) {
  std::shared_ptr<StagedOffer> kept;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  if (!offer.End(error)) return;
  OfferReport report = offer.Report();
  report.outcome = outcome;
  if (outcome != OfferOutcome::kDelivered) report.error = error;
  const auto found = open_.find(offer.ticket());
  if (found != open_.end() && found->second.get() == &offer) {
    kept = std::move(found->second);
    open_.erase(found);
  }
  if (ended_.emplace(report.ticket, error).second) ended_order_.push_back(report.ticket);
  if (ended_order_.size() > kMaxEnded) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
  reports_.push_back(std::move(report));
}

void TicketTable::FinishReceiver(const std::string& ticket, bool delivered) {
  const auto offer = Find(ticket);
  if (!offer || !(*offer)->FinishReceiver(delivered)) return;
  if ((*offer)->delivered_any()) {
    End(**offer, OfferOutcome::kDelivered,
        {ErrorCode::kUnavailable, "the ticket has been delivered already"});
  } else {
    End(**offer, OfferOutcome::kWithdrawn,
        {ErrorCode::kCancelled, "the receiver needs nothing of it"});
  }
}

void TicketTable::EndAll(OfferOutcome outcome, const Error& error) {
  std::vector<std::shared_ptr<StagedOffer>> offers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [ticket, offer] : open_) offers.push_back(offer);
  }
  for (const auto& offer : offers) End(*offer, outcome, error);
}

void TicketTable::Expire(Clock::time_point limit) {
  std::vector<std::shared_ptr<StagedOffer>> expired;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [ticket, offer] : open_) {
      if (offer->last_use() < limit) expired.push_back(offer);
    }
  }
  for (const auto& offer : expired) {
    End(*offer, OfferOutcome::kExpired,
        {ErrorCode::kDeadlineExceeded, "the ticket's lease has expired"});
  }
}

std::vector<OfferReport> TicketTable::TakeReports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

std::size_t TicketTable::open() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

}  // namespace kvserve
