#include "transfer/encode_pool.h"

#include <cstdint>
#include <exception>
#include <utility>

#include "base/try.h"
#include "net/messages.h"

namespace kvserve {

EncodePool::EncodePool(TicketTable& tickets, const Fingerprint& model,
                       std::shared_ptr<const CalibrationArtefact> calibration, Profile fallback,
                       std::uint32_t threads)
    : tickets_(tickets),
      model_(model),
      calibration_(std::move(calibration)),
      fallback_(std::move(fallback)),
      jobs_(SIZE_MAX) {
  try {
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {
    Stop();
    throw;
  }
}

EncodePool::~EncodePool() {
  Stop();
}

void EncodePool::Stop() {
  jobs_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void EncodePool::Push(std::shared_ptr<StagedOffer> offer, GatheredFrame frame) {
  if (offer->TakeTurn(frame)) (void)jobs_.Push({std::move(offer), std::move(frame)});
}

void EncodePool::Run() {
  Encoders encoders;
  std::vector<std::byte> scratch;
  while (auto job = jobs_.Pop()) {
    if (job->offer->ended()) continue;
    Status status;
    try {
      status = Encode(*job, encoders, scratch);
    } catch (const std::exception& error) {
      status = MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
    }
    if (!status) tickets_.End(*job->offer, OfferOutcome::kFailed, status.error());
    if (auto next = job->offer->NextInTurn()) {
      (void)jobs_.Push({std::move(job->offer), std::move(*next)});
    }
  }
}

// The frame is copied out of `scratch`, which keeps its capacity, so that what waits for receivers
// is no larger than its bytes.
Status EncodePool::Encode(Job& job, Encoders& encoders, std::vector<std::byte>& scratch) {
  const auto begin = Clock::now();
  StagedOffer& offer = *job.offer;
  KVSERVE_ASSIGN(ChunkEncoder * encoder, EncoderFor(offer, encoders));
  const ConstKvView view = std::as_const(*job.frame.kv).view();
  const auto prefix = std::span(offer.offer().tokens).first(view.tokens.end);
  EncodeOptions options{model_, PrefixKey(offer.seed(), prefix), offer.grid().tokens()};
  // Others may encode frames of this offer at the same time.
  if (offer.request().looks_back()) options.request = &offer.request();
  BeginChunk(scratch);
  KVSERVE_ASSIGN(const bool fell_back, encoder->Encode(view, options, scratch));
  ChunkInfo info{view.tokens, RawBytes(view)};
  info.encode_s = SecondsSince(begin);
  KVSERVE_TRY(FinishChunk(info, scratch));
  auto frame = std::make_shared<ReadyFrame>();
  frame->payload.assign(scratch.begin(), scratch.end());
  frame->raw_bytes = info.raw_bytes;
  frame->encode_s = info.encode_s;
  frame->fell_back = fell_back;
  if (!fell_back) frame->drift = encoder->drift();
  job.frame.kv.reset();
  frame->share = std::move(job.frame.share);
  frame->share.Set(frame->payload.size());
  offer.AddFrame(job.frame.index, std::move(frame));
  return {};
}

Result<ChunkEncoder*> EncodePool::EncoderFor(const StagedOffer& offer, Encoders& encoders) {
  const std::string& profile = offer.offer().profile;
  for (auto known = encoders.begin(); known != encoders.end(); ++known) {
    if (known->profile != profile) continue;
    encoders.splice(encoders.begin(), encoders, known);
    return &known->encoder;
  }
  // One thread: the engine's threads and the other encoders have the other cores.
  KVSERVE_ASSIGN(auto made, ChunkEncoder::Create(offer.profile(), {.threads = 1,
                                                                   .calibration = calibration_,
                                                                   .fallback = fallback_}));
  encoders.push_front({profile, std::move(made)});
  if (encoders.size() > kMaxEncoders) encoders.pop_back();
  return &encoders.front().encoder;
}

}  // namespace kvserve
