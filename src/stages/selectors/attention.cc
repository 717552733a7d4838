// Keeps the tokens that attention looks at most, by the prompt's own queries. With all queries and
// no pooling these are the heavy hitters of H2O (Zhang et al. 2023, arXiv:2306.14048), with the
// last `observed` ones and pooling the tokens of SnapKV (Li et al. 2024, arXiv:2404.14469). Both
// choose per head; here a token's mass is summed over the heads of a layer, and over layers unless
// each ranks by itself.
#include <algorithm>
#include <cmath>

#include "kernels/attention/attention.h"
#include "pipeline/frame_queries.h"
#include "pipeline/plane_floats.h"
#include "pipeline/token_choice.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kObserved = 6;
constexpr std::uint8_t kPool = 7;

constexpr ParameterInfo kParameters[] = {
    SinksParameter(),
    RecentParameter(32),
    OutsideParameter(),
    KeepParameter(0.5),
    ScopeParameter(),
    {.id = kObserved,
     .name = "observed",
     .type = ParameterType::kInteger,
     .low = 0,
     .high = 65536,
     .default_k = 32,
     .unit = "tokens",
     .help = "last queries to rank by, whose tokens are always kept; 0: all queries"},
    {.id = kPool,
     .name = "pool",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 255,
     .default_k = 7,
     .unit = "tokens",
     .help = "odd width over which a token has its neighbours' largest mass; 1: its own"},
};

constexpr StageInfo kInfo = {
    .id = 0x0102,
    .name = "attention",
    .kind = StageKind::kSelector,
    .parameters = kParameters,
    .summary = "tokens with the most attention mass weigh more (H2O, SnapKV)",
};

// Queries that go through the keys together.
constexpr std::size_t kQueryRows = 16;

// The part of `tokens` that the query at `position` sees.
TokenRange Visible(TokenRange tokens, std::uint32_t position, std::uint32_t window) {
  TokenRange seen{tokens.begin, std::min(tokens.end, position + 1)};
  if (window > 0 && position >= window) seen.begin = std::max(seen.begin, position + 1 - window);
  return seen.begin < seen.end ? seen : TokenRange{tokens.begin, tokens.begin};
}

// The attention of one query head over the keys of its KV head.
struct HeadAttention {
  TokenRange tokens;  // of the keys
  std::uint32_t window = 0;
  std::span<const float> keys;  // packed
  std::span<float> queries;     // [kQueryRows, dim]
  std::span<float> logits;      // [kQueryRows, packed tokens]

  // Adds the mass of queries at positions [first, first + rows), packed in `queries`.
  void Add(std::uint32_t first, std::size_t rows, std::size_t dim, std::span<float> mass) const {
    const std::size_t seen =
        PackedTokens(Visible(tokens, first + static_cast<std::uint32_t>(rows) - 1, 0).size());
    if (seen == 0) return;
    KeyProducts(queries.first(rows * dim), keys.first(seen * dim), dim, logits.first(rows * seen));
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (std::size_t r = 0; r < rows; ++r) {
      const TokenRange part = Visible(tokens, first + static_cast<std::uint32_t>(r), window);
      const std::size_t begin = part.begin - tokens.begin;
      AddSoftmax(logits.subspan(r * seen + begin, part.size()), scale,
                 mass.subspan(begin, part.size()));
    }
  }
};

// Each of the first `count` becomes the largest within `reach` of it and of them.
void PoolLargest(std::span<float> mass, std::size_t count, std::size_t reach, Arena& arena) {
  if (reach == 0) return;
  const auto before = arena.Take<float>(count);
  std::copy_n(mass.begin(), count, before.begin());
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t begin = t - std::min(t, reach);
    const std::size_t end = std::min(count, t + reach + 1);
    mass[t] = *std::max_element(before.begin() + static_cast<std::ptrdiff_t>(begin),
                                before.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

class Attention : public Selector {
 public:
  explicit Attention(const Settings& settings) : settings_(settings) {}

  Status Weigh(const FrameContext& frame, const ConstKvView& view, SelectorMemory* /*memory*/,
               std::span<std::vector<float>> weights) const override {
    const auto scores = ScoreLayers(frame, view, [&](std::size_t i, auto mass, Arena& scratch) {
      return ScoreLayer(frame, view.layers[i], mass, scratch);
    });
    if (!scores) return tl::unexpected(scores.error());
    TokenChoice choice = TokenChoice::From(settings_, frame);
    if (settings_.integer(kObserved) > 0) {
      choice.kept_from = std::min(choice.kept_from, Observed(frame).begin);
    }
    WeighByChoice(choice, frame, view, *scores, weights);
    return {};
  }
  [[nodiscard]] bool needs_queries() const override { return true; }
  [[nodiscard]] bool may_drop() const override { return TokenChoice::MayDrop(settings_); }

 private:
  // Positions of the queries to rank by.
  [[nodiscard]] TokenRange Observed(const FrameContext& frame) const {
    const TokenRange given = frame.queries->tokens;
    const std::uint32_t last = settings_.integer(kObserved);
    return {last == 0 ? given.begin : given.end - std::min(given.size(), last), given.end};
  }

  Status ScoreLayer(const FrameContext& frame, const ConstLayerView& layer, std::span<float> mass,
                    Arena& scratch) const {
    const auto rows = scratch.Take<float>(layer.k.values());
    // Encoding will fail with a better message.
    if (!LoadRows(layer.k, 0, layer.k.tokens, rows)) return {};
    const QueryLayer& queries = *FindQueries(*frame.queries, layer.layer);
    const std::size_t dim = layer.k.dim;
    const std::size_t padded = PackedTokens(layer.k.tokens);
    const auto keys = scratch.Take<float>(padded * dim);
    const HeadAttention head{.tokens = layer.tokens,
                             .window = frame.geometry->layers[layer.layer].window_tokens,
                             .keys = keys,
                             .queries = scratch.Take<float>(kQueryRows * dim),
                             .logits = scratch.Take<float>(kQueryRows * padded)};
    const std::uint32_t group = queries.heads / layer.k.heads;
    for (std::uint32_t h = 0; h < queries.heads; ++h) {
      if (h % group == 0) PackKeys(rows, layer.k.heads, h / group, dim, keys);
      AddHead(frame, queries, h, head, mass);
    }
    const TokenRange observed = Observed(frame);
    const std::uint32_t pooled =
        settings_.integer(kObserved) == 0 ? layer.tokens.end : observed.begin;
    PoolLargest(mass, Visible(layer.tokens, pooled, 0).size(), settings_.integer(kPool) / 2,
                scratch);
    return {};
  }

  void AddHead(const FrameContext& frame, const QueryLayer& queries, std::uint32_t head,
               const HeadAttention& attention, std::span<float> mass) const {
    const std::size_t dim = queries.dim;
    const TokenRange observed = Observed(frame);
    for (std::uint32_t first = observed.begin; first < observed.end; first += kQueryRows) {
      const std::size_t rows = std::min<std::size_t>(kQueryRows, observed.end - first);
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t token = first + r - frame.queries->tokens.begin;
        const float* const from = queries.values.data() + (token * queries.heads + head) * dim;
        std::copy_n(from, dim, attention.queries.begin() + static_cast<std::ptrdiff_t>(r * dim));
      }
      attention.Add(first, rows, dim, mass);
    }
  }

  Settings settings_;
};

}  // namespace

const StageEntry& AttentionStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_selector = [](const Settings& settings) -> Result<std::unique_ptr<Selector>> {
        return std::make_unique<Attention>(settings);
      }};
  return entry;
}

}  // namespace kvserve
