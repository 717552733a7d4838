// Sender and receiver between two engines. Reports are dictionaries of plain values.
#include "glue.h"
#include "kvserve/receiver.h"
#include "kvserve/sender.h"
#include "paged.h"

namespace kvserve::python {
namespace {

// Whoever calls keeps the object alive for as long; Close ends it after the last call. Ending waits
// for threads, so the interpreter is free meanwhile. The cache outlives it.
template <typename Object>
class Handle {
 public:
  Handle(nb::object cache, std::unique_ptr<Object> object)
      : cache_(std::move(cache)), object_(std::move(object)) {}
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&&) = delete;
  ~Handle() { Close(); }

  void Close() {
    std::shared_ptr<Object> last = std::move(object_);
    const nb::gil_scoped_release released;
    last.reset();
  }
  [[nodiscard]] std::shared_ptr<Object> get() const {
    if (object_ == nullptr) Raise(ErrorCode::kInvalidArgument, "it has been closed");
    return object_;
  }

 private:
  nb::object cache_;
  std::shared_ptr<Object> object_;  // under the interpreter's lock
};
using Sender = Handle<KvSender>;
using Receiver = Handle<KvReceiver>;

// Calls body(object) with the interpreter free. The last reference may be dropped in there.
template <typename Object, typename Body>
auto Released(const Handle<Object>& handle, const Body& body) {
  std::shared_ptr<Object> object = handle.get();
  const nb::gil_scoped_release released;
  const std::shared_ptr<Object> kept = std::move(object);
  return body(*kept);
}

std::string ToContext(const nb::bytes& context) {
  return {static_cast<const char*>(context.data()), context.size()};
}

const char* OutcomeName(OfferOutcome outcome) {
  switch (outcome) {
    case OfferOutcome::kDelivered: return "delivered";
    case OfferOutcome::kExpired: return "expired";
    case OfferOutcome::kWithdrawn: return "withdrawn";
    case OfferOutcome::kFailed: return "failed";
  }
  return "unknown";
}

nb::object ErrorOf(const Error& error) {
  return nb::module_::import_("kvserve._errors")
      .attr("error_of")(static_cast<int>(error.code), error.message);
}

nb::dict ToDict(const OfferReport& report) {
  nb::dict row;
  row["ticket"] = report.ticket;
  row["outcome"] = OutcomeName(report.outcome);
  const bool faulty = report.outcome != OfferOutcome::kDelivered;
  row["error"] = faulty ? ErrorOf(report.error) : nb::none();
  row["tokens"] = report.tokens;
  row["frames"] = report.frames;
  row["lossless_fallbacks"] = report.lossless_fallbacks;
  row["drift_fallbacks"] = report.drift_fallbacks;
  row["drift_cause"] = report.drift_cause;
  row["drift_reason"] = report.drift_reason;
  row["raw_bytes"] = report.raw_bytes;
  row["wire_bytes"] = report.wire_bytes;
  row["sent_bytes"] = report.sent_bytes;
  row["gather_s"] = report.gather_s;
  row["encode_s"] = report.encode_s;
  row["ready_s"] = report.ready_s;
  return row;
}

nb::dict ToDict(const FetchReport& report) {
  nb::dict row;
  row["id"] = report.id;
  row["ticket"] = report.ticket;
  row["error"] = report.error ? ErrorOf(*report.error) : nb::none();
  row["profile"] = report.profile;
  row["tokens"] = report.tokens;
  row["frames"] = report.frames;
  row["lossless_fallbacks"] = report.lossless_fallbacks;
  row["drift_fallbacks"] = report.drift_fallbacks;
  row["raw_bytes"] = report.raw_bytes;
  row["wire_bytes"] = report.wire_bytes;
  row["queue_s"] = report.queue_s;
  row["wire_s"] = report.wire_s;
  row["decode_s"] = report.decode_s;
  row["total_s"] = report.total_s;
  row["link_bytes_per_s"] = report.link_bytes_per_s;
  return row;
}

template <typename Object>
nb::list TakeReports(const Handle<Object>& self) {
  const auto reports = Released(self, [](Object& object) { return object.TakeReports(); });
  nb::list rows;
  for (const auto& report : reports) rows.append(ToDict(report));
  return rows;
}

Sender StartSender(nb::handle_t<CacheHandle> cache, const std::string& listen,
                   const std::string& token_file, const std::optional<nb::bytes>& model,
                   std::uint32_t frame_tokens, std::uint32_t layers_per_frame,
                   std::uint32_t threads, double lease_s, std::uint64_t max_staged_bytes,
                   double pace_bytes_per_s, const CalibrationHandle* calibration,
                   const std::optional<Profile>& fallback) {
  const SenderOptions options{listen,
                              token_file,
                              ToFingerprint(model),
                              frame_tokens,
                              layers_per_frame,
                              threads,
                              lease_s,
                              max_staged_bytes,
                              pace_bytes_per_s,
                              ArtefactOf(calibration),
                              fallback.value_or(Profile{})};
  const PagedCache& paged = nb::cast<CacheHandle&>(cache).cache;
  auto sender = [&] {
    const nb::gil_scoped_release released;
    return Take(KvSender::Start(paged, options));
  }();
  return {nb::borrow(cache), std::move(sender)};
}

Receiver StartReceiver(nb::handle_t<CacheHandle> cache, const std::string& token_file,
                       const std::optional<nb::bytes>& model, std::uint32_t threads,
                       std::uint32_t connections, double stall_s,
                       const CalibrationHandle* calibration) {
  const ReceiverOptions options{token_file, ToFingerprint(model),   threads, connections,
                                stall_s,    ArtefactOf(calibration)};
  const PagedCache& paged = nb::cast<CacheHandle&>(cache).cache;
  auto receiver = [&] {
    const nb::gil_scoped_release released;
    return Take(KvReceiver::Start(paged, options));
  }();
  return {nb::borrow(cache), std::move(receiver)};
}

void BindSender(nb::module_& module) {
  nb::class_<Sender>(module, "Sender")
      .def_static("start", &StartSender, nb::arg("cache"), nb::arg("listen"), nb::arg("token_file"),
                  nb::arg("model").none(), nb::arg("frame_tokens"), nb::arg("layers_per_frame"),
                  nb::arg("threads"), nb::arg("lease_s"), nb::arg("max_staged_bytes"),
                  nb::arg("pace_bytes_per_s"), nb::arg("calibration").none(),
                  nb::arg("fallback").none())
      .def("close", &Sender::Close)
      .def_prop_ro("address", [](const Sender& self) { return self.get()->address(); })
      .def(
          "begin",
          [](const Sender& self, const std::string& ticket, const std::string& profile,
             std::vector<std::int32_t> tokens, const nb::bytes& context, std::uint32_t receivers) {
            Offer offer{profile, std::move(tokens), ToContext(context), receivers};
            Released(self, [&](KvSender& s) { Take(s.Begin(ticket, std::move(offer))); });
          },
          nb::arg("ticket"), nb::arg("profile"), nb::arg("tokens"), nb::arg("context"),
          nb::arg("receivers"))
      .def(
          "stage",
          [](const Sender& self, const std::string& ticket, const Tables& tables, RangeTuple tokens,
             std::uint32_t first_layer, std::uint32_t layers) {
            Released(self, [&](KvSender& s) {
              Take(s.Stage(ticket, tables, ToRange(tokens), first_layer, layers));
            });
          },
          nb::arg("ticket"), nb::arg("tables"), nb::arg("tokens"), nb::arg("first_layer"),
          nb::arg("layers"))
      .def("wait_read",
           [](const Sender& self) { Released(self, [](KvSender& s) { s.WaitRead(); }); })
      .def(
          "withdraw",
          [](const Sender& self, const std::string& ticket, int code, const std::string& message) {
            const Error reason{static_cast<ErrorCode>(code), message};
            Released(self, [&](KvSender& s) { s.Withdraw(ticket, reason); });
          },
          nb::arg("ticket"), nb::arg("code"), nb::arg("message"))
      .def("take_reports", &TakeReports<KvSender>)
      .def_prop_ro("open_tickets", [](const Sender& self) { return self.get()->open_tickets(); })
      .def_prop_ro("staged_bytes", [](const Sender& self) { return self.get()->staged_bytes(); });
}

void BindReceiver(nb::module_& module) {
  nb::class_<Receiver>(module, "Receiver")
      .def_static("start", &StartReceiver, nb::arg("cache"), nb::arg("token_file"),
                  nb::arg("model").none(), nb::arg("threads"), nb::arg("connections"),
                  nb::arg("stall_s"), nb::arg("calibration").none())
      .def("close", &Receiver::Close)
      .def(
          "fetch",
          [](const Receiver& self, std::string id, std::string address, std::string ticket,
             std::vector<std::int32_t> tokens, RangeTuple wanted, Tables tables,
             const nb::bytes& context, double deadline_s) {
            FetchRequest request{std::move(id),     std::move(address), std::move(ticket),
                                 std::move(tokens), ToContext(context), ToRange(wanted),
                                 std::move(tables), deadline_s};
            Released(self, [&](KvReceiver& r) { Take(r.Fetch(std::move(request))); });
          },
          nb::arg("id"), nb::arg("address"), nb::arg("ticket"), nb::arg("tokens"),
          nb::arg("wanted"), nb::arg("tables"), nb::arg("context"), nb::arg("deadline_s"))
      .def(
          "cancel",
          [](const Receiver& self, const std::string& id) {
            Released(self, [&](KvReceiver& r) { r.Cancel(id); });
          },
          nb::arg("id"))
      .def(
          "release",
          [](const Receiver& self, const std::string& address, const std::string& ticket) {
            Released(self, [&](KvReceiver& r) { r.Release(address, ticket); });
          },
          nb::arg("address"), nb::arg("ticket"))
      .def("take_reports", &TakeReports<KvReceiver>)
      .def_prop_ro("running", [](const Receiver& self) { return self.get()->running(); });
}

}  // namespace

void BindTransfer(nb::module_& module) {
  BindSender(module);
  BindReceiver(module);
}

}  // namespace kvserve::python
