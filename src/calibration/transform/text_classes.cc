#include "calibration/transform/text_classes.h"

#include <algorithm>
#include <memory>

#include "base/arena.h"
#include "base/token_slice.h"
#include "base/try.h"
#include "pipeline/plane_order.h"
#include "pipeline/settings.h"
#include "pipeline/stage_lookup.h"
#include "pipeline/token_classes.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

using Selectors = std::vector<std::unique_ptr<Selector>>;
using Weights = std::vector<std::vector<float>>;

Result<Selectors> SelectorsOf(const Profile& profile) {
  Selectors selectors;
  for (const StageSpec& spec : profile.stages) {
    const StageEntry* const entry = FindStage(BuiltinStages(), spec.id);
    if (entry == nullptr || entry->info->kind != StageKind::kSelector) continue;
    KVSERVE_ASSIGN(
        const Settings settings,
        CheckedSettings(*entry->info, spec.version, spec.parameters, ErrorCode::kInvalidArgument));
    KVSERVE_ASSIGN(auto selector, entry->make_selector(settings));
    selectors.push_back(std::move(selector));
  }
  return selectors;
}

class TextClassifier {
 public:
  TextClassifier(const Selectors& selectors, const CalibrationArtefact& artefact, Workers& workers)
      : selectors_(selectors), artefact_(artefact), workers_(workers) {}

  void BeginText() {
    memories_.clear();
    for (const auto& selector : selectors_) memories_.push_back(selector->NewMemory());
  }

  // Planes of the frame in coding order.
  Result<Weights> Weigh(const ConstKvView& frame, std::uint32_t text_tokens) {
    arena_.Reset();
    FrameContext context;
    context.geometry = frame.geometry;
    context.tokens = frame.tokens;
    context.prompt_tokens = text_tokens;
    context.artefact = &artefact_;
    context.arena = &arena_;
    context.workers = &workers_;
    Weights weights;
    for (const auto& plane : CodingOrder(frame)) {
      weights.emplace_back(plane.tokens.size(), 1.0F);
    }
    for (std::size_t i = 0; i < selectors_.size(); ++i) {
      KVSERVE_TRY(selectors_[i]->Weigh(context, frame, memories_[i].get(), weights));
    }
    return weights;
  }

 private:
  const Selectors& selectors_;
  const CalibrationArtefact& artefact_;
  Workers& workers_;
  Arena arena_;
  std::vector<std::unique_ptr<SelectorMemory>> memories_;
};

}  // namespace

Result<std::vector<std::vector<std::uint8_t>>> ClassifyTexts(const CalibrationTexts& texts,
                                                             const Profile& profile,
                                                             const CalibrationArtefact& artefact,
                                                             std::uint32_t frame_tokens,
                                                             Workers& workers) {
  KVSERVE_ASSIGN(const Selectors selectors, SelectorsOf(profile));
  std::vector<std::vector<std::uint8_t>> classes(
      2 * texts.geometry().layers.size(), std::vector<std::uint8_t>(texts.rows(), kNominalClass));
  TextClassifier classifier(selectors, artefact, workers);
  for (std::size_t text = 0; text < texts.texts().size(); ++text) {
    const ConstKvView view = texts.View(text);
    classifier.BeginText();
    for (std::uint32_t begin = 0; begin < view.tokens.end;) {
      const std::uint32_t end = begin + std::min(frame_tokens, view.tokens.end - begin);
      const ConstKvView frame = SliceTokens(view, {begin, end});
      KVSERVE_ASSIGN(const Weights weights, classifier.Weigh(frame, view.tokens.end));
      const auto planes = CodingOrder(frame);
      for (std::size_t i = 0; i < planes.size(); ++i) {
        const std::size_t p = 2 * planes[i].layer + (planes[i].kind == PlaneKind::kValue ? 1 : 0);
        auto* const to = classes[p].data() + texts.texts()[text].first_row + begin;
        std::ranges::transform(weights[i], to, [](float weight) {
          return weight == 0.0F ? std::uint8_t{0} : TokenClassOf(weight);
        });
      }
      begin = end;
    }
  }
  return classes;
}

}  // namespace kvserve
