#include "pipeline/expected_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/attention/attention.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

// One KV head of a layer.
struct HeadTokens {
  std::span<const float> keys;    // packed
  std::span<const float> values;  // packed; empty for a single plane
  std::span<const float> energy;  // [packed token] |v|^2
  std::size_t tokens = 0;
};

// What earlier keys are to one query head, and where to leave what these ones are.
struct HeadMemory {
  const double* log_sum_before = nullptr;  // null: there are none
  std::span<const float> mean_before;
  double* log_sum = nullptr;  // null: nobody asks
  std::span<float> mean;
};

// Room for one query head.
struct HeadRoom {
  HeadRoom(std::size_t tokens, std::size_t k_dim, std::size_t v_dim, Arena& arena)
      : mean(arena.Take<float>(k_dim)),
        covariance(arena.Take<float>(k_dim * k_dim)),
        logits(arena.Take<float>(PackedTokens(tokens))),
        forms(arena.Take<float>(PackedTokens(tokens))),
        probability(arena.Take<float>(PackedTokens(tokens))),
        output(arena.Take<float>(v_dim)) {}

  std::span<float> mean;
  std::span<float> covariance;
  std::span<float> logits;
  std::span<float> forms;
  std::span<float> probability;
  std::span<float> output;
};

// The softmax over these tokens, and the logarithm of its sum.
double ExpectAttention(const HeadTokens& head, const HeadRoom& room) {
  const std::size_t dim = room.mean.size();
  const auto d = static_cast<float>(dim);
  KeyProducts(room.mean, head.keys, dim, room.logits);
  QuadraticForms(room.covariance, head.keys, dim, room.forms);
  const float linear = 1.0F / std::sqrt(d);
  const float quadratic = 1.0F / (2.0F * d);
  for (std::size_t t = 0; t < head.tokens; ++t) {
    room.logits[t] = room.logits[t] * linear + room.forms[t] * quadratic;
  }
  std::fill(room.probability.begin(), room.probability.end(), 0.0F);
  const SoftmaxSum divisor =
      AddSoftmax(room.logits.first(head.tokens), 1.0F, room.probability.first(head.tokens));
  return double{divisor.largest} + std::log(double{divisor.sum});
}

// From the softmax over these tokens to the one over all keys seen.
void TakeShare(double log_sum, const HeadMemory& memory, const HeadRoom& room) {
  const auto share = static_cast<float>(1.0 / (1.0 + std::exp(*memory.log_sum_before - log_sum)));
  for (float& p : room.probability) p *= share;
  for (std::size_t c = 0; c < room.output.size(); ++c) {
    room.output[c] = share * room.output[c] + (1.0F - share) * memory.mean_before[c];
  }
}

void AddHead(const HeadTokens& head, const HeadMemory& memory, const HeadRoom& room,
             const TokenSensitivity& out) {
  const double log_sum = ExpectAttention(head, room);
  const auto& p = room.probability;
  if (!head.values.empty()) SumWeighted(room.probability, head.values, room.output);
  if (memory.log_sum != nullptr) {
    *memory.log_sum = log_sum;
    std::copy(room.output.begin(), room.output.end(), memory.mean.begin());
  }
  if (memory.log_sum_before != nullptr) TakeShare(log_sum, memory, room);
  for (std::size_t t = 0; t < head.tokens; ++t) out.value[t] += p[t] * p[t];
  if (head.values.empty()) {  // a latent is key and value at once
    for (std::size_t t = 0; t < head.tokens; ++t) out.rank[t] += p[t];
    return;
  }
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

HeadMemory MemoryOf(std::size_t head, std::size_t v_dim, const SeenKeys* before, SeenKeys* now) {
  HeadMemory memory;
  if (before != nullptr) {
    memory.log_sum_before = before->log_sum.data() + head;
    memory.mean_before = std::span(before->mean_value).subspan(head * v_dim, v_dim);
  }
  if (now != nullptr) {
    memory.log_sum = now->log_sum.data() + head;
    memory.mean = std::span(now->mean_value).subspan(head * v_dim, v_dim);
  }
  return memory;
}

}  // namespace

