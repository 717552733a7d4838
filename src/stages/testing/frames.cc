#include "stages/testing/frames.h"

#include "base/try.h"
#include "frame/frame.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/testing/query_sample.h"

namespace kvserve::testing {
Result<FrameEncoder> MakeSampleEncoder(const Profile& profile, const KvGeometry& geometry,
                                       std::uint32_t threads) {
  CodecOptions options;
  options.threads = threads;
  auto encoder = FrameEncoder::Create(profile, options);
  if (encoder || encoder.error().message.find("artefact") == std::string::npos) return encoder;
  options.calibration = SampleArtefact(geometry);
  return FrameEncoder::Create(profile, options);
}

Status EncodeSample(const ConstKvView& view, const Profile& profile, std::vector<std::byte>& out,
                    std::uint32_t threads) {
  KVSERVE_ASSIGN(auto encoder, MakeSampleEncoder(profile, *view.geometry, threads));
  const QuerySample queries(*view.geometry, view.tokens);
  return encoder.Encode(view, {.queries = &queries.view()}, out);
}

Result<std::size_t> DecodeSample(std::span<const std::byte> frame, KvBuffer& out,
                                 std::uint32_t threads) {
  KVSERVE_ASSIGN(const FrameView parsed, ReadFrame(frame));
  CodecOptions options;
  options.threads = threads;
  if (!parsed.header.artefact.empty()) {
    options.calibration = SampleArtefact(ModelGeometry(parsed.header));
  }
  KVSERVE_ASSIGN(auto decoder, FrameDecoder::Create(options));
  return decoder.Decode(frame, {}, out);
}

}  // namespace kvserve::testing
