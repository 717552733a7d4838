// Expected attention (Devoto et al. 2025, arXiv:2510.00636): how much queries that are still to
// come will look at a key, from the mean m and covariance S of the model's queries. Those are
// measured before RoPE and rotated here to the positions ahead of the prompt's end, so that keys
// stay as they are. A key's logit is k.m / sqrt(d) + k^T S k / (2 d), the logarithm of the mean of
// exp for Gaussian queries; p is its softmax over the tokens of the frame, per query head, and o =
// sum p v. To first order an error of v moves the output by p, one of k by p (v - o): their
// sensitivities are the sums over heads of p^2 and of p^2 |v - o|^2. Tokens are ranked by the sum
// of p |v|, of which each layer has one unit.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/queries_ahead.h"
#include "pipeline/plane_floats.h"
#include "pipeline/token_choice.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kBeta = 6;  // and 7 for V
constexpr std::uint8_t kLeast = 8;
constexpr std::uint8_t kMost = 9;
constexpr std::uint8_t kHorizon = 10;

constexpr ParameterInfo kParameters[] = {
    SinksParameter(),
    RecentParameter(32),
    OutsideParameter(),
    KeepParameter(1.0),
    ScopeParameter(),
    {.id = kBeta,
     .name = "beta",
     .type = ParameterType::kReal,
     .low = 0,
     .high = 2,
     .default_k = 0.25,
     .default_v = 0.5,
     .per_plane = true,
     .help = "power of the relative sensitivity that a weight is; 0: all weigh 1"},
    {.id = kLeast,
     .name = "least",
     .type = ParameterType::kReal,
     .low = 0.015625,
     .high = 1,
     .default_k = 0.5,
     .help = "lowest weight by sensitivity"},
    {.id = kMost,
     .name = "most",
     .type = ParameterType::kReal,
     .low = 1,
     .high = 64,
     .default_k = 64,
     .help = "highest weight by sensitivity"},
    {.id = kHorizon,
     .name = "horizon",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 65536,
     .default_k = 384,
     .unit = "tokens",
     .help = "how far beyond the prompt's end queries are expected"},
};

constexpr StageInfo kInfo = {
    .id = 0x0103,
    .name = "expected",
    .kind = StageKind::kSelector,
    .parameters = kParameters,
    .summary = "weights by expected attention from calibrated query statistics",
};

// In place of no sensitivity at all, whose logarithm would be the mean's ruin.
constexpr double kTiny = 1e-30;
constexpr double kOctaves = 6;  // that weights span each way

// Of the tokens of one layer.
struct Sensitivity {
  std::span<float> key;    // [token]
  std::span<float> value;  // [token]
  std::span<float> rank;   // [token]
};

// One KV head of a layer.
struct HeadTokens {
  std::span<const float> keys;    // packed
  std::span<const float> values;  // packed; empty for a single plane
  std::span<const float> energy;  // [packed token] |v|^2
  std::size_t tokens = 0;
};

// Room for one query head.
struct HeadRoom {
  HeadRoom(std::size_t tokens, std::size_t k_dim, std::size_t v_dim, Arena& arena)
      : mean(arena.Take<float>(k_dim)),
        covariance(arena.Take<float>(k_dim * k_dim)),
        products(arena.Take<float>(k_dim * kKeyBlock)),
        logits(arena.Take<float>(PackedTokens(tokens))),
        forms(arena.Take<float>(PackedTokens(tokens))),
        probability(arena.Take<float>(PackedTokens(tokens))),
        output(arena.Take<float>(v_dim)) {}

  std::span<float> mean;
  std::span<float> covariance;
  std::span<float> products;
  std::span<float> logits;
  std::span<float> forms;
  std::span<float> probability;
  std::span<float> output;
};

void ExpectAttention(const HeadTokens& head, const HeadRoom& room) {
  const std::size_t dim = room.mean.size();
  const auto d = static_cast<float>(dim);
  KeyProducts(room.mean, head.keys, dim, room.logits);
  QuadraticForms(room.covariance, head.keys, dim, room.products, room.forms);
  const float linear = 1.0F / std::sqrt(d);
  const float quadratic = 1.0F / (2.0F * d);
  for (std::size_t t = 0; t < head.tokens; ++t) {
    room.logits[t] = room.logits[t] * linear + room.forms[t] * quadratic;
  }
  std::fill(room.probability.begin(), room.probability.end(), 0.0F);
  AddSoftmax(room.logits.first(head.tokens), 1.0F, room.probability.first(head.tokens));
}

