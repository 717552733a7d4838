// Encoder, decoder and frames. The interpreter is free while any of them works.
#include "kvserve/codec.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/unique_ptr.h>

#include "glue.h"

namespace kvserve::python {
namespace {

// The bytes of an object with the buffer protocol, held as long as this lives.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  [[nodiscard]] std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

// Of the Python threads that share it, one encodes at a time.
class Request {
 public:
  explicit Request(RequestMemory memory) : memory_(std::move(memory)) {}

  template <typename Encode>
  void With(const Encode& encode) {
    const std::lock_guard lock(mutex_);
    encode(memory_);
  }

 private:
  std::mutex mutex_;
  RequestMemory memory_;
};

class Encoder {
 public:
  Encoder(Profile profile, std::uint32_t threads, const CalibrationHandle* calibration,
          const std::optional<Profile>& fallback)
      : profile_(std::move(profile)),
        encoder_(Take(FrameEncoder::Create(
            profile_, {threads, ArtefactOf(calibration), fallback.value_or(Profile{})}))) {}

  Frame Encode(const ConstKvView& view, EncodeOptions options, Request* request) {
    const nb::gil_scoped_release released;
    Frame frame;
    const std::lock_guard lock(mutex_);
    const auto encode = [&] { Take(encoder_.Encode(view, options, frame.bytes, &seconds_)); };
    if (request == nullptr) {
      encode();
    } else {
      request->With([&](RequestMemory& memory) {
        options.request = &memory;
        encode();
      });
    }
    frame.raw_bytes = RawBytes(view);
    return frame;
  }

  // Of the last frame.
  std::string fallback_reason() {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return encoder_.drift().reason;
  }

  [[nodiscard]] std::unique_ptr<Request> NewRequest() const {
    return std::make_unique<Request>(encoder_.NewRequest());
  }

  [[nodiscard]] const Profile& profile() const { return profile_; }
  StageSeconds seconds() {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  Profile profile_;
  std::mutex mutex_;  // calls of several Python threads take turns
  FrameEncoder encoder_;
  StageSeconds seconds_;
};

class Decoder {
 public:
  Decoder(std::uint32_t threads, const CalibrationHandle* calibration)
      : decoder_(Take(
            FrameDecoder::Create({.threads = threads, .calibration = ArtefactOf(calibration)}))) {}

  std::size_t Decode(const Bytes& frame, const DecodeOptions& options, KvBuffer& out) {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return Take(decoder_.Decode(frame.span(), options, out, &seconds_));
  }

  std::size_t DecodeInto(const Bytes& frame, const DecodeOptions& options, const BorrowedKv& to) {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    const std::size_t length = Take(decoder_.Decode(frame.span(), options, scratch_, &seconds_));
    Take(CopyKv(std::as_const(scratch_).view(), to.view));
    return length;
  }

  // Of the last frame, per token.
  std::vector<bool> dropped() {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    const auto tokens = decoder_.dropped();
    return {tokens.begin(), tokens.end()};
  }

  bool partly_dropped() {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return decoder_.partly_dropped();
  }

