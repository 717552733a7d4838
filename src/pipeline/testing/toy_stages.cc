#include "pipeline/testing/toy_stages.h"

#include <array>

#include "pipeline/testing/toy_factories.h"

namespace kvserve::testing {
namespace {

template <typename T>
Result<std::unique_ptr<T>> Unique(std::unique_ptr<T> stage) {
  return stage;
}

constexpr ParameterInfo kScaleParameters[] = {{.id = 1,
                                               .name = "factor",
                                               .type = ParameterType::kReal,
                                               .low = 0.125,
                                               .high = 8,
                                               .default_k = 1,
                                               .default_v = 2,
                                               .per_plane = true}};
constexpr std::string_view kModes[] = {"midpoint", "mean"};
constexpr ParameterInfo kClassesParameters[] = {
    {.id = 1,
     .name = "step",
     .type = ParameterType::kReal,
     .low = 1e-6,
     .high = 1e6,
     .default_k = 0.5},
    {.id = 2, .name = "mode", .type = ParameterType::kChoice, .choices = kModes},
    {.id = 3,
     .name = "clip",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 126,
     .default_k = 126},
};
constexpr ParameterInfo kContextParameters[] = {
    {.id = 1, .name = "earlier", .type = ParameterType::kBoolean, .default_k = 1}};

constexpr StageInfo kWeigh{
    .id = 0x0101, .name = "weigh", .kind = StageKind::kSelector, .lossless = true};
constexpr StageInfo kScale{.id = 0x0201, .name = "scale", .parameters = kScaleParameters};
constexpr StageInfo kPredict{.id = 0x0202, .name = "predict", .version = 3, .oldest_version = 2};
constexpr StageInfo kNone{.id = 0x0301,
                          .name = "none",
                          .kind = StageKind::kQuantizer,
                          .lossless = true,
                          .domain = QuantizerDomain::kNative};
constexpr StageInfo kLossless{.id = 0x0303,
                              .name = "lossless",
                              .kind = StageKind::kQuantizer,
                              .lossless = true,
                              .domain = QuantizerDomain::kNative};
constexpr StageInfo kClasses{.id = 0x0304,
                             .name = "classes",
                             .kind = StageKind::kQuantizer,
                             .parameters = kClassesParameters};
constexpr StageInfo kNoneCodec{
    .id = 0x0401, .name = "none", .kind = StageKind::kCodec, .lossless = true, .cuda = true};
constexpr StageInfo kRans{
    .id = 0x0403, .name = "rans", .kind = StageKind::kCodec, .lossless = true};
constexpr StageInfo kContext{.id = 0x0405,
                             .name = "context",
                             .kind = StageKind::kCodec,
                             .lossless = true,
                             .parameters = kContextParameters};

}  // namespace

StageTable ToyStages() {
  static const std::array<StageEntry, 9> table{{
      {.info = &kWeigh, .make_selector = [](const Settings&) { return Unique(MakeToyWeigh()); }},
      {.info = &kScale,
       .make_transform = [](const Settings& s) { return Unique(MakeToyScale(s)); }},
      {.info = &kPredict,
       .make_transform = [](const Settings&) { return Unique(MakeToyPredict()); }},
      {.info = &kNone, .make_quantizer = [](const Settings&) { return Unique(MakeToyCopy()); }},
      {.info = &kLossless, .make_quantizer = [](const Settings&) { return Unique(MakeToyCopy()); }},
      {.info = &kClasses,
       .make_quantizer = [](const Settings& s) { return Unique(MakeToyClasses(s)); }},
      {.info = &kNoneCodec, .make_codec = [](const Settings&) { return Unique(MakeToyRaw()); }},
      {.info = &kRans, .make_codec = [](const Settings&) { return Unique(MakeToyRaw()); }},
      {.info = &kContext,
       .make_codec = [](const Settings& s) { return Unique(MakeToyContext(s)); }},
  }};
  return table;
}

}  // namespace kvserve::testing
