// Subtracts a prediction from a plane that both sides have. Along tokens: groups of tokens against
// an anchor, which is sent in 16 bits, so that errors do not add up from token to token. Along
// layers: against the decoded plane of the same kind of an earlier layer. The prediction is
// weighted per head by least squares, so that planes that do not resemble their reference lose
// nothing but the weights. The request's first token is left alone: its outliers resemble no other
// token's.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/convert/raw_floats.h"
#include "kernels/predict/predict.h"
#include "pipeline/plane_switch.h"
#include "pipeline/stage.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kAxis = 1;
constexpr std::uint8_t kGroup = 2;
constexpr std::uint8_t kOn = 3;  // and 4 for V

constexpr std::string_view kAxes[] = {"token", "layer"};
constexpr std::uint32_t kLayerAxis = 1;

constexpr ParameterInfo kParameters[] = {
    {.id = kAxis,
     .name = "axis",
     .type = ParameterType::kChoice,
     .low = 0,
     .high = 1,
     .default_k = 0,
     .help = "predict from an anchor token, or from an earlier layer",
     .choices = kAxes},
    {.id = kGroup,
     .name = "group",
     .type = ParameterType::kInteger,
     .low = 2,
     .high = 4096,
     .default_k = 64,
     .unit = "tokens",
     .help = "tokens that share an anchor, itself included (axis=token)"},
    OnParameter(kOn, "predict this plane"),
};

constexpr StageInfo kInfo = {
    .id = 0x0203,
    .name = "delta",
    .kind = StageKind::kTransform,
    .parameters = kParameters,
    .summary = "differences to an anchor token or to an earlier layer",
};

// Weights are signed bytes, in 64ths.
constexpr float kWeightStep = 0x1p-6F;

std::int8_t WeightCode(const Projection& sums) {
  if (!(sums.energy > 0.0)) return 0;
  const double steps = std::nearbyint(sums.product / sums.energy / double{kWeightStep});
  return static_cast<std::int8_t>(std::clamp(steps, -128.0, 127.0));
}

// Rows without the request's first token.
RealPlane Predicted(const PlaneContext& plane, RealPlane values) {
  if (plane.tokens.begin == 0 && values.tokens > 0) {
    values.data += values.columns();
    --values.tokens;
  }
  return values;
}

// Calls visit(row, row of its reference) for every predicted row.
template <typename Visit>
void ForEachPair(std::uint32_t rows, std::uint32_t group, const Visit& visit) {
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (row % group != 0) visit(row, row / group);
  }
}

// A plane's references: anchors [group of tokens, column] or the rows of an earlier plane.
struct References {
  std::span<const float> rows;
  std::uint32_t group = 0;  // of tokens; 0: row by row

  template <typename Visit>
  void ForEachHead(RealPlane values, const Visit& visit) const {
    const auto visit_row = [&](std::uint32_t row, std::uint32_t reference) {
      for (std::uint32_t head = 0; head < values.heads; ++head) {
        const std::size_t offset = std::size_t{head} * values.dim;
        visit(head, values.span().subspan(std::size_t{row} * values.columns() + offset, values.dim),
              rows.subspan(std::size_t{reference} * values.columns() + offset, values.dim));
      }
    };
    if (group == 0) {
      for (std::uint32_t row = 0; row < values.tokens; ++row) visit_row(row, row);
      return;
    }
    ForEachPair(values.tokens, group, visit_row);
  }
};

void Subtract(const References& references, RealPlane values, ByteWriter& side, Arena& arena) {
  const auto sums = arena.Take<Projection>(values.heads);
  std::fill(sums.begin(), sums.end(), Projection{});
  references.ForEachHead(values, [&](std::uint32_t head, auto row, auto reference) {
    AddProjection(row, reference, sums[head]);
  });
  const auto weights = arena.Take<float>(values.heads);
  for (std::uint32_t head = 0; head < values.heads; ++head) {
    const std::int8_t code = WeightCode(sums[head]);
    side.Put(code);
    weights[head] = static_cast<float>(code) * kWeightStep;
  }
  references.ForEachHead(values, [&](std::uint32_t head, auto row, auto reference) {
    SubtractScaled(row, reference, weights[head]);
  });
}

Status Add(const References& references, RealPlane values, ByteReader& side) {
  KVSERVE_ASSIGN(const auto codes, side.GetBytes(values.heads));
  references.ForEachHead(values, [&](std::uint32_t head, auto row, auto reference) {
    AddScaled(row, reference,
              static_cast<float>(static_cast<std::int8_t>(codes[head])) * kWeightStep);
  });
  return {};
}

