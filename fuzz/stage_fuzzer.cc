// Any header fields and payloads in a sound envelope: every stage's decoder, by the fast executor,
// by the reference one, and on scalar kernels.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "decode_contract.h"
#include "frame/frame.h"
#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "sealed_frame.h"
#include "stages/testing/reference.h"

namespace kvserve::fuzzing {
namespace {

constexpr std::size_t kMostColumns = 4096;

// The made-up artefact under the name that the frame gives, if its shapes are not too large.
std::shared_ptr<const CalibrationArtefact> ArtefactNamed(std::span<const std::byte> bytes) {
  const auto frame = ReadFrame(bytes);
  if (!frame || frame->header.artefact.empty()) return nullptr;
  const KvGeometry geometry = ModelGeometry(frame->header);
  std::size_t columns = 0;
  for (const LayerGeometry& layer : geometry.layers) {
    columns += std::size_t{layer.kv_heads} * (layer.k_dim + layer.v_dim);
  }
  if (columns > kMostColumns) return nullptr;
  return std::make_shared<const CalibrationArtefact>(testing::SampleArtefact(geometry)->contents(),
                                                     frame->header.artefact);
}

void Check(std::span<const std::byte> frame) {
  CodecOptions options;
  options.calibration = ArtefactNamed(frame);
  auto decoder = FrameDecoder::Create(options);
  if (!decoder) Fail("no decoder");
  KvBuffer out;
  const auto decoded = decoder->Decode(frame, Limits(), out);
  CheckOutcome(decoded, frame.size());
  if (decoded || decoded.error().code != ErrorCode::kMismatch) {
    KvBuffer plain;
    const auto by_reference = testing::DecodeByReference(frame, plain, Limits().max_raw_bytes);
    if (by_reference.has_value() != decoded.has_value()) Fail("another outcome by reference");
    if (decoded) CheckSame(std::as_const(out).view(), std::as_const(plain).view(), "reference");
  }
  const ScalarKernels pinned;
  KvBuffer scalar;
  const auto again = decoder->Decode(frame, Limits(), scalar);
  if (again.has_value() != decoded.has_value()) Fail("another outcome with scalar kernels");
  if (decoded) CheckSame(std::as_const(out).view(), std::as_const(scalar).view(), "scalar kernels");
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvserve::fuzzing::Check(kvserve::fuzzing::SealFrame(std::as_bytes(std::span(data, size))));
  return 0;
}
