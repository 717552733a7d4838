#include "kvserve/chunk_assembler.h"

#include <algorithm>
#include <string>

#include "base/plane_bytes.h"
#include "base/token_slice.h"
#include "base/try.h"

namespace kvserve {
namespace {

// Every layer of the model with all tokens, wherever its window is.
Status Resize(const KvGeometry& geometry, TokenRange tokens, KvBuffer& chunk) {
  std::vector<KvBuffer::LayerTokens> layers;
  for (std::uint32_t i = 0; i < geometry.layers.size(); ++i) layers.push_back({i, tokens});
  return chunk.Resize(geometry, tokens, layers);
}

Status CheckFits(const ConstKvView& view, const KvGeometry& geometry, std::uint32_t next_token) {
  KVSERVE_TRY(CheckView(view));
  if (*view.geometry != geometry || view.layers.size() != geometry.layers.size()) {
    return MakeError(ErrorCode::kInvalidArgument, "appended tokens are of another geometry");
  }
  if (view.device != Device::kHost) {
    return MakeError(ErrorCode::kInvalidArgument, "appended tokens are not in host memory");
  }
  if (view.tokens.begin != next_token) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "appended tokens start at " + std::to_string(view.tokens.begin) + " where " +
                         std::to_string(next_token) + " is next");
  }
  for (const auto& layer : view.layers) {
    if (layer.tokens == view.tokens) continue;
    return MakeError(ErrorCode::kInvalidArgument,
                     "layer " + std::to_string(layer.layer) + " lacks some of the tokens");
  }
  return {};
}

void CopyRows(const ConstPlaneView& from, const PlaneView& to, std::uint32_t row) {
  if (from.values() == 0) return;
  GatherBytes(from,
              {to.at(row, 0, 0), static_cast<std::size_t>(from.values() * DTypeBytes(from.dtype))});
}

}  // namespace

Result<ChunkAssembler> ChunkAssembler::Create(const KvGeometry& geometry,
                                              std::uint32_t chunk_tokens,
                                              std::uint32_t first_token) {
  if (chunk_tokens == 0 || chunk_tokens > kMaxTokens - std::min(first_token, kMaxTokens)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "chunks of " + std::to_string(chunk_tokens) + " tokens from token " +
                         std::to_string(first_token) + " on end outside 1.." +
                         std::to_string(kMaxTokens));
  }
  ChunkAssembler assembler;
  KVSERVE_TRY(Resize(geometry, {first_token, first_token + chunk_tokens}, assembler.chunk_));
  return assembler;
}

Status ChunkAssembler::Append(const ConstKvView& view, const TakeChunk& take) {
  KVSERVE_TRY(CheckFits(view, chunk_.geometry(), chunk_.tokens().begin + filled_tokens_));
  for (std::uint32_t begin = view.tokens.begin; begin < view.tokens.end;) {
    const TokenRange range = chunk_.tokens();
    const std::uint32_t count = std::min(range.size() - filled_tokens_, view.tokens.end - begin);
    const ConstKvView piece = SliceTokens(view, {begin, begin + count});
    const KvView chunk = chunk_.view();
    for (std::size_t i = 0; i < piece.layers.size(); ++i) {
      CopyRows(piece.layers[i].k, chunk.layers[i].k, filled_tokens_);
      CopyRows(piece.layers[i].v, chunk.layers[i].v, filled_tokens_);
    }
    begin += count;
    filled_tokens_ += count;
    if (filled_tokens_ < range.size()) continue;
    Status taken = take(std::as_const(chunk_).view());
    const std::uint32_t end = std::min(kMaxTokens, range.end + range.size());
    KVSERVE_TRY(Resize(KvGeometry(chunk_.geometry()), {range.end, end}, chunk_));
    filled_tokens_ = 0;
    if (!taken) return taken;
  }
  return {};
}

ConstKvView ChunkAssembler::rest() const {
  const std::uint32_t begin = chunk_.tokens().begin;
  return SliceTokens(chunk_.view(), {begin, begin + filled_tokens_});
}

}  // namespace kvserve
