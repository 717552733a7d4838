#include "pipeline/testing/weighing.h"

#include "base/try.h"
#include "pipeline/plane_order.h"
#include "pipeline/settings.h"

namespace kvserve::testing {
namespace {

void FillPlanes(KvBuffer& kv, PlaneKind kind, const Fill& fill) {
  for (const auto& plane : CodingOrder(kv.view())) {
    if (plane.kind != kind) continue;
    for (std::uint32_t t = 0; t < plane.view.tokens; ++t) {
      for (std::uint32_t h = 0; h < plane.view.heads; ++h) {
        for (std::uint32_t d = 0; d < plane.view.dim; ++d) {
          SetValue(plane.view, t, h, d, fill(plane.layer, plane.tokens.begin + t, h, d));
        }
      }
    }
  }
}

}  // namespace

void Weighing::FillKeys(const Fill& fill) {
  FillPlanes(kv, PlaneKind::kKey, fill);
}

void Weighing::FillValues(const Fill& fill) {
  FillPlanes(kv, PlaneKind::kValue, fill);
}

void Weighing::FillQueries(TokenRange tokens, std::uint32_t group, const Fill& fill) {
  queries.tokens = tokens;
  queries.layers.clear();
  query_values_.clear();
  for (std::uint32_t layer = 0; layer < geometry.layers.size(); ++layer) {
    const std::uint32_t heads = group * geometry.layers[layer].kv_heads;
    const std::uint32_t dim = geometry.layers[layer].k_dim;
    auto& values = query_values_.emplace_back();
    for (std::uint32_t t = tokens.begin; t < tokens.end; ++t) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        for (std::uint32_t d = 0; d < dim; ++d) values.push_back(fill(layer, t, h, d));
      }
    }
    queries.layers.push_back({layer, heads, dim, values});
  }
}

void Weighing::SetStatistics(
    std::uint32_t group,
    const std::function<float(std::uint32_t, std::uint32_t, std::uint32_t)>& mean,
    const Fill& covariance) {
  CalibrationArtefact::Contents contents;
  contents.geometry = geometry;
  for (std::uint32_t l = 0; l < geometry.layers.size(); ++l) {
    const LayerGeometry& layer = geometry.layers[l];
    QueryStatistics statistics{.heads = group * layer.kv_heads, .dim = layer.k_dim};
    for (std::uint32_t h = 0; h < statistics.heads; ++h) {
      for (std::uint32_t i = 0; i < layer.k_dim; ++i) {
        statistics.mean.push_back(mean(l, h, i));
        for (std::uint32_t j = 0; j < layer.k_dim; ++j) {
          statistics.covariance.push_back(covariance(l, h, i, j));
        }
      }
    }
    contents.query_statistics.push_back(statistics);
  }
  artefact = std::make_shared<const CalibrationArtefact>(std::move(contents), Fingerprint{});
}

ConstKvView Weighing::View() const {
  ConstKvView view = kv.view();
  if (only_layer) view.layers = {view.layers[*only_layer]};
  return view;
}

Result<Weighing::Weights> Weighing::Weigh(const StageEntry& stage,
                                          const std::map<std::string, double>& options) const {
  Weights weights;
  for (const auto& plane : CodingOrder(View())) {
    weights.emplace_back(plane.tokens.size(), 1.0F);
  }
  KVSERVE_TRY(WeighOn(stage, options, weights));
  return weights;
}

Status Weighing::WeighOn(const StageEntry& stage, const std::map<std::string, double>& options,
                         Weights& weights) const {
  KVSERVE_ASSIGN(const auto selector, MakeSelector(stage, options));
  Arena arena;
  Workers workers(threads);
  const ConstKvView view = View();
  const FrameContext frame{.geometry = &geometry,
                           .tokens = tokens_,
                           .prompt_tokens = prompt_tokens,
                           .artefact = artefact.get(),
                           .queries = &queries,
                           .arena = &arena,
                           .workers = &workers};
  return selector->Weigh(frame, view, memory, weights);
}

Result<std::unique_ptr<Selector>> MakeSelector(const StageEntry& stage,
                                               const std::map<std::string, double>& options) {
  auto values = DefaultValues(*stage.info);
  const auto slots = ParameterSlots(*stage.info);
  for (const auto& [name, value] : options) {
    bool found = false;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].name() != name && slots[i].info->name != name) continue;
      values[i].value = value;
      found = true;
    }
    if (!found) return MakeError(ErrorCode::kInvalidArgument, "no parameter " + name);
  }
  KVSERVE_ASSIGN(const Settings settings,
                 CheckedSettings(*stage.info, values, ErrorCode::kInvalidArgument));
  return stage.make_selector(settings);
}

}  // namespace kvserve::testing
