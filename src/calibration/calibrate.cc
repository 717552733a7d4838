#include "calibration/calibrate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/token_slice.h"
#include "base/try.h"
#include "calibration/channel_moments.h"
#include "calibration/entropy_clusters.h"
#include "calibration/plane_axes.h"
#include "calibration/query_moments.h"
#include "calibration/symbol_histograms.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

class Calibration {
 public:
  Calibration(CalibrationSource& source, const CalibrationOptions& options)
      : source_(source), options_(options), moments_(source.geometry()) {
    if (options.klt) axes_.emplace(source.geometry(), options.joint_columns);
    if (options.transform) texts_.emplace(source.geometry());
    if (options.query_statistics || options.head_scores) queries_.emplace(source.geometry());
  }

  Result<Contents> Run() {
    KVSERVE_TRY(MakeCounters());
    const bool twice = std::ranges::any_of(
        counters_, [](const SymbolCounter& counter) { return counter.needs_artefact(); });
    passes_ = twice ? 2 : 1;
    KVSERVE_TRY(FirstPass());
    KVSERVE_ASSIGN(Contents contents, WithStatistics());
    if (texts_) KVSERVE_TRY(CalibrateTransform(*texts_, *options_.transform, contents));
    if (twice) {
      const CalibrationArtefact statistics(contents, {});
      KVSERVE_TRY(Pass([&](const ConstKvView& chunk) { return Count(chunk, &statistics); }));
    }
    for (const auto& [alphabet, histograms] : histograms_) {
      if (alphabet < 2) continue;
      contents.entropy.push_back(ClusterHistograms(histograms, options_.max_classes));
    }
    return contents;
  }

 private:
  Status MakeCounters() {
    for (const Profile& profile : options_.profiles) {
      auto counter = SymbolCounter::Create(profile, source_.geometry().dtype);
      if (!counter) {
        return MakeError(counter.error().code,
                         "profile '" + profile.name + "': " + counter.error().message);
      }
      counters_.push_back(std::move(*counter));
    }
    return {};
  }

  Status FirstPass() {
    if (queries_) {
      KVSERVE_TRY(source_.TapQueries([this](std::uint32_t layer, std::uint32_t first_position,
                                            std::span<const float> values, std::uint32_t heads,
                                            std::uint32_t dim, bool rotated) {
        if (!rotated) queries_->AddQueries(layer, first_position, values, heads, dim);
      }));
    }
    Status passed = Pass([&](const ConstKvView& chunk) -> Status {
      KVSERVE_TRY(moments_.Add(chunk));
      if (axes_) KVSERVE_TRY(axes_->Add(chunk));
      if (queries_) KVSERVE_TRY(queries_->AddKeys(chunk));
      if (texts_) KVSERVE_TRY(texts_->Add(chunk));
      return Count(chunk, nullptr);
    });
    if (queries_) KVSERVE_TRY(source_.TapQueries(nullptr));
    return passed;
  }

  template <typename Visit>
  Status Pass(const Visit& visit) {
    std::uint32_t chunk_tokens = std::ranges::max(options_.frame_tokens);
    if (texts_) chunk_tokens = std::min(chunk_tokens, WholeChunkTokens(source_.geometry()));
    return source_.ForEachChunk(chunk_tokens, [&](const ConstKvView& chunk) -> Status {
      KVSERVE_TRY(visit(chunk));
      done_ += chunk.tokens.size();
      if (options_.progress) options_.progress(done_, passes_ * source_.tokens());
      return {};
    });
  }

  // Of the profiles that need an artefact if there is one, of the others if not.
  Status Count(const ConstKvView& chunk, const CalibrationArtefact* artefact) {
    for (std::size_t i = 0; i < counters_.size(); ++i) {
      if (counters_[i].needs_artefact() != (artefact != nullptr)) continue;
      for (const std::uint32_t frame_tokens : options_.frame_tokens) {
        if (auto status = CountFrames(chunk, frame_tokens, counters_[i], artefact); !status) {
          return MakeError(status.error().code, "profile '" + options_.profiles[i].name +
                                                    "': " + status.error().message);
        }
      }
    }
    return {};
  }

  Status CountFrames(const ConstKvView& chunk, std::uint32_t frame_tokens,
                     const SymbolCounter& counter, const CalibrationArtefact* artefact) {
    for (std::uint32_t begin = chunk.tokens.begin; begin < chunk.tokens.end;) {
      const std::uint32_t end = begin + std::min(frame_tokens, chunk.tokens.end - begin);
      KVSERVE_TRY(counter.Add(SliceTokens(chunk, {begin, end}), artefact, histograms_));
      begin = end;
    }
    return {};
  }

  Result<Contents> WithStatistics() {
    if (moments_.tokens() < 2) {
      return MakeError(ErrorCode::kBadInput,
                       "there are less than two tokens to calibrate on beside each text's first");
    }
    Contents contents;
    contents.model = source_.model();
    contents.geometry = source_.geometry();
    contents.tokens = moments_.tokens();
    contents.statistics = moments_.Statistics();
    if (axes_) axes_->Store(contents);
    if (queries_) {
      queries_->Store(options_.query_statistics, options_.head_scores, contents);
      if (contents.query_statistics.empty() && contents.head_scores.empty()) {
        return MakeError(ErrorCode::kBadInput,
                         "the model showed no queries, which statistics of them and head scores "
                         "need: texts are needed, and a model whose rotation is known");
      }
    }
    return contents;
  }

  CalibrationSource& source_;
  const CalibrationOptions& options_;
  ChannelMoments moments_;
  std::optional<PlaneAxes> axes_;
  std::optional<QueryMoments> queries_;
  std::optional<CalibrationTexts> texts_;
  std::vector<SymbolCounter> counters_;  // [profile]
  HistogramsByAlphabet histograms_;
  std::uint64_t done_ = 0;
  std::uint64_t passes_ = 1;
};

}  // namespace

Result<Contents> Calibrate(CalibrationSource& source, const CalibrationOptions& options) {
  const auto zero = [](std::uint32_t tokens) { return tokens == 0; };
  if (options.frame_tokens.empty() || std::ranges::any_of(options.frame_tokens, zero)) {
    return MakeError(ErrorCode::kInvalidArgument, "frames of 1 or more tokens are needed");
  }
  if (options.max_classes < 1 || options.max_classes > kMaxEntropyClasses) {
    return MakeError(ErrorCode::kInvalidArgument, "the number of classes is outside 1..64");
  }
  return Calibration(source, options).Run();
}

}  // namespace kvserve
