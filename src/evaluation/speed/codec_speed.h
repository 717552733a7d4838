// Speed of one profile over a set of KV, by the public encoder and decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "evaluation/speed/codec_answer.h"
#include "evaluation/speed/rate.h"
#include "kvserve/codec.h"

namespace kvserve {

struct CodecSpeed {
  Rate encode;  // raw bytes
  Rate decode;
  std::uint64_t raw_bytes = 0;  // of all chunks
  std::uint64_t wire_bytes = 0;
  // One pass over `stage_raw_bytes` with the clocks of the stages on, apart from the rates.
  StageSeconds encode_stages;
  StageSeconds decode_stages;
  std::uint64_t stage_raw_bytes = 0;

  [[nodiscard]] double compression_ratio() const {
    return wire_bytes == 0 ? 0.0 : static_cast<double>(raw_bytes) / static_cast<double>(wire_bytes);
  }
};

struct SpeedOptions {
  std::uint32_t threads = 1;
  double seconds = 0.3;  // to measure encoding for, and decoding; more where one chunk takes longer
  std::uint32_t prompt_tokens = 0;
  std::shared_ptr<const CalibrationArtefact> calibration;  // for profiles that need one
};

// `chunks` are those of one or more requests of the same tokens, each in order. Codes all chunks
// once, which checks frames and values against `answer` (the answer to the first
// chunk; all chunks bit for bit if lossless), then measures in laps over the chunks: input, frames
// and output have memory of their own for each chunk. Needs about 2 times the raw bytes of memory
// beside the chunks. kInternal for a wrong answer; otherwise as FrameEncoder and FrameDecoder.
[[nodiscard]] Result<CodecSpeed> MeasureCodec(std::span<const ConstKvView> chunks,
                                              const Profile& profile, const CodecAnswer& answer,
                                              const SpeedOptions& options);

}  // namespace kvserve