// output[c] = sum over tokens of p v, in 32 sums over the tokens i mod 32.
void MeanValue(const HeadTokens& head, const HeadRoom& room) {
  const std::size_t dim = room.output.size();
  for (std::size_t c = 0; c < dim; ++c) {
    float sums[kKeyBlock] = {};
    for (std::size_t begin = 0; begin < room.probability.size(); begin += kKeyBlock) {
      const float* const p = room.probability.data() + begin;
      const float* const v = head.values.data() + begin * dim + c * kKeyBlock;
      for (std::size_t t = 0; t < kKeyBlock; ++t) sums[t] += p[t] * v[t];
    }
    room.output[c] = 0.0F;
    for (const float sum : sums) room.output[c] += sum;
  }
}

void AddSensitivity(const HeadTokens& head, const HeadRoom& room, const Sensitivity& out) {
  ExpectAttention(head, room);
  const auto& p = room.probability;
  for (std::size_t t = 0; t < head.tokens; ++t) out.value[t] += p[t] * p[t];
  if (head.values.empty()) {  // a latent is key and value at once
    for (std::size_t t = 0; t < head.tokens; ++t) out.rank[t] += p[t];
    return;
  }
  MeanValue(head, room);
  const std::span<float> along = room.logits;  // v.o
  KeyProducts(room.output, head.values, room.output.size(), along);
  float energy = 0.0F;
  for (const float o : room.output) energy += o * o;
  for (std::size_t t = 0; t < head.tokens; ++t) {
    const float distance = std::max(0.0F, head.energy[t] - 2.0F * along[t] + energy);
    out.key[t] += p[t] * p[t] * distance;
    out.rank[t] += p[t] * std::sqrt(head.energy[t]);
  }
}

// energy[t] = |v|^2 of packed tokens.
void Energies(std::span<const float> packed, std::size_t dim, std::span<float> energy) {
  std::fill(energy.begin(), energy.end(), 0.0F);
  for (std::size_t at = 0; at < packed.size(); at += kKeyBlock) {
    float* const sums = energy.data() + at / (dim * kKeyBlock) * kKeyBlock;
    for (std::size_t t = 0; t < kKeyBlock; ++t) sums[t] += packed[at + t] * packed[at + t];
  }
}

class Expected : public Selector {
 public:
  explicit Expected(const Settings& settings) : settings_(settings) {}

  Status Weigh(const FrameContext& frame, const ConstKvView& view, SelectorMemory* /*memory*/,
               std::span<std::vector<float>> weights) const override {
    const auto ahead = Ahead(frame, view);
    const auto first_plane = frame.arena->Take<std::size_t>(view.layers.size());
    std::size_t planes = 0;
    for (std::size_t i = 0; i < view.layers.size(); ++i) {
      KVSERVE_TRY(CheckLayer(frame, view.layers[i]));
      first_plane[i] = planes;
      planes += view.geometry->layers[view.layers[i].layer].single_plane() ? 1 : 2;
    }
    const TokenChoice choice = TokenChoice::From(settings_, frame);
    const auto ranks = ScoreLayers(frame, view, [&](std::size_t i, auto rank, Arena& scratch) {
      const std::size_t end = i + 1 < view.layers.size() ? first_plane[i + 1] : planes;
      return WeighLayer(frame, view.layers[i], choice, *ahead[i], rank,
                        weights.subspan(first_plane[i], end - first_plane[i]), scratch);
    });
    if (!ranks) return tl::unexpected(ranks.error());
    WeighByChoice(choice, frame, view, *ranks, weights);
    return {};
  }
  [[nodiscard]] bool needs_artefact() const override { return true; }
  [[nodiscard]] bool may_drop() const override { return TokenChoice::MayDrop(settings_); }

 private:
  // As engines do, and `unrope`: an odd channel has no partner to turn with.
  [[nodiscard]] static RopeStyle StyleOf(const LayerGeometry& layer) {
    return layer.k_dim % 2 == 0 ? layer.rope_style : RopeStyle::kNone;
  }

