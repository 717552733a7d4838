#include "evaluation/reference_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/byte_io.h"
#include "base/hash.h"
#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::string_view kMagic = "KVSREF1\n";
constexpr std::uint32_t kVersion = 1;

void WriteOutcome(const ProbeOutcome& outcome, ByteWriter& out) {
  out.Put(outcome.nll);
  out.PutVarint(outcome.answer_tokens);
  out.Put<std::uint8_t>(outcome.top_answer ? 1 : 0);
  out.PutVarint(outcome.generated.size());
  for (const Token token : outcome.generated) out.Put(token);
  out.PutVarint(outcome.output.size());
  out.PutBytes(std::as_bytes(std::span(outcome.output)));
}

Result<ProbeOutcome> ReadOutcome(ByteReader& in) {
  ProbeOutcome outcome;
  KVSERVE_ASSIGN(outcome.nll, in.Get<double>());
  KVSERVE_ASSIGN(outcome.answer_tokens, in.GetVarint());
  KVSERVE_ASSIGN(const auto top, in.Get<std::uint8_t>());
  outcome.top_answer = top != 0;
  KVSERVE_ASSIGN(const std::uint64_t generated, in.GetVarint());
  for (std::uint64_t i = 0; i < generated; ++i) {
    KVSERVE_ASSIGN(const auto token, in.Get<Token>());
    outcome.generated.push_back(token);
  }
  KVSERVE_ASSIGN(const std::uint64_t size, in.GetVarint());
  KVSERVE_ASSIGN(const auto text, in.GetBytes(size));
  outcome.output.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return outcome;
}

Status CheckGenerated(const ProbeOutcome& outcome, std::uint32_t vocabulary) {
  const bool known = std::ranges::all_of(outcome.generated, [&](Token token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < vocabulary;
  });
  if (known) return {};
  return MakeError(ErrorCode::kCorruptData, "a generated token is outside the vocabulary");
}

}  // namespace

std::vector<std::byte> FormatReferences(std::span<const ProbeReference> references) {
  std::vector<std::byte> payload;
  ByteWriter body(payload);
  body.PutVarint(references.size());
  for (const ProbeReference& reference : references) {
    reference.answer.Write(body);
    reference.along.Write(body);
    WriteOutcome(reference.outcome, body);
  }
  const auto magic = std::as_bytes(std::span(kMagic));
  std::vector<std::byte> file(magic.begin(), magic.end());
  ByteWriter out(file);
  out.Put(kVersion);
  out.Put<std::uint64_t>(payload.size());
  out.PutBytes(payload);
  out.Put(Hash64(payload));
  return file;
}

Result<std::vector<ProbeReference>> ParseReferences(std::span<const std::byte> bytes,
                                                    std::size_t probes, std::uint32_t vocabulary) {
  const auto corrupt = [](const char* what) {
    return MakeError(ErrorCode::kCorruptData, std::string(what));
  };
  ByteReader in(bytes);
  KVSERVE_ASSIGN(const auto magic, in.GetBytes(kMagic.size()));
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    return corrupt("it is no file of references");
  }
  KVSERVE_ASSIGN(const auto version, in.Get<std::uint32_t>());
  if (version != kVersion) {
    return MakeError(ErrorCode::kUnsupported, "version " + std::to_string(version));
  }
  KVSERVE_ASSIGN(const auto size, in.Get<std::uint64_t>());
  KVSERVE_ASSIGN(const auto payload, in.GetBytes(size));
  KVSERVE_ASSIGN(const auto checksum, in.Get<std::uint64_t>());
  if (in.remaining() != 0 || checksum != Hash64(payload)) return corrupt("wrong checksum");
  ByteReader body(payload);
  KVSERVE_ASSIGN(const std::uint64_t count, body.GetVarint());
  if (count != probes) return corrupt("references of other probes");
  std::vector<ProbeReference> references;
  for (std::uint64_t i = 0; i < count; ++i) {
    ProbeReference& reference = references.emplace_back();
    KVSERVE_ASSIGN(reference.answer, ReferenceDistributions::Read(body, vocabulary));
    KVSERVE_ASSIGN(reference.along, ReferenceDistributions::Read(body, vocabulary));
    KVSERVE_ASSIGN(reference.outcome, ReadOutcome(body));
    KVSERVE_TRY(CheckGenerated(reference.outcome, vocabulary));
  }
  if (body.remaining() != 0) return corrupt("more bytes than references");
  return references;
}

}  // namespace kvserve
