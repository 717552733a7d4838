// On an engine whose distributions are a smooth function of the context's KV: what the sensitivity
// says of errors must be what they do.
#include "calibration/forward_sensitivity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/split_mix.h"
#include "base/try.h"
#include "calibration/divergence_probe.h"
#include "engine/testing/fake_engine.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

using ::testing::HasSubstr;

// Softmax attention of one query per head over the context's keys and values; what it gives moves
// the logits by weights of its own, a layer as strongly as `strength` says.
class SmoothEngine final : public testing::FakeEngine {
 public:
  explicit SmoothEngine(std::vector<float> strength)
      : FakeEngine({.dtype = DType::kFloat32}), strength_(std::move(strength)) {}

  Result<std::vector<float>> Score(SequenceId sequence, std::span<const Token> tokens,
                                   std::uint32_t first_position) override {
    KvBuffer context;
    KVSERVE_TRY(Capture(sequence, {0, first_position}, first_position, context));
    std::vector<float> logits(tokens.size() * kVocabulary);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::span<float> row = std::span(logits).subspan(i * kVocabulary, kVocabulary);
      for (const LayerView& layer : context.view().layers) {
        AddLayer(layer, static_cast<std::uint64_t>(tokens[i]), row);
      }
    }
    return logits;
  }

 private:
  static float Value(std::uint64_t a, std::uint64_t b) {
    return static_cast<float>(MixBits(a * kSplitMixStep + b) >> 40) * 0x1p-23F - 1;
  }

  void AddLayer(const LayerView& layer, std::uint64_t token, std::span<float> logits) const {
    std::vector<float> keys(layer.k.values()), values(layer.v.values());
    LoadFloats(AsConst(layer.k), keys);
    LoadFloats(AsConst(layer.v), values);
    for (std::uint32_t head = 0; head < layer.k.heads; ++head) {
      std::vector<float> out(layer.v.dim);
      float sum = 0;
      for (std::uint32_t t = 0; t < layer.k.tokens; ++t) {
        float logit = 0;
        for (std::uint32_t d = 0; d < layer.k.dim; ++d) {
          logit += Value(token, d) * keys[(t * layer.k.heads + head) * layer.k.dim + d];
        }
        const float weight = std::exp(logit);
        sum += weight;
        for (std::uint32_t d = 0; d < layer.v.dim; ++d) {
          out[d] += weight * values[(t * layer.v.heads + head) * layer.v.dim + d];
        }
      }
      for (std::size_t v = 0; v < logits.size(); ++v) {
        for (std::uint32_t d = 0; d < layer.v.dim; ++d) {
          logits[v] += strength_[layer.layer] * Value(v, d + 100 * head) * out[d] / sum;
        }
      }
    }
  }

  static ConstPlaneView AsConst(const PlaneView& view) {
    return {view.data, view.dtype,        view.device,      view.tokens,    view.heads,
            view.dim,  view.token_stride, view.head_stride, view.dim_stride};
  }

  std::vector<float> strength_;  // [layer]
};

std::vector<std::vector<Token>> Prompts(std::size_t texts, std::size_t size) {
  std::vector<std::vector<Token>> prompts(texts);
  for (std::size_t i = 0; i < texts; ++i) {
    for (std::size_t t = 0; t < size; ++t) {
      prompts[i].push_back(static_cast<Token>(MixBits(i * 1000 + t) % 256));
    }
  }
  return prompts;
}

ForwardSensitivityOptions Options() {
  ForwardSensitivityOptions options;
  options.context_tokens = 160;
  options.scored_tokens = 8;
  options.prefill_tokens = 64;
  options.target_divergence = 1e-3;
  return options;
}

double Trace(const std::vector<float>& matrix) {
  const auto columns = static_cast<std::size_t>(std::sqrt(static_cast<double>(matrix.size())));
  double sum = 0;
  for (std::size_t i = 0; i < columns; ++i) sum += matrix[i * (columns + 1)];
  return sum;
}

