#include "frame_sequence.h"

#include "base/try.h"
#include "frame/frame.h"
#include "stages/profile_facts.h"

namespace kvserve::tool {
namespace {

std::string RangeText(TokenRange tokens) {
  return std::to_string(tokens.begin) + ".." + std::to_string(tokens.end);
}

Result<KvFileInfo> Describe(const FrameHeader& header) {
  if (header.layers.size() != header.model_layers) {
    return MakeError(ErrorCode::kUnsupported, "holds " + std::to_string(header.layers.size()) +
                                                  " of " + std::to_string(header.model_layers) +
                                                  " layers; files need all of them");
  }
  KvFileInfo info;
  info.geometry.dtype = header.dtype;
  info.tokens = header.tokens;
  info.model = header.model;
  info.key = header.key;
  info.prompt_tokens = header.prompt_tokens;
  for (const FrameLayer& layer : header.layers) {
    info.geometry.layers.push_back(layer.geometry);
    info.layer_tokens.push_back(layer.tokens);
  }
  return info;
}

// Appends the next frame's tokens to `all`.
Status Join(const KvFileInfo& next, KvFileInfo& all) {
  if (next.model != all.model) {
    return MakeError(ErrorCode::kMismatch,
                     "is of model " + next.model.hex() + ", the first of " + all.model.hex());
  }
  if (next.geometry != all.geometry) {
    return MakeError(ErrorCode::kMismatch, "has another geometry than the first");
  }
  if (next.tokens.begin != all.tokens.end || next.tokens.empty()) {
    return MakeError(ErrorCode::kCorruptData, "holds tokens " + RangeText(next.tokens) +
                                                  " where token " + std::to_string(all.tokens.end) +
                                                  " comes next");
  }
  for (std::size_t i = 0; i < all.layer_tokens.size(); ++i) {
    TokenRange& held = all.layer_tokens[i];
    const TokenRange& added = next.layer_tokens[i];
    if (added.empty() && held.empty()) {
      held = {added.end, added.end};
      continue;
    }
    if (held.empty()) held.begin = held.end = added.begin;
    if (added.begin != held.end) {
      return MakeError(ErrorCode::kCorruptData, "layer " + std::to_string(i) + " holds tokens " +
                                                    RangeText(added) + " after " + RangeText(held));
    }
    held.end = added.end;
  }
  all.tokens.end = next.tokens.end;
  all.key = next.key;  // of the longest prefix
  return {};
}

}  // namespace

tl::unexpected<Error> FrameError(std::size_t index, std::size_t offset, const Error& error) {
  return MakeError(error.code, "frame " + std::to_string(index) + " at byte " +
                                   std::to_string(offset) + ": " + error.message);
}

Result<FrameSequence> ReadFrameSequence(std::span<const std::byte> bytes) {
  if (bytes.empty()) return MakeError(ErrorCode::kCorruptData, "has no bytes");
  FrameSequence sequence;
  for (std::size_t offset = 0; offset < bytes.size();) {
    const std::size_t index = sequence.frame_begin.size();
    const auto frame = ReadFrame(bytes.subspan(offset));
    if (!frame) return FrameError(index, offset, frame.error());
    auto info = Describe(frame->header);
    if (!info) return FrameError(index, offset, info.error());
    if (index == 0) {
      sequence.info = std::move(*info);
    } else if (const auto status = Join(*info, sequence.info); !status) {
      return FrameError(index, offset, status.error());
    }
    sequence.lossless = sequence.lossless && IsLossless(frame->header.stages);
    sequence.frame_begin.push_back(offset);
    offset += frame->frame_bytes;
  }
  return sequence;
}

}  // namespace kvserve::tool
