#include "calibration/forward_sensitivity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/split_mix.h"
#include "base/try.h"
#include "calibration/divergence_probe.h"
#include "calibration/head_forms.h"
#include "calibration/metric_noise.h"
#include "calibration/query_moments.h"
#include "calibration/row_covariance.h"
#include "calibration/unrotated_plane.h"
#include "kernels/rotate/rotate.h"
#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

constexpr std::uint32_t kSkippedFirst = 4;  // attention sinks
constexpr std::uint32_t kSkippedLast = 32;
constexpr std::uint32_t kFewestTokens = 128;

using Forms = std::vector<float>;  // [kv_head, dim, dim]

// Sum of the blocks of a form on its diagonal times those of another: tr(a b).
double TraceOfProduct(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

Forms Identity(std::size_t heads, std::size_t dim) {
  Forms forms(heads * dim * dim);
  for (std::size_t i = 0; i < heads * dim; ++i)
    forms[i / dim * dim * dim + i % dim * (dim + 1)] = 1;
  return forms;
}

// On the diagonal of one matrix, each times its factor [kv_head].
std::vector<float> Dense(const Forms& forms, std::span<const double> factors, std::size_t dim) {
  const std::size_t columns = factors.size() * dim;
  std::vector<float> matrix(columns * columns);
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const std::size_t head = i / (dim * dim);
    const std::size_t row = i / dim % dim;
    matrix[(head * dim + row) * columns + head * dim + i % dim] =
        static_cast<float>(factors[head] * forms[i]);
  }
  return matrix;
}

class Measurement {
 public:
  Measurement(Engine& engine, const ForwardSensitivityOptions& options)
      : engine_(engine),
        geometry_(engine.info().geometry),
        options_(options),
        queries_(geometry_),
        random_(options.seed) {}

  Result<Sensitivity> Run(std::span<const std::vector<Token>> prompts) {
    KVSERVE_TRY(ReadTexts(prompts));
    KVSERVE_TRY(FindForms());
    Sensitivity found;
    found.context_tokens = context_;
    found.scored_tokens = options_.scored_tokens;
    found.source = "forward, " + std::to_string(texts_.size()) + " texts";
    for (std::uint32_t i = 0; i < geometry_.layers.size(); ++i) {
      for (const PlaneKind kind : {PlaneKind::kKey, PlaneKind::kValue}) {
        auto& matrix = found.planes.emplace_back();
        const LayerGeometry& layer = geometry_.layers[i];
        if (kind == PlaneKind::kValue && layer.single_plane()) continue;
        const Forms& forms = forms_[2 * i + static_cast<std::size_t>(kind)];
        KVSERVE_ASSIGN(const auto factors, Factors(i, kind, forms));
        matrix = Dense(forms, factors, Dim(layer, kind));
        if (options_.progress) {
          options_.progress(found.planes.size(), 2 * geometry_.layers.size());
        }
      }
    }
    return found;
  }

 private:
  static std::size_t Dim(const LayerGeometry& layer, PlaneKind kind) {
    return kind == PlaneKind::kKey ? layer.k_dim : layer.v_dim;
  }

  Status ReadTexts(std::span<const std::vector<Token>> prompts) {
    std::size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    if (longest < kFewestTokens + options_.scored_tokens) {
      return MakeError(ErrorCode::kBadInput,
                       "sensitivity needs a text of " +
                           std::to_string(kFewestTokens + options_.scored_tokens) + " tokens");
    }
    context_ = static_cast<std::uint32_t>(
        std::min<std::size_t>(options_.context_tokens, longest - options_.scored_tokens));
    const std::size_t needed = context_ + options_.scored_tokens;
    Status tapped = engine_.TapQueries([this](std::uint32_t layer, std::uint32_t first_position,
                                              std::span<const float> values, std::uint32_t heads,
                                              std::uint32_t dim, bool rotated) {
      if (!rotated) queries_.AddQueries(layer, first_position, values, heads, dim);
    });
    if (!tapped && tapped.error().code != ErrorCode::kUnsupported) return tapped;
    Status read;
    for (const auto& prompt : prompts) {
      if (prompt.size() < needed || texts_.size() == options_.texts || !read) continue;
      const std::span<const Token> tokens(prompt);
      auto probe = DivergenceProbe::Create(engine_, tokens.first(context_),
                                           tokens.subspan(context_, options_.scored_tokens),
                                           options_.prefill_tokens);
      if (probe) {
        texts_.push_back(std::move(*probe));
      } else {
        read = tl::unexpected(probe.error());
      }
    }
    if (tapped) KVSERVE_TRY(engine_.TapQueries(nullptr));
    return read;
  }

