#include "kv_file_source.h"

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace kvserve::tool {

KvFileSource::KvFileSource(KvFileReader file, std::uint32_t limit_tokens)
    : file_(std::move(file)), tokens_(file_.info().tokens) {
  tokens_.end = tokens_.begin + std::min(limit_tokens, tokens_.size());
}

Status KvFileSource::ForEachChunk(std::uint32_t chunk_tokens,
                                  const std::function<Status(const ConstKvView&)>& visit) {
  for (std::uint32_t begin = tokens_.begin; begin < tokens_.end;) {
    const std::uint32_t end = begin + std::min(chunk_tokens, tokens_.end - begin);
    KVSERVE_TRY(file_.Read({begin, end}, chunk_));
    KVSERVE_TRY(visit(std::as_const(chunk_).view()));
    begin = end;
  }
  return {};
}

Result<JoinedSource> JoinedSource::Create(std::vector<Part> parts) {
  JoinedSource joined(std::move(parts));
  for (const Part& part : joined.parts_) {
    if (part.source->geometry() != joined.geometry()) {
      return MakeError(
          ErrorCode::kMismatch,
          part.name + ": its layers, shapes or dtype differ from " + joined.parts_.front().name);
    }
    const Fingerprint& model = part.source->model();
    if (model.empty()) continue;
    if (joined.model_.empty()) joined.model_ = model;
    if (model != joined.model_) {
      return MakeError(ErrorCode::kMismatch, part.name + ": is of model " + model.hex() +
                                                 " where data before it is of " +
                                                 joined.model_.hex());
    }
  }
  return joined;
}

std::uint64_t JoinedSource::tokens() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.source->tokens();
  return sum;
}

Status JoinedSource::ForEachChunk(std::uint32_t chunk_tokens,
                                  const std::function<Status(const ConstKvView&)>& visit) {
  for (const Part& part : parts_) {
    if (auto status = part.source->ForEachChunk(chunk_tokens, visit); !status) {
      return MakeError(status.error().code, part.name + ": " + status.error().message);
    }
  }
  return {};
}

Status JoinedSource::TapQueries(QueryTap tap) {
  Status any = CalibrationSource::TapQueries(nullptr);
  for (const Part& part : parts_) {
    Status tapped = part.source->TapQueries(tap);
    if (tapped) any = tapped;
    if (!tapped && tapped.error().code != ErrorCode::kUnsupported) return tapped;
  }
  return any;
}

}  // namespace kvserve::tool
