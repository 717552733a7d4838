#include "evaluation/speed/codec_speed.h"

#include <utility>
#include <vector>

#include "base/try.h"
#include "evaluation/speed/repetitions.h"

namespace kvserve {
namespace {

constexpr std::uint64_t kStageBytes = 32U << 20;  // enough for a steady split of the time

class Laps {
 public:
  static Result<Laps> Create(std::span<const ConstKvView> chunks, const Profile& profile,
                             const SpeedOptions& options) {
    const CodecOptions codec{.threads = options.threads, .calibration = options.calibration};
    KVSERVE_ASSIGN(FrameEncoder encoder, FrameEncoder::Create(profile, codec));
    KVSERVE_ASSIGN(FrameDecoder decoder, FrameDecoder::Create(codec));
    return Laps(chunks, std::move(encoder), std::move(decoder), options.prompt_tokens);
  }

  // Raw bytes of the chunk.
  Result<std::uint64_t> Encode(std::size_t i, StageSeconds* seconds = nullptr) {
    frames_[i].clear();
    if (chunks_[i].tokens.begin == chunks_.front().tokens.begin) request_ = encoder_.NewRequest();
    options_.request = &request_;
    KVSERVE_TRY(encoder_.Encode(chunks_[i], options_, frames_[i], seconds));
    return RawBytes(chunks_[i]);
  }
  Result<std::uint64_t> Decode(std::size_t i, StageSeconds* seconds = nullptr) {
    KVSERVE_TRY(decoder_.Decode(frames_[i], {}, decoded_[i], seconds));
    return RawBytes(chunks_[i]);
  }

  // The lap before any clock runs: fills all memory and checks what it holds.
  Status Check(const CodecAnswer& answer, CodecSpeed& speed) {
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      KVSERVE_ASSIGN(const std::uint64_t raw_bytes, Encode(i));
      KVSERVE_TRY(Decode(i));
      speed.raw_bytes += raw_bytes;
      speed.wire_bytes += frames_[i].size();
      const ConstKvView decoded = std::as_const(decoded_[i]).view();
      if (answer.lossless) KVSERVE_TRY(CheckSame(chunks_[i], decoded));
      if (i != 0) continue;
      KVSERVE_TRY(CheckEncoded(answer, frames_[i]));
      KVSERVE_TRY(CheckSame(answer.decoded.view(), decoded));
    }
    return {};
  }

  Status ClockStages(CodecSpeed& speed) {
    for (std::size_t i = 0; i < chunks_.size() && speed.stage_raw_bytes < kStageBytes; ++i) {
      KVSERVE_ASSIGN(const std::uint64_t raw_bytes, Encode(i, &speed.encode_stages));
      KVSERVE_TRY(Decode(i, &speed.decode_stages));
      speed.stage_raw_bytes += raw_bytes;
    }
    return {};
  }

 private:
  Laps(std::span<const ConstKvView> chunks, FrameEncoder encoder, FrameDecoder decoder,
       std::uint32_t prompt_tokens)
      : chunks_(chunks),
        encoder_(std::move(encoder)),
        decoder_(std::move(decoder)),
        request_(encoder_.NewRequest()),
        frames_(chunks.size()),
        decoded_(chunks.size()) {
    options_.prompt_tokens = prompt_tokens;
  }

  std::span<const ConstKvView> chunks_;
  FrameEncoder encoder_;
  FrameDecoder decoder_;
  RequestMemory request_;  // that the last chunk belongs to
  EncodeOptions options_;
  std::vector<std::vector<std::byte>> frames_;  // [chunk]
  std::vector<KvBuffer> decoded_;               // [chunk]
};

}  // namespace

Result<CodecSpeed> MeasureCodec(std::span<const ConstKvView> chunks, const Profile& profile,
                                const CodecAnswer& answer, const SpeedOptions& options) {
  if (chunks.empty()) return MakeError(ErrorCode::kInvalidArgument, "there is nothing to code");
  KVSERVE_ASSIGN(Laps laps, Laps::Create(chunks, profile, options));
  CodecSpeed speed;
  KVSERVE_TRY(laps.Check(answer, speed));
  KVSERVE_ASSIGN(speed.encode, MeasureRate(chunks.size(), options.seconds,
                                           [&](std::size_t i) { return laps.Encode(i); }));
  KVSERVE_ASSIGN(speed.decode, MeasureRate(chunks.size(), options.seconds,
                                           [&](std::size_t i) { return laps.Decode(i); }));
  KVSERVE_TRY(laps.ClockStages(speed));
  return speed;
}

}  // namespace kvserve