RotationAverages QueriesAhead(const LayerGeometry& layer, double first, double horizon,
                              Arena& arena) {
  const RopeStyle style = layer.k_dim % 2 == 0 ? layer.rope_style : RopeStyle::kNone;
  return {style, layer.rope_theta, layer.k_dim, first, first + horizon, arena};
}

Status CheckQueryStatistics(const CalibrationArtefact* artefact, const ConstLayerView& layer) {
  const auto fault = [&](const std::string& what) {
    return MakeError(ErrorCode::kMismatch, "the calibration artefact has " + what + " for layer " +
                                               std::to_string(layer.layer));
  };
  const QueryStatistics* found =
      artefact == nullptr ? nullptr : artefact->query_statistics(layer.layer);
  if (found == nullptr) return fault("no query statistics");
  const bool fits = found->dim == layer.k.dim && found->heads > 0 &&
                    found->heads % layer.k.heads == 0 &&
                    found->mean.size() == std::size_t{found->heads} * found->dim &&
                    found->covariance.size() == found->mean.size() * found->dim;
  return fits ? Status() : fault("query statistics of another shape");
}

bool AddSensitivity(const ConstLayerView& layer, const QueryStatistics& queries,
                    const RotationAverages& ahead, const SeenKeys* before, SeenKeys* now,
                    const TokenSensitivity& out, Arena& scratch) {
  const std::size_t tokens = layer.k.tokens;
  const std::size_t v_dim = layer.v.dim;
  const bool single = v_dim == 0;
  const auto k_rows = scratch.Take<float>(layer.k.values());
  const auto v_rows = scratch.Take<float>(tokens * layer.k.heads * v_dim);
  if (!LoadRows(layer.k, 0, layer.k.tokens, k_rows)) return false;
  if (!single && !LoadRows(layer.v, 0, layer.v.tokens, v_rows)) return false;
  const std::size_t dim = queries.dim;
  const auto keys = scratch.Take<float>(PackedTokens(tokens) * dim);
  const auto values = scratch.Take<float>(PackedTokens(tokens) * v_dim);
  const auto energy = scratch.Take<float>(single ? 0 : PackedTokens(tokens));
  const HeadRoom room(tokens, dim, v_dim, scratch);
  if (now != nullptr) {
    now->tokens = layer.tokens;
    now->log_sum.resize(queries.heads);
    now->mean_value.resize(queries.heads * v_dim);
  }
  const std::size_t group = queries.heads / layer.k.heads;
  for (std::size_t h = 0; h < queries.heads; ++h) {
    if (h % group == 0) {
      PackKeys(k_rows, layer.k.heads, h / group, dim, keys);
      if (!single) PackKeys(v_rows, layer.k.heads, h / group, v_dim, values);
      SumSquares(values, v_dim, energy);
    }
    ahead.Rotate({queries.mean.data() + h * dim, dim},
                 {queries.covariance.data() + h * dim * dim, dim * dim}, room.mean,
                 room.covariance);
    AddHead({keys, values, energy, tokens}, MemoryOf(h, v_dim, before, now), room, out);
  }
  return true;
}

void AddSeenKeys(const SeenKeys& run, double shift, SeenKeys& all) {
  if (all.log_sum.empty()) {
    all = run;
    for (double& log_sum : all.log_sum) log_sum += shift;
    return;
  }
  const std::size_t v_dim = run.mean_value.size() / run.log_sum.size();
  for (std::size_t h = 0; h < all.log_sum.size(); ++h) {
    const double share = 1.0 / (1.0 + std::exp(all.log_sum[h] - (run.log_sum[h] + shift)));
    for (std::size_t c = h * v_dim; c < (h + 1) * v_dim; ++c) {
      const double mean = double{all.mean_value[c]} * (1.0 - share) + share * run.mean_value[c];
      all.mean_value[c] = static_cast<float>(mean);
    }
    const double larger = std::max(all.log_sum[h], run.log_sum[h] + shift);
    const double smaller = std::min(all.log_sum[h], run.log_sum[h] + shift);
    all.log_sum[h] = larger + std::log1p(std::exp(smaller - larger));
  }
  all.tokens.end = std::max(all.tokens.end, run.tokens.end);
}

}  // namespace kvserve
