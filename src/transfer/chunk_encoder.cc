#include "transfer/chunk_encoder.h"

#include <utility>

#include "base/try.h"
#include "stages/profile_facts.h"

namespace kvserve {

ChunkEncoder::ChunkEncoder(FrameEncoder encoder, bool plain, CodecOptions options)
    : encoder_(std::move(encoder)), plain_(plain), options_(std::move(options)) {}

Result<ChunkEncoder> ChunkEncoder::Create(const Profile& profile, CodecOptions options) {
  KVSERVE_ASSIGN(const ProfileFacts facts,
                 FactsOf(profile.stages, DType::kFloat16, ProfileOrigin::kCaller));
  KVSERVE_TRY(CheckNeedsNoQueries(facts));
  KVSERVE_ASSIGN(auto encoder, FrameEncoder::Create(profile, options));
  KVSERVE_ASSIGN(const Profile none, ParseProfile("none"));
  return ChunkEncoder(std::move(encoder), profile.stages == none.stages, std::move(options));
}

Result<bool> ChunkEncoder::Encode(const ConstKvView& view, const EncodeOptions& options,
                                  std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  const Status status = encoder_.Encode(view, options, out);
  if (!status && (plain_ || status.error().code != ErrorCode::kBadInput)) {
    return tl::unexpected(status.error());
  }
  clamped_values_ = status ? encoder_.clamped_values() : 0;
  const std::uint64_t raw_bytes = RawBytes(view);
  if (plain_ || (status && out.size() - begin <= raw_bytes)) return false;
  const std::size_t by_profile = out.size();
  KVSERVE_TRY(EncodeBy("lossless", lossless_, view, options, begin, out));
  if (out.size() - begin > raw_bytes) {
    KVSERVE_TRY(EncodeBy("none", none_, view, options, begin, out));
  }
  const bool fell_back = !status || out.size() != by_profile;
  if (fell_back) clamped_values_ = 0;
  return fell_back;
}

Status ChunkEncoder::EncodeBy(const char* profile, std::optional<FrameEncoder>& encoder,
                              const ConstKvView& view, EncodeOptions options, std::size_t begin,
                              std::vector<std::byte>& out) {
  options.request = nullptr;  // of the profile's own chain
  if (!encoder) {
    KVSERVE_ASSIGN(const Profile parsed, ParseProfile(profile));
    KVSERVE_ASSIGN(auto made, FrameEncoder::Create(parsed, options_));
    encoder.emplace(std::move(made));
  }
  spare_.clear();
  KVSERVE_TRY(encoder->Encode(view, options, spare_));
  if (out.size() > begin && out.size() - begin <= spare_.size()) return {};
  out.resize(begin);
  out.insert(out.end(), spare_.begin(), spare_.end());
  return {};
}

}  // namespace kvserve
