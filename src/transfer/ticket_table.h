// The tickets of a sender: those that are open, those that were, and how they ended.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transfer/staged_offer.h"

namespace kvserve {

// Thread-safe.
class TicketTable {
 public:
  // kInvalidArgument when the ticket is or was in use.
  [[nodiscard]] Status Add(std::shared_ptr<StagedOffer> offer);

  // An open offer; the error that receivers get otherwise: why it ended, or kUnavailable when this
  // process does not know it.
  [[nodiscard]] Result<std::shared_ptr<StagedOffer>> Find(const std::string& ticket) const;
  // Whether it was open and has ended.
  [[nodiscard]] bool HasEnded(const std::string& ticket) const;

  // Ends an offer, the first time; readers get `error`.
  void End(StagedOffer& offer, OfferOutcome outcome, const Error& error);
  // What a receiver has said of a ticket; ends it with the last receiver that was expected.
  void FinishReceiver(const std::string& ticket, bool delivered);
  void EndAll(OfferOutcome outcome, const Error& error);
  // Ends offers whose last use was before `limit`.
  void Expire(Clock::time_point limit);

  [[nodiscard]] std::vector<OfferReport> TakeReports();
  [[nodiscard]] std::size_t open() const;

 private:
  static constexpr std::size_t kMaxEnded = 65536;  // remembered; then the oldest is forgotten

  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<StagedOffer>> open_;
  std::unordered_map<std::string, Error> ended_;
  std::deque<std::string> ended_order_;
  std::vector<OfferReport> reports_;
};

}  // namespace kvserve
