// The sending side between two engines.
#include "kvserve/sender.h"

#include <deque>

#include "capi/capi.h"

// NOLINTNEXTLINE(readability-identifier-naming)
struct kvserve_sender {
  std::unique_ptr<kvserve::KvSender> sender;
  std::string address;
  std::deque<kvserve::OfferReport> waiting;  // taken from the sender, not from us yet
  kvserve::OfferReport shown;
};

namespace kvserve::capi {
namespace {

Result<SenderOptions> ToOptions(const kvserve_sender_options* options) {
  const auto given = Read(options, sizeof(kvserve_sender_options));
  if (!given) return tl::unexpected(given.error());
  SenderOptions result;
  if (given->listen != nullptr) result.listen = given->listen;
  if (given->token_file != nullptr) result.token_file = given->token_file;
  if (given->calibration != nullptr) result.calibration = given->calibration->artefact;
  result.model = ToFingerprint(given->model);
  if (given->frame_tokens != 0) result.frame_tokens = given->frame_tokens;
  result.layers_per_frame = given->layers_per_frame;
  if (given->threads != 0) result.threads = given->threads;
  if (given->lease_s != 0) result.lease_s = given->lease_s;
  if (given->max_staged_bytes != 0) result.max_staged_bytes = given->max_staged_bytes;
  result.pace_bytes_per_s = given->pace_bytes_per_s;
  if (given->fallback != nullptr) result.fallback = given->fallback->profile;
  return result;
}

Result<Offer> ToOffer(const kvserve_offer* offer) {
  const auto given = Read(offer, sizeof(kvserve_offer));
  if (!given) return tl::unexpected(given.error());
  if (given->profile == nullptr || (given->tokens == nullptr && given->token_count > 0) ||
      (given->context == nullptr && given->context_bytes > 0)) {
    return MakeError(ErrorCode::kInvalidArgument, "an offer without profile, tokens or context");
  }
  Offer result;
  result.profile = given->profile;
  result.tokens.assign(given->tokens, given->tokens + given->token_count);
  result.context.assign(static_cast<const char*>(given->context), given->context_bytes);
  if (given->receivers != 0) result.receivers = given->receivers;
  return result;
}

kvserve_offer_report ToReport(const OfferReport& report) {
  kvserve_offer_report out{};
  out.ticket = report.ticket.c_str();
  out.outcome = static_cast<std::int32_t>(report.outcome);
  const bool faulty = report.outcome != OfferOutcome::kDelivered;
  out.error = faulty ? static_cast<kvserve_status>(report.error.code) : KVSERVE_OK;
  out.error_message = faulty ? report.error.message.c_str() : "";
  out.tokens = report.tokens;
  out.frames = report.frames;
  out.lossless_fallbacks = report.lossless_fallbacks;
  out.drift_fallbacks = report.drift_fallbacks;
  out.drift_cause = report.drift_cause.c_str();
  out.drift_reason = report.drift_reason.c_str();
  out.raw_bytes = report.raw_bytes;
  out.wire_bytes = report.wire_bytes;
  out.sent_bytes = report.sent_bytes;
  out.gather_s = report.gather_s;
  out.encode_s = report.encode_s;
  out.ready_s = report.ready_s;
  return out;
}

static_assert(KVSERVE_DELIVERED == static_cast<int>(OfferOutcome::kDelivered));
static_assert(KVSERVE_EXPIRED == static_cast<int>(OfferOutcome::kExpired));
static_assert(KVSERVE_WITHDRAWN == static_cast<int>(OfferOutcome::kWithdrawn));
static_assert(KVSERVE_FAILED == static_cast<int>(OfferOutcome::kFailed));

}  // namespace
}  // namespace kvserve::capi

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

kvserve_status kvserve_sender_start(const kvserve_paged_cache* cache,
                                    const kvserve_sender_options* options, kvserve_sender** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a cache and a place for the sender", cache, out); !status) {
      return status;
    }
    const auto sender_options = ToOptions(options);
    if (!sender_options) return tl::unexpected(sender_options.error());
    auto handle = std::make_unique<kvserve_sender>();
    auto sender = KvSender::Start(cache->cache, *sender_options);
    if (!sender) return tl::unexpected(sender.error());
    handle->sender = std::move(*sender);
    handle->address = handle->sender->address();
    *out = handle.release();
    return {};
  });
}

void kvserve_sender_destroy(kvserve_sender* sender) {
  delete sender;
}

const char* kvserve_sender_address(const kvserve_sender* sender) {
  return sender == nullptr ? "" : sender->address.c_str();
}

kvserve_status kvserve_sender_begin(kvserve_sender* sender, const char* ticket,
                                    const kvserve_offer* offer) {
  return Run([&]() -> Status {
    if (auto status = Need("a sender, a ticket and an offer", sender, ticket, offer); !status) {
      return status;
    }
    auto given = ToOffer(offer);
    if (!given) return tl::unexpected(given.error());
    return sender->sender->Begin(ticket, std::move(*given));
  });
}

kvserve_status kvserve_sender_stage(kvserve_sender* sender, const char* ticket,
                                    const kvserve_block_table* tables, size_t table_count,
                                    uint32_t token_begin, uint32_t token_end, uint32_t first_layer,
                                    uint32_t layers) {
  return Run([&]() -> Status {
    if (auto status = Need("a sender and a ticket", sender, ticket); !status) return status;
    const auto blocks = ToTables(tables, table_count);
    if (!blocks) return tl::unexpected(blocks.error());
    return sender->sender->Stage(ticket, *blocks, {token_begin, token_end}, first_layer, layers);
  });
}

kvserve_status kvserve_sender_wait_read(kvserve_sender* sender) {
  return Run([&]() -> Status {
    if (auto status = Need("a sender", sender); !status) return status;
    sender->sender->WaitRead();
    return {};
  });
}

kvserve_status kvserve_sender_withdraw(kvserve_sender* sender, const char* ticket,
                                       kvserve_status code, const char* message) {
  return Run([&]() -> Status {
    if (auto status = Need("a sender, a ticket and a message", sender, ticket, message); !status) {
      return status;
    }
    if (code < KVSERVE_INTERNAL || code > KVSERVE_PERMISSION_DENIED) {
      return MakeError(ErrorCode::kInvalidArgument,
                       std::to_string(code) + " is not the code of an error");
    }
    sender->sender->Withdraw(ticket, {static_cast<ErrorCode>(code), message});
    return {};
  });
}

size_t kvserve_sender_open_tickets(const kvserve_sender* sender) {
  return sender == nullptr ? 0 : sender->sender->open_tickets();
}

uint64_t kvserve_sender_staged_bytes(const kvserve_sender* sender) {
  return sender == nullptr ? 0 : sender->sender->staged_bytes();
}

kvserve_status kvserve_sender_take_report(kvserve_sender* sender, kvserve_offer_report* out,
                                          int* found) {
  return Run([&]() -> Status {
    if (auto status = Need("a sender, a report and a place for found", sender, out, found);
        !status) {
      return status;
    }
    if (auto status = HasRoom(*out, sizeof(kvserve_offer_report)); !status) return status;
    if (sender->waiting.empty()) {
      for (OfferReport& report : sender->sender->TakeReports()) {
        sender->waiting.push_back(std::move(report));
      }
    }
    *found = sender->waiting.empty() ? 0 : 1;
    if (*found == 0) return {};
    sender->shown = std::move(sender->waiting.front());
    sender->waiting.pop_front();
    return Write(ToReport(sender->shown), out, sizeof(kvserve_offer_report));
  });
}

}  // extern "C"
