#include "evaluation/capture_store.h"

#include <filesystem>
#include <system_error>

#include "base/byte_io.h"
#include "base/hash.h"
#include "base/try.h"
#include "evaluation/prompt_identity.h"
#include "evaluation/reference_file.h"
#include "kvserve/codec.h"
#include "tensorfile/input_file.h"
#include "tensorfile/output_file.h"

namespace kvserve {
namespace {

// Raised when files of an older program must not be used any more.
constexpr std::uint32_t kEntryVersion = 1;

void PutText(std::string_view text, ByteWriter& out) {
  out.PutVarint(text.size());
  out.PutBytes(std::as_bytes(std::span(text)));
}

// All that the captured KV depends on.
void PutContext(const CaptureStore::Identity& identity, const EvaluationPrompt& prompt,
                ByteWriter& out) {
  out.Put(kEntryVersion);
  out.PutBytes(std::as_bytes(std::span(identity.model.bytes)));
  PutText(identity.engine, out);
  out.Put(identity.chunk_tokens);
  PutTokens(prompt.context, out);
}

Status WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  KVSERVE_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVSERVE_TRY(file.Append(bytes));
  return file.Commit();
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

Result<CaptureStore> CaptureStore::Open(const std::string& folder, Identity identity,
                                        std::function<void(const std::string&)> notice) {
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (!std::filesystem::is_directory(folder)) {
    return MakeError(ErrorCode::kBadInput,
                     folder + ": no folder to keep captures in: " + fault.message());
  }
  return CaptureStore(folder, std::move(identity), std::move(notice));
}

std::string CaptureStore::KvPath(const EvaluationPrompt& prompt) const {
  std::vector<std::byte> key;
  ByteWriter out(key);
  PutContext(identity_, prompt, out);
  return folder_ + "/" + Hash128(key).hex() + ".kvs";
}

std::string CaptureStore::ReferencePath(const EvaluationPrompt& prompt) const {
  std::vector<std::byte> key;
  ByteWriter out(key);
  PutContext(identity_, prompt, out);
  PutProbes(prompt, out);
  return folder_ + "/" + Hash128(key).hex() + ".ref";
}

Status CaptureStore::ReadKv(const std::string& path, const EvaluationPrompt& prompt,
                            KvBuffer& kv) const {
  KVSERVE_ASSIGN(const auto bytes, ReadFile(path));
  const DecodeOptions options{.model = identity_.model,
                              .key = PrefixKey(identity_.model, prompt.context)};
  KVSERVE_ASSIGN(const std::size_t length, DecodeFrame(bytes, options, kv));
  const auto total = static_cast<std::uint32_t>(prompt.context.size());
  if (length == bytes.size() && kv.geometry() == identity_.geometry &&
      kv.tokens() == TokenRange{0, total}) {
    return {};
  }
  return MakeError(ErrorCode::kMismatch, "it is not the KV of this prompt");
}

bool CaptureStore::LoadKv(const EvaluationPrompt& prompt, KvBuffer& kv) {
  const std::string path = KvPath(prompt);
  if (!Exists(path)) return false;
  const Status read = ReadKv(path, prompt, kv);
  if (read) return true;
  notice_(path + " is computed anew: " + read.error().message);
  return false;
}

Result<std::vector<ProbeReference>> CaptureStore::ReadReferences(
    const std::string& path, const EvaluationPrompt& prompt) const {
  KVSERVE_ASSIGN(const auto bytes, ReadFile(path));
  return ParseReferences(bytes, prompt.probes.size(), identity_.vocabulary);
}

std::optional<std::vector<ProbeReference>> CaptureStore::LoadReferences(
    const EvaluationPrompt& prompt) {
  const std::string path = ReferencePath(prompt);
  if (!Exists(path)) return std::nullopt;
  auto read = ReadReferences(path, prompt);
  if (read) return std::move(*read);
  notice_(path + " is computed anew: " + read.error().message);
  return std::nullopt;
}

Status CaptureStore::SaveKv(const EvaluationPrompt& prompt, const KvBuffer& kv) {
  KVSERVE_ASSIGN(const Profile profile, ParseProfile("lossless"));
  EncodeOptions options;
  options.model = identity_.model;
  options.key = PrefixKey(identity_.model, prompt.context);
  options.prompt_tokens = kv.tokens().end;
  std::vector<std::byte> frame;
  KVSERVE_TRY(EncodeFrame(kv.view(), profile, options, frame));
  return WriteFile(KvPath(prompt), frame);
}

Status CaptureStore::SaveReferences(const EvaluationPrompt& prompt,
                                    std::span<const ProbeReference> references) {
  return WriteFile(ReferencePath(prompt), FormatReferences(references));
}

}  // namespace kvserve
