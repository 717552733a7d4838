// Any bytes as one plane's side bytes, symbols or values: every quantizer and transform, over the
// whole plane and by rows.
//
// Input: u8 (modulo 4: 0 quantizer's decoder, 1 its encoder, 2 transform's inverse, 3 forward; bit
// 2: the second way runs on scalar kernels); stage (see chosen_stage.h); plane (see plane_case.h).
#include <cstdint>
#include <optional>

#include "chosen_stage.h"
#include "decode_contract.h"
#include "plane_case.h"
#include "plane_ways.h"

namespace kvserve::fuzzing {
namespace {

constexpr std::size_t kMostValues = 1U << 11;

// Runs `second` on scalar kernels if asked.
template <typename Way>
auto Secondly(bool scalar, const Way& second) {
  std::optional<ScalarKernels> pinned;
  if (scalar) pinned.emplace();
  return second();
}

template <typename Ways>
void CheckQuantizer(const Ways& ways, bool encode, bool scalar) {
  if (!encode) {
    const auto whole = ways.DecodeWhole();
    const auto second = Secondly(scalar, [&] { return ways.DecodeAgain(); });
    CheckSame(whole, second, "dequantized");
    return;
  }
  const auto whole = ways.EncodeWhole();
  const auto second = Secondly(scalar, [&] { return ways.EncodeAgain(); });
  if (whole != second) Fail("another way quantizes to other symbols or side bytes");
  if (whole) ways.CheckDecodes(*whole);
}

void CheckQuantizer(const StageInfo& info, const Quantizer& quantizer, const PlaneCase& plane,
                    bool encode, bool scalar) {
  SymbolPlane planned;
  planned.layer = plane.context().layer;
  planned.kind = plane.context().kind;
  planned.tokens = plane.shape().tokens;
  if (!quantizer.Plan(plane.context(), plane.dtype(), plane.shape().heads, plane.shape().dim,
                      planned)) {
    return;
  }
  if (planned.alphabet < 1 || planned.alphabet > 256) Fail("an alphabet outside 1..256");
  if (info.domain == QuantizerDomain::kNative) {
    CheckQuantizer(NativeWays(quantizer, plane, planned, info.lossless), encode, scalar);
  } else {
    CheckQuantizer(RealWays(quantizer, plane, planned), encode, scalar);
  }
}

void CheckTransform(const Transform& transform, PlaneCase& plane, bool forward, bool scalar) {
  if (transform.needs_feedback()) (void)plane.earlier();
  const TransformWays ways(transform, plane);
  if (!forward) {
    const auto whole = ways.InverseWhole();
    const auto second = Secondly(scalar, [&] { return ways.InverseAgain(); });
    CheckSame(whole, second, "inverted");
    return;
  }
  const auto whole = ways.ForwardWhole();
  const auto second = Secondly(scalar, [&] { return ways.ForwardAgain(); });
  CheckSame(whole.values, second.values, "transformed");
  if (whole.side != second.side) Fail("another way writes other side bytes");
  if (whole.values) ways.CheckInverts(whole);
}

void Check(Choices& choices) {
  const std::uint8_t what = choices.Byte();
  const bool scalar = (what & 4) != 0;
  const bool encode = (what & 1) != 0;
  const StageKind kind = (what & 2) != 0 ? StageKind::kTransform : StageKind::kQuantizer;
  const auto chosen = ChooseStage(kind, choices);
  if (!chosen) return;
  PlaneCase plane(choices);
  if (plane.values() == 0 || plane.values() > kMostValues) return;
  // Chains refuse to compute with opaque bytes.
  if (!DTypeHoldsNumbers(plane.dtype()) &&
      chosen->entry->info->domain != QuantizerDomain::kNative) {
    return;
  }
  if (kind == StageKind::kTransform) {
    const auto transform = chosen->entry->make_transform(chosen->settings);
    if (!transform) return;
    if ((*transform)->needs_artefact()) plane.Calibrate();
    return CheckTransform(**transform, plane, encode, scalar);
  }
  const auto quantizer = chosen->entry->make_quantizer(chosen->settings);
  if (!quantizer) return;
  if ((*quantizer)->needs_artefact()) plane.Calibrate();
  CheckQuantizer(*chosen->entry->info, **quantizer, plane, encode, scalar);
}

}  // namespace
}  // namespace kvserve::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kvserve::fuzzing::Choices choices({data, size});
  kvserve::fuzzing::Check(choices);
  return 0;
}
