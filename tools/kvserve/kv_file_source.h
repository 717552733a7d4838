// KV files, and several sources, as one source to calibrate on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibration/calibration_source.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {

// The first `limit_tokens` tokens of one KV file.
class KvFileSource final : public CalibrationSource {
 public:
  KvFileSource(KvFileReader file, std::uint32_t limit_tokens);

  [[nodiscard]] const KvGeometry& geometry() const override { return file_.info().geometry; }
  [[nodiscard]] const Fingerprint& model() const override { return file_.info().model; }
  [[nodiscard]] std::uint64_t tokens() const override { return tokens_.size(); }
  [[nodiscard]] Status ForEachChunk(
      std::uint32_t chunk_tokens, const std::function<Status(const ConstKvView&)>& visit) override;

 private:
  KvFileReader file_;
  TokenRange tokens_;
  KvBuffer chunk_;
};

// One source after the other; all are of one model.
class JoinedSource final : public CalibrationSource {
 public:
  // At least one part. kMismatch names the part whose geometry or model differs from those before.
  struct Part {
    std::string name;
    std::unique_ptr<CalibrationSource> source;
  };
  [[nodiscard]] static Result<JoinedSource> Create(std::vector<Part> parts);

  [[nodiscard]] const KvGeometry& geometry() const override {
    return parts_.front().source->geometry();
  }
  [[nodiscard]] const Fingerprint& model() const override { return model_; }
  [[nodiscard]] std::uint64_t tokens() const override;
  // An error names the part.
  [[nodiscard]] Status ForEachChunk(
      std::uint32_t chunk_tokens, const std::function<Status(const ConstKvView&)>& visit) override;
  // Of the parts that have queries; kUnsupported if there is none.
  [[nodiscard]] Status TapQueries(QueryTap tap) override;

 private:
  explicit JoinedSource(std::vector<Part> parts) : parts_(std::move(parts)) {}
  std::vector<Part> parts_;
  Fingerprint model_;
};

}  // namespace kvserve::tool