  StageSeconds seconds() {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  std::mutex mutex_;
  FrameDecoder decoder_;
  KvBuffer scratch_;  // what goes into tensors; its memory is kept
  StageSeconds seconds_;
};

int GetFrameBuffer(PyObject* self, Py_buffer* buffer, int flags) {
  const auto& bytes = nb::inst_ptr<Frame>(self)->bytes;
  return PyBuffer_FillInfo(buffer, self, const_cast<std::byte*>(bytes.data()),
                           static_cast<Py_ssize_t>(bytes.size()), 1, flags);
}
PyType_Slot frame_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&GetFrameBuffer)},
                             {0, nullptr}};

void BindFrame(nb::module_& module) {
  nb::class_<Frame>(module, "Frame", nb::type_slots(frame_slots),
                    "The bytes of one frame. Has the buffer protocol: what takes bytes takes it, "
                    "and bytes(frame) copies them.")
      .def("__len__", [](const Frame& self) { return self.bytes.size(); })
      .def("__bytes__",
           [](const Frame& self) { return nb::bytes(self.bytes.data(), self.bytes.size()); })
      .def(
          "__buffer__",
          [](nb::handle self, int /*flags*/) {
            return nb::steal(PyMemoryView_FromObject(self.ptr()));
          },
          nb::arg("flags"), nb::sig("def __buffer__(self, flags: int, /) -> memoryview"))
      .def_ro("raw_bytes", &Frame::raw_bytes, "of the KV, in the cache dtype");
}

template <typename Kv, typename ViewOf>
void DefineEncode(nb::class_<Encoder>& encoder, ViewOf view_of) {
  encoder.def(
      "encode",
      [view_of](Encoder& self, const Kv& kv, const std::optional<nb::bytes>& model,
                const std::optional<nb::bytes>& key, std::uint32_t prompt_tokens,
                Request* request) {
        return self.Encode(view_of(kv), {ToFingerprint(model), ToFingerprint(key), prompt_tokens},
                           request);
      },
      nb::arg("kv"), nb::arg("model") = nb::none(), nb::arg("key") = nb::none(),
      nb::arg("prompt_tokens") = 0, nb::arg("request") = nb::none());
}

void BindEncoder(nb::module_& module) {
  const nb::class_<Request> request(
      module, "Request", "What an encoder remembers of one request from frame to frame.");
  nb::class_<Encoder> encoder(module, "Encoder");
  encoder.def(nb::init<Profile, std::uint32_t, const CalibrationHandle*, std::optional<Profile>>(),
              nb::arg("profile"), nb::arg("threads") = 1, nb::arg("calibration") = nb::none(),
              nb::arg("fallback") = nb::none());
  DefineEncode<BorrowedKv>(encoder, [](const BorrowedKv& kv) { return ReadOnly(kv.view); });
  DefineEncode<Chunk>(encoder, [](const Chunk& kv) { return kv.buffer.view(); });
  encoder.def("new_request", &Encoder::NewRequest)
      .def_prop_ro("fallback_reason", &Encoder::fallback_reason)
      .def_prop_ro("profile", &Encoder::profile)
      .def_prop_ro("stage_seconds", &Encoder::seconds,
                   "seconds spent per stage so far, summed over threads");
}

void BindDecoder(nb::module_& module) {
  using Optional = std::optional<nb::bytes>;
  nb::class_<Decoder>(module, "Decoder")
      .def(nb::init<std::uint32_t, const CalibrationHandle*>(), nb::arg("threads") = 1,
           nb::arg("calibration") = nb::none())
      .def(
          "decode",
          [](Decoder& self, nb::handle frame, const Optional& model, const Optional& key,
             std::uint64_t max_raw_bytes) {
            Chunk chunk;
            const Bytes bytes(frame);
            const DecodeOptions options{ToFingerprint(model), ToFingerprint(key), max_raw_bytes};
            const std::size_t length = self.Decode(bytes, options, chunk.buffer);
            return std::pair(std::move(chunk), length);
          },
          nb::arg("frame"), nb::arg("model") = nb::none(), nb::arg("key") = nb::none(),
          nb::arg("max_raw_bytes") = DecodeOptions{}.max_raw_bytes,
          nb::sig("def decode(self, frame: object, model: bytes | None = None, key: bytes | None "
                  "= None, max_raw_bytes: int = 17179869184) -> tuple[Chunk, int]"))
      .def(
          "decode_into",
          [](Decoder& self, nb::handle frame, const BorrowedKv& to, const Optional& model,
             const Optional& key, std::uint64_t max_raw_bytes) {
            if (!to.writable) Raise(ErrorCode::kInvalidArgument, "the tensors are read-only");
            const Bytes bytes(frame);
            return self.DecodeInto(bytes, {ToFingerprint(model), ToFingerprint(key), max_raw_bytes},
                                   to);
          },
          nb::arg("frame"), nb::arg("to"), nb::arg("model") = nb::none(),
          nb::arg("key") = nb::none(), nb::arg("max_raw_bytes") = DecodeOptions{}.max_raw_bytes)
      .def_prop_ro("dropped", &Decoder::dropped)
      .def_prop_ro("partly_dropped", &Decoder::partly_dropped)
      .def_prop_ro("stage_seconds", &Decoder::seconds,
                   "seconds spent per stage so far, summed over threads");
}

}  // namespace

void BindCodec(nb::module_& module) {
  BindFrame(module);
  BindEncoder(module);
  BindDecoder(module);
  module.def(
      "prefix_key",
      [](const nb::bytes& model, const std::vector<std::int32_t>& tokens) {
        return ToBytes(PrefixKey(ToFingerprint(model), tokens));
      },
      nb::arg("model"), nb::arg("tokens"),
      "Identity of a token prefix, 16 bytes: XXH3-128 over the token ids, seeded by the model.");
}

}  // namespace kvserve::python