// The nearest earlier plane of the same kind, tokens and shape, or null.
const DecodedPlane* Earlier(const PlaneContext& plane, const RealPlane& values) {
  for (std::size_t i = plane.decoded.size(); i-- > 0;) {
    const DecodedPlane& candidate = plane.decoded[i];
    if (candidate.kind == plane.kind && candidate.tokens == plane.tokens &&
        candidate.values.heads == values.heads && candidate.values.dim == values.dim) {
      return &candidate;
    }
  }
  return nullptr;
}

class Delta : public Transform {
 public:
  explicit Delta(const Settings& settings) : settings_(settings) {}

  Status Forward(const PlaneContext& plane, RealPlane values, ByteWriter& side) const override {
    const RealPlane rest = Predicted(plane, values);
    if (!On(plane) || rest.tokens == 0) return {};
    if (needs_feedback()) {
      const References earlier = EarlierRows(plane, rest);
      if (!earlier.rows.empty()) Subtract(earlier, rest, side, *plane.arena);
      return {};
    }
    const References anchors = WriteAnchors(plane, rest, side);
    Subtract(anchors, rest, side, *plane.arena);
    for (std::uint32_t row = 0; row < rest.tokens; row += anchors.group) {
      const auto anchor = rest.span().subspan(std::size_t{row} * rest.columns(), rest.columns());
      std::fill(anchor.begin(), anchor.end(), 0.0F);
    }
    return {};
  }

  Status Inverse(const PlaneContext& plane, RealPlane values, ByteReader& side) const override {
    const RealPlane rest = Predicted(plane, values);
    if (!On(plane) || rest.tokens == 0) return {};
    if (needs_feedback()) {
      const References earlier = EarlierRows(plane, rest);
      return earlier.rows.empty() ? Status() : Add(earlier, rest, side);
    }
    KVSERVE_ASSIGN(const References anchors, ReadAnchors(plane, rest, side));
    KVSERVE_TRY(Add(anchors, rest, side));
    for (std::uint32_t row = 0; row < rest.tokens; row += anchors.group) {
      const auto anchor =
          anchors.rows.subspan(std::size_t{row / anchors.group} * rest.columns(), rest.columns());
      std::copy(anchor.begin(), anchor.end(), rest.data + std::size_t{row} * rest.columns());
    }
    return {};
  }

  [[nodiscard]] bool needs_feedback() const override {
    return settings_.integer(kAxis) == kLayerAxis;
  }

 private:
  [[nodiscard]] bool On(const PlaneContext& plane) const {
    return settings_.integer(kOn, plane.kind) != 0;
  }

  // Empty when there is no such plane.
  static References EarlierRows(const PlaneContext& plane, const RealPlane& rest) {
    const DecodedPlane* earlier = Earlier(plane, rest);
    if (earlier == nullptr) return {};
    const std::size_t skipped = plane.tokens.begin == 0 ? 1 : 0;
    return {earlier->values.span().subspan(skipped * rest.columns())};
  }

  [[nodiscard]] std::span<float> TakeAnchors(const PlaneContext& plane,
                                             const RealPlane& rest) const {
    const std::uint32_t group = settings_.integer(kGroup);
    const std::size_t groups = (std::size_t{rest.tokens} + group - 1) / group;
    return plane.arena->Take<float>(groups * rest.columns());
  }

  // Gives the anchors as a decoder reads them.
  References WriteAnchors(const PlaneContext& plane, const RealPlane& rest,
                          ByteWriter& side) const {
    const std::uint32_t group = settings_.integer(kGroup);
    const auto anchors = TakeAnchors(plane, rest);
    const std::size_t columns = rest.columns();
    for (std::size_t row = 0; row < rest.tokens; row += group) {
      std::copy_n(rest.data + row * columns, columns, anchors.data() + row / group * columns);
    }
    const std::size_t before = side.size();
    WriteRawFloats(plane.frame->geometry->dtype, anchors, side);
    ByteReader written(std::span<const std::byte>(side.bytes()).subspan(before));
    (void)ReadRawFloats(written, anchors);
    return {anchors, group};
  }

  Result<References> ReadAnchors(const PlaneContext& plane, const RealPlane& rest,
                                 ByteReader& side) const {
    const auto anchors = TakeAnchors(plane, rest);
    KVSERVE_TRY(ReadRawFloats(side, anchors));
    return References{anchors, settings_.integer(kGroup)};
  }

  Settings settings_;
};

}  // namespace

const StageEntry& DeltaStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_transform = [](const Settings& settings) -> Result<std::unique_ptr<Transform>> {
        return std::make_unique<Delta>(settings);
      }};
  return entry;
}

}  // namespace kvserve
