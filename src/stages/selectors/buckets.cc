// Thins out keys that are much alike: random hyperplanes (SimHash, Charikar 2002, the hash of
// Reformer and of HashEvict) cut the space of each head's keys into buckets, and of a crowded
// bucket the newest keys stand for the rest. A token's score is the sum over heads of 1 / rank, its
// rank in its bucket counted from the newest, so that each bucket's newest key scores 1 however
// full it is. No queries and no calibration are needed.
#include <algorithm>
#include <cmath>

#include "base/split_mix.h"
#include "kernels/attention/attention.h"
#include "pipeline/plane_floats.h"
#include "pipeline/token_choice.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kBits = 6;
constexpr std::uint8_t kSeed = 7;

constexpr ParameterInfo kParameters[] = {
    SinksParameter(),
    RecentParameter(32),
    OutsideParameter(),
    KeepParameter(0.5),
    ScopeParameter(),
    {.id = kBits,
     .name = "bits",
     .type = ParameterType::kInteger,
     .low = 1,
     .high = 16,
     .default_k = 6,
     .unit = "bit",
     .help = "hyperplanes per head; a head has 2^bits buckets"},
    {.id = kSeed,
     .name = "seed",
     .type = ParameterType::kInteger,
     .low = 0,
     .high = 2147483647,
     .default_k = 1,
     .help = "seed of the hyperplanes"},
};

constexpr StageInfo kInfo = {
    .id = 0x0104,
    .name = "buckets",
    .kind = StageKind::kSelector,
    .parameters = kParameters,
    .summary = "keys in crowded hash buckets weigh less",
};

// Normals of hyperplanes with elements of 1 and -1.
void Hyperplanes(std::uint64_t seed, std::span<float> normals) {
  SplitMix64 random(seed);
  for (float& element : normals) element = (random.Next() & 1U) != 0 ? 1.0F : -1.0F;
}

// Takes each column's mean out of the rows: keys share a bias, and without it most would lie on the
// same side of every hyperplane.
void Center(std::span<float> rows, std::size_t columns, Arena& arena) {
  const auto means = arena.TakeZeroed<double>(columns);
  for (std::size_t at = 0; at < rows.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) means[c] += rows[at + c];
  }
  const std::size_t count = rows.size() / columns;
  const auto tokens = static_cast<double>(count);
  for (double& mean : means) mean /= tokens;
  for (std::size_t at = 0; at < rows.size(); at += columns) {
    for (std::size_t c = 0; c < columns; ++c) rows[at + c] -= static_cast<float>(means[c]);
  }
}

class Buckets : public Selector {
 public:
  explicit Buckets(const Settings& settings) : settings_(settings) {}

  Status Weigh(const FrameContext& frame, const ConstKvView& view, SelectorMemory* /*memory*/,
               std::span<std::vector<float>> weights) const override {
    const auto scores = ScoreLayers(frame, view, [&](std::size_t i, auto rank, Arena& scratch) {
      return ScoreLayer(view.layers[i], rank, scratch);
    });
    if (!scores) return tl::unexpected(scores.error());
    WeighByChoice(TokenChoice::From(settings_, frame), frame, view, *scores, weights);
    return {};
  }
  [[nodiscard]] bool may_drop() const override { return TokenChoice::MayDrop(settings_); }

 private:
  Status ScoreLayer(const ConstLayerView& layer, std::span<float> scores, Arena& scratch) const {
    const std::size_t dim = layer.k.dim;
    const std::size_t bits = settings_.integer(kBits);
    const auto rows = scratch.Take<float>(layer.k.values());
    // Encoding will fail with a better message.
    if (!LoadRows(layer.k, 0, layer.k.tokens, rows)) return {};
    Center(rows, layer.k.heads * dim, scratch);
    const std::size_t padded = PackedTokens(layer.k.tokens);
    const auto keys = scratch.Take<float>(padded * dim);
    const auto normals = scratch.Take<float>(bits * dim);
    const auto sides = scratch.Take<float>(bits * padded);
    const auto counts = scratch.Take<std::uint32_t>(std::size_t{1} << bits);
    for (std::uint32_t head = 0; head < layer.k.heads; ++head) {
      const std::uint64_t table = std::uint64_t{layer.layer} * kMaxHeads + head;
      Hyperplanes((std::uint64_t{settings_.integer(kSeed)} << 32) + table, normals);
      PackKeys(rows, layer.k.heads, head, dim, keys);
      KeyProducts(normals, keys, dim, sides);
      std::fill(counts.begin(), counts.end(), 0U);
      for (std::size_t t = scores.size(); t-- > 0;) {
        std::size_t bucket = 0;
        for (std::size_t b = 0; b < bits; ++b) {
          bucket = 2 * bucket + (sides[b * padded + t] >= 0.0F ? 1 : 0);
        }
        scores[t] += 1.0F / static_cast<float>(++counts[bucket]);
      }
    }
    return {};
  }

  Settings settings_;
};

}  // namespace

const StageEntry& BucketsStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_selector = [](const Settings& settings) -> Result<std::unique_ptr<Selector>> {
        return std::make_unique<Buckets>(settings);
      }};
  return entry;
}

}  // namespace kvserve
