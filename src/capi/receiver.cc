// The receiving side between two engines.
#include "kvserve/receiver.h"

#include <deque>

#include "capi/capi.h"

// NOLINTNEXTLINE(readability-identifier-naming)
struct kvserve_receiver {
  std::unique_ptr<kvserve::KvReceiver> receiver;
  std::deque<kvserve::FetchReport> waiting;  // taken from the receiver, not from us yet
  kvserve::FetchReport shown;
};

namespace kvserve::capi {
namespace {

Result<ReceiverOptions> ToOptions(const kvserve_receiver_options* options) {
  const auto given = Read(options, sizeof(kvserve_receiver_options));
  if (!given) return tl::unexpected(given.error());
  ReceiverOptions result;
  if (given->token_file != nullptr) result.token_file = given->token_file;
  if (given->calibration != nullptr) result.calibration = given->calibration->artefact;
  result.model = ToFingerprint(given->model);
  if (given->threads != 0) result.threads = given->threads;
  if (given->connections != 0) result.connections = given->connections;
  if (given->stall_s != 0) result.stall_s = given->stall_s;
  return result;
}

Result<FetchRequest> ToRequest(const kvserve_fetch_request* request) {
  const auto given = Read(request, sizeof(kvserve_fetch_request));
  if (!given) return tl::unexpected(given.error());
  if (given->id == nullptr || given->address == nullptr || given->ticket == nullptr ||
      (given->tokens == nullptr && given->token_count > 0) ||
      (given->context == nullptr && given->context_bytes > 0)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a fetch without id, address, ticket, tokens or context");
  }
  if (given->token_count > kMaxTokens) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a fetch of " + std::to_string(given->token_count) + " tokens");
  }
  auto tables = ToTables(given->tables, given->table_count);
  if (!tables) return tl::unexpected(tables.error());
  FetchRequest result;
  result.id = given->id;
  result.address = given->address;
  result.ticket = given->ticket;
  result.tokens.assign(given->tokens, given->tokens + given->token_count);
  result.context.assign(static_cast<const char*>(given->context), given->context_bytes);
  result.wanted = {given->wanted_begin, static_cast<std::uint32_t>(given->token_count)};
  result.tables = std::move(*tables);
  if (given->deadline_s != 0) result.deadline_s = given->deadline_s;
  return result;
}

kvserve_fetch_report ToReport(const FetchReport& report) {
  kvserve_fetch_report out{};
  out.id = report.id.c_str();
  out.ticket = report.ticket.c_str();
  out.profile = report.profile.c_str();
  out.error = report.error ? static_cast<kvserve_status>(report.error->code) : KVSERVE_OK;
  out.error_message = report.error ? report.error->message.c_str() : "";
  out.tokens = report.tokens;
  out.frames = report.frames;
  out.lossless_fallbacks = report.lossless_fallbacks;
  out.drift_fallbacks = report.drift_fallbacks;
  out.raw_bytes = report.raw_bytes;
  out.wire_bytes = report.wire_bytes;
  out.queue_s = report.queue_s;
  out.wire_s = report.wire_s;
  out.decode_s = report.decode_s;
  out.total_s = report.total_s;
  out.link_bytes_per_s = report.link_bytes_per_s;
  return out;
}

}  // namespace
}  // namespace kvserve::capi

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

kvserve_status kvserve_receiver_start(const kvserve_paged_cache* cache,
                                      const kvserve_receiver_options* options,
                                      kvserve_receiver** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a cache and a place for the receiver", cache, out); !status) {
      return status;
    }
    const auto receiver_options = ToOptions(options);
    if (!receiver_options) return tl::unexpected(receiver_options.error());
    auto handle = std::make_unique<kvserve_receiver>();
    auto receiver = KvReceiver::Start(cache->cache, *receiver_options);
    if (!receiver) return tl::unexpected(receiver.error());
    handle->receiver = std::move(*receiver);
    *out = handle.release();
    return {};
  });
}

void kvserve_receiver_destroy(kvserve_receiver* receiver) {
  delete receiver;
}

kvserve_status kvserve_receiver_fetch(kvserve_receiver* receiver,
                                      const kvserve_fetch_request* request) {
  return Run([&]() -> Status {
    if (auto status = Need("a receiver and a request", receiver, request); !status) return status;
    auto given = ToRequest(request);
    if (!given) return tl::unexpected(given.error());
    return receiver->receiver->Fetch(std::move(*given));
  });
}

kvserve_status kvserve_receiver_cancel(kvserve_receiver* receiver, const char* id) {
  return Run([&]() -> Status {
    if (auto status = Need("a receiver and an id", receiver, id); !status) return status;
    receiver->receiver->Cancel(id);
    return {};
  });
}

kvserve_status kvserve_receiver_release(kvserve_receiver* receiver, const char* address,
                                        const char* ticket) {
  return Run([&]() -> Status {
    if (auto status = Need("a receiver, an address and a ticket", receiver, address, ticket);
        !status) {
      return status;
    }
    receiver->receiver->Release(address, ticket);
    return {};
  });
}

size_t kvserve_receiver_running(const kvserve_receiver* receiver) {
  return receiver == nullptr ? 0 : receiver->receiver->running();
}

kvserve_status kvserve_receiver_take_report(kvserve_receiver* receiver, kvserve_fetch_report* out,
                                            int* found) {
  return Run([&]() -> Status {
    if (auto status = Need("a receiver, a report and a place for found", receiver, out, found);
        !status) {
      return status;
    }
    if (auto status = HasRoom(*out, sizeof(kvserve_fetch_report)); !status) return status;
    if (receiver->waiting.empty()) {
      for (FetchReport& report : receiver->receiver->TakeReports()) {
        receiver->waiting.push_back(std::move(report));
      }
    }
    *found = receiver->waiting.empty() ? 0 : 1;
    if (*found == 0) return {};
    receiver->shown = std::move(receiver->waiting.front());
    receiver->waiting.pop_front();
    return Write(ToReport(receiver->shown), out, sizeof(kvserve_fetch_report));
  });
}

}  // extern "C"