  // Where each layer's queries will be, [layer of the view]; layers with the same RoPE share it.
  [[nodiscard]] std::span<const RotationAverages*> Ahead(const FrameContext& frame,
                                                         const ConstKvView& view) const {
    const double end = frame.prompt_tokens > 0 ? frame.prompt_tokens : frame.tokens.end;
    const auto ahead = frame.arena->Take<const RotationAverages*>(view.layers.size());
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      const LayerGeometry& own = view.geometry->layers[view.layers[i].layer];
      std::size_t same = 0;
      for (; same < i; ++same) {
        const LayerGeometry& other = view.geometry->layers[view.layers[same].layer];
        if (other.rope_style == own.rope_style && other.rope_theta == own.rope_theta &&
            other.k_dim == own.k_dim) {
          break;
        }
      }
      ahead[i] = same < i ? ahead[same]
                          : frame.arena->New<RotationAverages>(
                                StyleOf(own), own.rope_theta, own.k_dim, end,
                                end + settings_.value(kHorizon), *frame.arena);
    }
    return ahead;
  }

  static Status CheckLayer(const FrameContext& frame, const ConstLayerView& layer) {
    const auto fault = [&](const std::string& what) {
      return MakeError(ErrorCode::kMismatch, "the calibration artefact has " + what +
                                                 " for layer " + std::to_string(layer.layer));
    };
    const QueryStatistics* found =
        frame.artefact == nullptr ? nullptr : frame.artefact->query_statistics(layer.layer);
    if (found == nullptr) return fault("no query statistics");
    const bool fits = found->dim == layer.k.dim && found->heads > 0 &&
                      found->heads % layer.k.heads == 0 &&
                      found->mean.size() == std::size_t{found->heads} * found->dim &&
                      found->covariance.size() == found->mean.size() * found->dim;
    return fits ? Status() : fault("query statistics of another shape");
  }

  Status WeighLayer(const FrameContext& frame, const ConstLayerView& layer,
                    const TokenChoice& choice, const RotationAverages& ahead, std::span<float> rank,
                    std::span<std::vector<float>> weights, Arena& scratch) const {
    const std::size_t tokens = layer.k.tokens;
    const bool single = weights.size() == 1;
    const std::size_t v_dim = single ? 0 : layer.v.dim;
    const auto k_rows = scratch.Take<float>(layer.k.values());
    const auto v_rows = scratch.Take<float>(tokens * layer.k.heads * v_dim);
    // Encoding will fail with a better message.
    if (!LoadRows(layer.k, 0, layer.k.tokens, k_rows)) return {};
    if (!single && !LoadRows(layer.v, 0, layer.v.tokens, v_rows)) return {};
    const QueryStatistics& queries = *frame.artefact->query_statistics(layer.layer);
    const std::size_t dim = queries.dim;
    const auto keys = scratch.Take<float>(PackedTokens(tokens) * dim);
    const auto values = scratch.Take<float>(PackedTokens(tokens) * v_dim);
    const auto energy = scratch.Take<float>(single ? 0 : PackedTokens(tokens));
    const HeadRoom room(tokens, dim, v_dim, scratch);
    const Sensitivity found{scratch.TakeZeroed<float>(tokens), scratch.TakeZeroed<float>(tokens),
                            rank};
    const std::size_t group = queries.heads / layer.k.heads;
    for (std::size_t h = 0; h < queries.heads; ++h) {
      if (h % group == 0) {
        PackKeys(k_rows, layer.k.heads, h / group, dim, keys);
        if (!single) PackKeys(v_rows, layer.k.heads, h / group, v_dim, values);
        Energies(values, v_dim, energy);
      }
      ahead.Rotate({queries.mean.data() + h * dim, dim},
                   {queries.covariance.data() + h * dim * dim, dim * dim}, room.mean,
                   room.covariance);
      AddSensitivity({keys, values, energy, tokens}, room, found);
    }
    Normalize(rank);
    WeighPlane(choice, layer.tokens, single ? found.value : found.key,
               settings_.value(kBeta, single ? PlaneKind::kValue : PlaneKind::kKey), weights[0]);
    if (!single) {
      WeighPlane(choice, layer.tokens, found.value, settings_.value(kBeta, PlaneKind::kValue),
                 weights[1]);
    }
    return {};
  }

  static void Normalize(std::span<float> rank) {
    double sum = 0.0;
    for (const float value : rank) sum += value;
    if (!(sum > 0.0)) return;
    for (float& value : rank) value = static_cast<float>(value / sum);
  }

  // Weights are whole octaves, the classes that quantizers make of them, so that no rounding of a
  // logarithm can be seen in them.
  void WeighPlane(const TokenChoice& choice, TokenRange tokens, std::span<const float> sensitivity,
                  double beta, std::vector<float>& weights) const {
    if (beta == 0.0) return;
    double sum = 0.0;
    std::size_t counted = 0;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      if (tokens.begin + i < choice.sinks) continue;
      sum += std::log2(std::max(double{sensitivity[i]}, kTiny));
      ++counted;
    }
    const double mean = counted == 0 ? 0.0 : sum / static_cast<double>(counted);
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      const double relative = std::log2(std::max(double{sensitivity[i]}, kTiny)) - mean;
      const double least = choice.always(tokens.begin + i) ? 1.0 : settings_.value(kLeast);
      const double octaves = std::clamp(std::round(beta * relative), -kOctaves, kOctaves);
      const double weight = std::isnan(octaves) ? 1.0 : std::exp2(octaves);
      weights[i] *= static_cast<float>(std::clamp(weight, least, settings_.value(kMost)));
    }
  }

  Settings settings_;
};

}  // namespace

const StageEntry& ExpectedStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_selector = [](const Settings& settings) -> Result<std::unique_ptr<Selector>> {
        return std::make_unique<Expected>(settings);
      }};
  return entry;
}

}  // namespace kvserve