  // Covariance of a plane's rows over the texts, [head, dim, dim].
  Result<std::vector<float>> Covariance(std::uint32_t layer, PlaneKind kind) {
    const LayerGeometry& shape = geometry_.layers[layer];
    RowCovariance rows(shape.kv_heads, Dim(shape, kind));
    for (DivergenceProbe& text : texts_) {
      KVSERVE_ASSIGN(const Rows counted, Load(text, layer, kind));
      rows.Add(counted.values);
    }
    return rows.Covariance(Dim(shape, kind));
  }

  Status FindForms() {
    std::vector<Forms> outputs(geometry_.layers.size());  // [query_head, v_dim, v_dim]
    Status visited = engine_.VisitOutputWeights(
        [&](std::uint32_t layer, std::span<const float> weights, std::size_t inputs) -> Status {
          const LayerGeometry& shape = geometry_.layers[layer];
          if (shape.single_plane() || inputs % (shape.kv_heads * shape.v_dim) != 0) return {};
          outputs[layer] = OutputForms(weights, inputs, shape.v_dim);
          return {};
        });
    if (!visited && visited.error().code != ErrorCode::kUnsupported) return visited;
    CalibrationArtefact::Contents contents;
    queries_.Store(true, false, contents);
    contents.query_statistics.resize(geometry_.layers.size());
    for (std::uint32_t i = 0; i < geometry_.layers.size(); ++i) {
      KVSERVE_TRY(FindForms(i, contents.query_statistics[i], outputs[i]));
    }
    return {};
  }

  Status FindForms(std::uint32_t index, const QueryStatistics& queries, const Forms& outputs) {
    const LayerGeometry& layer = geometry_.layers[index];
    Forms keys = Identity(layer.kv_heads, layer.k_dim);
    Forms values;
    std::vector<double> weights(queries.heads, 1.0);
    if (!layer.single_plane()) {
      values = Identity(layer.kv_heads, layer.v_dim);
      const std::size_t block = std::size_t{layer.v_dim} * layer.v_dim;
      const std::size_t heads = outputs.size() / block;
      const std::size_t group = heads / layer.kv_heads;
      if (group > 0) std::ranges::fill(values, 0.0F);
      KVSERVE_ASSIGN(const auto spread, Covariance(index, PlaneKind::kValue));
      for (std::size_t head = 0; head < heads; ++head) {
        const auto output = std::span(outputs).subspan(head * block, block);
        const std::size_t to = head / group * block;
        for (std::size_t i = 0; i < block; ++i) values[to + i] += output[i];
        if (heads == queries.heads) {
          weights[head] = TraceOfProduct(output, std::span(spread).subspan(to, block));
        }
      }
    }
    if (queries.heads > 0) keys = KeyForms(layer, queries, weights, context_);
    forms_.push_back(std::move(keys));
    forms_.push_back(std::move(values));
    return {};
  }

  struct Rows {
    OrderedPlane<std::byte> plane;
    std::uint32_t begin = 0;  // rows of the plane that count
    std::uint32_t end = 0;
    std::vector<float> values;  // of those, keys before RoPE
  };

  // Memory of the text's own KV.
  Result<Rows> Load(DivergenceProbe& text, std::uint32_t layer, PlaneKind kind) {
    Rows rows;
    const KvView kv = text.kv();
    const LayerView& held = kv.layers[layer];
    rows.plane = {layer, kind, held.tokens, kind == PlaneKind::kKey ? held.k : held.v};
    const std::uint32_t first = held.tokens.begin;
    rows.begin = first < kSkippedFirst ? kSkippedFirst - first : 0;
    rows.end = held.tokens.size();
    if (rows.end > rows.begin + 2 * kSkippedLast) rows.end -= kSkippedLast;
    KVSERVE_TRY(LoadUnrotated(geometry_, Constant(rows.plane), rows.values));
    const std::size_t columns = std::size_t{rows.plane.view.heads} * rows.plane.view.dim;
    rows.values.resize(rows.end * columns);
    rows.values.erase(rows.values.begin(),
                      rows.values.begin() + static_cast<std::ptrdiff_t>(rows.begin * columns));
    return rows;
  }

  static OrderedPlane<const std::byte> Constant(const OrderedPlane<std::byte>& plane) {
    const PlaneView& view = plane.view;
    return {plane.layer,
            plane.kind,
            plane.tokens,
            {view.data, view.dtype, view.device, view.tokens, view.heads, view.dim,
             view.token_stride, view.head_stride, view.dim_stride}};
  }

  void Rotate(const Rows& rows, std::span<float> values) const {
    const LayerGeometry& layer = geometry_.layers[rows.plane.layer];
    if (rows.plane.kind != PlaneKind::kKey || layer.rope_style == RopeStyle::kNone ||
        layer.k_dim % 2 != 0) {
      return;
    }
    std::vector<std::uint64_t> turns(RopePairs(layer.k_dim));
    RopeTurns(layer.rope_theta, layer.k_dim, turns);
    ApplyRope(values, {layer.rope_style, layer.k_dim, layer.kv_heads,
                       rows.plane.tokens.begin + rows.begin, turns});
  }

