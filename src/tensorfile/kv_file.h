// KV of one prompt as a safetensors file: tensors k.<layer> and v.<layer>, [token, head, dim].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/view.h"
#include "tensorfile/safetensors.h"

namespace kvserve {

// What a KV file says beside the values. The metadata keys (all strings; lists are JSON):
//   kvserve.layout         "token,head,dim"
//   kvserve.model, .key    fingerprints, 32 hex digits; absent: not known
//   kvserve.dtype          "float16", ... of the engine's cache, the same as the tensors'
//   kvserve.tokens         [begin, end] of the request's tokens
//   kvserve.prompt_tokens  decimal; absent: not known
//   kvserve.first_token    per layer, the first token that it holds
//   kvserve.window         per layer, 0: all tokens
//   kvserve.rope_style     per layer, "none", "interleaved" or "halves"
//   kvserve.rope_theta     per layer, 0 without RoPE
// Each key may be missing: tokens then start at 0 and keys are taken as not rotated.
struct KvFileInfo {
  KvGeometry geometry;
  TokenRange tokens;
  std::vector<TokenRange> layer_tokens;  // [layer], inside `tokens`
  Fingerprint model;
  Fingerprint key;
  std::uint32_t prompt_tokens = 0;
};

// The info of a file that holds exactly the view's tokens; all layers must be in the view.
[[nodiscard]] Result<KvFileInfo> DescribeView(const ConstKvView& view);

// Raw bytes of all tensors.
[[nodiscard]] std::uint64_t RawBytes(const KvFileInfo& info);

// "none", "interleaved" or "halves", for a style that CheckGeometry accepts.
[[nodiscard]] std::string_view RopeStyleName(RopeStyle style);

// 32 hex digits; kInvalidArgument otherwise.
[[nodiscard]] Result<Fingerprint> ParseFingerprint(std::string_view hex);

class KvFileReader {
 public:
  // kBadInput names the tensor, axis or metadata key that is wrong; kUnsupported an unknown dtype.
  [[nodiscard]] static Result<KvFileReader> Open(const std::string& path);

  [[nodiscard]] const KvFileInfo& info() const { return info_; }
  // Reads the part of `tokens` that each layer holds; `out` is resized. kInvalidArgument when the
  // range is not inside info().tokens.
  [[nodiscard]] Status Read(TokenRange tokens, KvBuffer& out) const;

 private:
  explicit KvFileReader(SafetensorsReader file) : file_(std::move(file)) {}

  SafetensorsReader file_;
  KvFileInfo info_;
  std::vector<TensorInfo> planes_;  // [2 * layer + plane]; without name where there is no V
};

// Takes chunks in any order; nothing is buffered. Commit fails with kInvalidArgument unless as many
// token rows were written as the info states.
class KvFileWriter {
 public:
  [[nodiscard]] static Result<KvFileWriter> Create(const std::string& path, const KvFileInfo& info);

  // Any strides, host memory. kMismatch when the chunk's geometry or tokens do not fit the info.
  [[nodiscard]] Status Write(const ConstKvView& chunk);
  [[nodiscard]] Status Commit();

 private:
  KvFileWriter(SafetensorsWriter file, KvFileInfo info)
      : file_(std::move(file)), info_(std::move(info)) {}

  SafetensorsWriter file_;
  KvFileInfo info_;
  std::vector<std::size_t> first_tensor_;  // [layer], index of the K tensor; V follows
  std::uint64_t missing_rows_ = 0;         // token rows over all layers, not yet written
};

// Writes a whole chunk to a file in one call.
[[nodiscard]] Status WriteKvFile(const std::string& path, const ConstKvView& view,
                                 const KvFileInfo& info);

}  // namespace kvserve