TEST(ForwardSensitivity, HasTheShapesOfTheGeometry) {
  SmoothEngine engine({2, 2, 2});
  std::uint64_t last = 0;
  auto options = Options();
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, 6U);
    last = done;
  };
  const auto found = ForwardSensitivity(engine, Prompts(3, 200), options);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->planes.size(), 6U);
  EXPECT_EQ(found->planes[0].size(), 16U * 16);
  EXPECT_EQ(found->planes[5].size(), 8U * 8);  // two heads of 4
  EXPECT_EQ(found->context_tokens, 160U);
  EXPECT_EQ(found->scored_tokens, 8U);
  EXPECT_EQ(last, 6U);
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t c = 0; c < 16; ++c) {
      EXPECT_NEAR(found->planes[0][r * 16 + c], found->planes[0][c * 16 + r], 1e-6);
      if (r / 8 != c / 8) {
        EXPECT_EQ(found->planes[0][r * 16 + c], 0);
      }
    }
  }
  EXPECT_EQ(engine.open_sequences(), 0);
  SmoothEngine again({2, 2, 2});
  EXPECT_EQ(ForwardSensitivity(again, Prompts(3, 200), Options())->planes, found->planes);
}

// Strengths of 1, 4 and 0.25 are sensitivities of 1, 16 and 1/16.
TEST(ForwardSensitivity, ScalesWithTheSquareOfALayersEffect) {
  SmoothEngine even({1, 1, 1});
  SmoothEngine uneven({1, 4, 0.25});
  const auto a = ForwardSensitivity(even, Prompts(2, 200), Options());
  const auto b = ForwardSensitivity(uneven, Prompts(2, 200), Options());
  ASSERT_TRUE(a && b);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const double expected = layer == 0 ? 1 : layer == 1 ? 16 : 1.0 / 16;
    const std::size_t plane = 2 * layer + 1;
    EXPECT_NEAR(std::log2(Trace(b->planes[plane]) / Trace(a->planes[plane]) / expected), 0, 1.0)
        << "layer " << layer;
  }
}

// Errors that it was not measured with, in all values at once.
TEST(ForwardSensitivity, PredictsTheDivergenceOfOtherErrors) {
  SmoothEngine engine({2, 1, 2});
  const auto prompts = Prompts(1, 200);
  const auto found = ForwardSensitivity(engine, prompts, Options());
  ASSERT_TRUE(found) << found.error().message;
  const std::span<const Token> tokens(prompts.front());
  auto probe = DivergenceProbe::Create(engine, tokens.first(160), tokens.subspan(160, 8), 64);
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->Divergence().value(), 0.0);
  double predicted = 0;
  SplitMix64 random(5);
  for (const LayerView& layer : probe->kv().layers) {
    const std::size_t columns = std::size_t{layer.v.heads} * layer.v.dim;
    auto* const values = reinterpret_cast<float*>(layer.v.data);
    for (std::uint32_t t = 4; t + 32 < layer.tokens.size(); ++t) {
      for (std::size_t c = 0; c < columns; ++c) {
        const bool up = random.Next() % 2 == 0;
        values[t * columns + c] += up ? 0.1F : -0.1F;
      }
      predicted += 0.5 * 0.01 * Trace(found->planes[2 * layer.layer + 1]);
    }
  }
  const double divergence = probe->Divergence().value();
  EXPECT_GT(divergence, 1e-4);
  EXPECT_NEAR(std::log2(predicted / divergence), 0, 1.0);
}

TEST(ForwardSensitivity, RefusesWhatIsTooShort) {
  SmoothEngine engine({1, 1, 1});
  auto short_texts = ForwardSensitivity(engine, Prompts(2, 130), Options());
  ASSERT_FALSE(short_texts);
  EXPECT_EQ(short_texts.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(short_texts.error().message, HasSubstr("136 tokens"));
  auto options = Options();
  options.scored_tokens = 0;
  EXPECT_EQ(ForwardSensitivity(engine, Prompts(2, 200), options).error().code,
            ErrorCode::kInvalidArgument);
  options = Options();
  options.context_tokens = 1000;  // as many as the longest text leaves
  EXPECT_EQ(ForwardSensitivity(engine, Prompts(1, 150), options)->context_tokens, 142U);
}

}  // namespace
}  // namespace kvserve