  struct Effect {
    double divergence = 0;
    double energy = 0;  // of the noise in the plane's forms, per scored token
  };

  struct Head {
    std::uint32_t layer = 0;
    PlaneKind kind = PlaneKind::kKey;
    std::size_t head = 0;
    const Forms& forms;  // of the plane
    const MetricNoise& noise;
  };

  // Of noise of this amplitude in one head of one text, whose KV is as before afterwards. The
  // energy is that of what the cache's dtype has made of the noise.
  Result<Effect> Try(DivergenceProbe& text, const Head& at, double amplitude) {
    KVSERVE_ASSIGN(const Rows rows, Load(text, at.layer, at.kind));
    const PlaneView& view = rows.plane.view;
    std::vector<float> before(view.values());
    LoadFloats(Constant(rows.plane).view, before);
    std::vector<float> error(rows.values.size());
    at.noise.Add(at.head, amplitude, random_, error);
    Rotate(rows, error);
    std::vector<float> changed = before;
    const std::size_t first = rows.begin * std::size_t{view.heads} * view.dim;
    for (std::size_t i = 0; i < error.size(); ++i) changed[first + i] += error[i];
    if (!StoreFloats(changed, view)) return MakeError(ErrorCode::kInternal, "noise is no number");
    KVSERVE_ASSIGN(const Rows noisy, Load(text, at.layer, at.kind));
    for (std::size_t i = 0; i < error.size(); ++i) error[i] = noisy.values[i] - rows.values[i];
    const auto divergence = text.Divergence();
    if (!StoreFloats(before, view) || !divergence) return tl::unexpected(divergence.error());
    return Effect{*divergence, FormEnergy(at.forms, view.dim, at.head, error)};
  }

  // Per KV head: how many nats per scored token a unit of the form's energy costs, doubled.
  Result<std::vector<double>> Factors(std::uint32_t layer, PlaneKind kind, const Forms& forms) {
    const std::size_t dim = Dim(geometry_.layers[layer], kind);
    const MetricNoise noise(forms, dim);
    KVSERVE_ASSIGN(const auto covariance, Covariance(layer, kind));
    const Forms identity = Identity(1, dim);
    std::vector<double> factors;
    for (std::size_t head = 0; head < geometry_.layers[layer].kv_heads; ++head) {
      const auto block = std::span(covariance).subspan(head * dim * dim, dim * dim);
      const double variance = TraceOfProduct(block, identity) / static_cast<double>(dim);
      KVSERVE_ASSIGN(const double factor, Factor({layer, kind, head, forms, noise},
                                                 std::sqrt(variance) / noise.rms(head)));
      factors.push_back(factor);
    }
    return factors;
  }

  // `unit`: amplitude of noise as large as the head's deviation. Noise begins with the share of it
  // that the head before had in the end.
  Result<double> Factor(const Head& at, double unit) {
    double& share = share_[static_cast<std::size_t>(at.kind)];
    Effect sum;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      KVSERVE_ASSIGN(sum, Try(texts_.front(), at, share * unit));
      const double ratio = options_.target_divergence / std::max(sum.divergence, 1e-12);
      const bool near = ratio > 1.0 / kNear && ratio < kNear;
      if (near || attempt + 1 == kAttempts || (share >= 1 && ratio > 1)) break;
      share = std::min(share * std::clamp(std::sqrt(ratio), 1.0 / 64, 64.0), 1.0);
    }
    for (std::size_t i = 1; i < texts_.size(); ++i) {
      KVSERVE_ASSIGN(const Effect more, Try(texts_[i], at, share * unit));
      sum.divergence += more.divergence;
      sum.energy += more.energy;
    }
    return sum.energy > 0 ? std::max(2 * sum.divergence / sum.energy, 0.0) : 0.0;
  }

  static constexpr int kAttempts = 4;
  static constexpr double kNear = 10;

  Engine& engine_;
  const KvGeometry& geometry_;
  const ForwardSensitivityOptions& options_;
  QueryMoments queries_;
  SplitMix64 random_;
  std::uint32_t context_ = 0;
  std::vector<DivergenceProbe> texts_;
  std::vector<Forms> forms_;      // [2 * layer + kind]
  double share_[2] = {0.1, 0.1};  // noise over deviation, by kind
};

}  // namespace

Result<Sensitivity> ForwardSensitivity(Engine& engine, std::span<const std::vector<Token>> prompts,
                                       const ForwardSensitivityOptions& options) {
  if (options.context_tokens < kFewestTokens || options.scored_tokens < 1 || options.texts < 1 ||
      options.prefill_tokens < 1 || !(options.target_divergence > 0)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "sensitivity: at least " + std::to_string(kFewestTokens) +
                         " context tokens, a scored token, a text and a divergence are needed");
  }
  return Measurement(engine, options).Run(prompts);
}

}  // namespace kvserve
