#include "engine/testing/fake_engine.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/half.h"
#include "base/hash.h"
#include "base/try.h"

namespace kvserve::testing {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t both[2] = {a, b};
  return Hash64(std::as_bytes(std::span(both)));
}

// A value in [-1, 1) that every cache dtype holds exactly (7 significant bits).
float UnitValue(std::uint64_t bits) {
  return static_cast<float>(static_cast<int>(bits % 128) - 64) / 64.0F;
}

void PutElement(float value, DType dtype, std::byte* out) {
  if (dtype == DType::kFloat32) {
    std::memcpy(out, &value, sizeof(value));
    return;
  }
  const std::uint16_t half =
      dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(out, &half, sizeof(half));
}

std::size_t PlaneBytes(const LayerGeometry& layer, DType dtype, PlaneKind kind) {
  const std::uint32_t dim = kind == PlaneKind::kKey ? layer.k_dim : layer.v_dim;
  return std::size_t{layer.kv_heads} * dim * DTypeBytes(dtype);
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options)
    : options_(std::move(options)), logits_(kVocabulary) {
  info_.name = "fake-" + std::to_string(options_.model_seed);
  info_.architecture = "fake";
  info_.context_tokens = options_.context_tokens;
  info_.vocabulary = kVocabulary;
  info_.geometry.dtype = options_.dtype;
  LayerGeometry layer{.kv_heads = 2,
                      .k_dim = 8,
                      .v_dim = 8,
                      .rope_style = RopeStyle::kHalves,
                      .rope_theta = 10000.0F};
  info_.geometry.layers.assign(kLayers, layer);
  info_.geometry.layers[1].window_tokens = options_.window_tokens;
  info_.geometry.layers[2].v_dim = 4;
  const std::uint64_t seed[2] = {options_.model_seed, static_cast<std::uint64_t>(options_.dtype)};
  info_.fingerprint = Hash128(std::as_bytes(std::span(seed)));
}

Result<std::vector<Token>> FakeEngine::Tokenize(std::string_view text, bool /*add_special*/,
                                                bool /*parse_special*/) const {
  std::vector<Token> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string FakeEngine::TokenText(Token token) const {
  if (token < 0 || token > 255) return "";
  return std::string(1, static_cast<char>(token));
}

Result<std::string> FakeEngine::ChatPrompt(std::span<const ChatMessage> messages) const {
  std::string prompt;
  for (const auto& message : messages) prompt += message.role + ":" + message.content + "\n";
  return prompt;
}

Result<SequenceId> FakeEngine::OpenSequence() {
  for (SequenceId id = 0; id < static_cast<SequenceId>(options_.sequences); ++id) {
    if (sequences_.contains(id)) continue;
    sequences_[id].resize(kLayers);
    ++open_sequences_;
    return id;
  }
  return MakeError(ErrorCode::kResourceExhausted, "all sequences are used");
}

void FakeEngine::CloseSequence(SequenceId sequence) {
  if (sequences_.erase(sequence) > 0) --open_sequences_;
}

Status FakeEngine::CheckSequence(SequenceId sequence) const {
  if (sequences_.contains(sequence)) return {};
  return MakeError(ErrorCode::kInvalidArgument, "no such sequence");
}

FakeEngine::Row FakeEngine::MakeRow(std::uint32_t layer, Token token, std::uint64_t state) const {
  const LayerGeometry& shape = info_.geometry.layers[layer];
  const std::size_t element = DTypeBytes(options_.dtype);
  Row row(PlaneBytes(shape, options_.dtype, PlaneKind::kKey) +
          PlaneBytes(shape, options_.dtype, PlaneKind::kValue));
  for (std::size_t i = 0; i * element < row.size(); ++i) {
    PutElement(UnitValue(Mix(state, i * kGolden + layer)), options_.dtype, &row[i * element]);
  }
  if (token == options_.nan_token) {
    PutElement(std::numeric_limits<float>::quiet_NaN(), options_.dtype, row.data());
  }
  if (token == options_.large_token) PutElement(6e4F, options_.dtype, row.data());
  return row;
}

Status FakeEngine::Append(Sequence& cells, Token token, std::uint32_t position,
                          std::uint32_t batch_begin) {
  if (position >= options_.context_tokens) {
    return MakeError(ErrorCode::kInvalidArgument, "the context is full");
  }
  std::uint64_t state =
      Mix(options_.model_seed, Mix(static_cast<std::uint64_t>(token), Mix(position, batch_begin)));
  if (position > 0) {
    const auto before = cells[0].find(position - 1);
    if (before == cells[0].end()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "position " + std::to_string(position - 1) + " is not in the cache");
    }
    state = Mix(state, Hash64(before->second));
  }
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    cells[layer][position] = MakeRow(layer, token, state);
  }
  return {};
}

Status FakeEngine::Prefill(SequenceId sequence, std::span<const Token> tokens,
                           std::uint32_t first_position) {
  KVSERVE_TRY(CheckSequence(sequence));
  if (options_.on_prefill) KVSERVE_TRY(options_.on_prefill(tokens, first_position));
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    KVSERVE_TRY(Append(sequences_[sequence], tokens[i], first_position + i, first_position));
  }
  prefilled_tokens_ += static_cast<int>(tokens.size());
  if (tap_) ShowQueries(tokens, first_position);
  return {};
}

Status FakeEngine::TapQueries(QueryTap tap) {
  tap_ = std::move(tap);
  return {};
}

void FakeEngine::ShowQueries(std::span<const Token> tokens, std::uint32_t first_position) const {
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const LayerGeometry& shape = info_.geometry.layers[layer];
    const std::uint32_t heads = 2 * shape.kv_heads;
    const std::uint32_t pairs = shape.k_dim / 2;
    std::vector<float> before, after;
    for (std::size_t i = 0; i < tokens.size() * heads * shape.k_dim; ++i) {
      const auto token = static_cast<std::uint64_t>(tokens[i / (heads * shape.k_dim)]);
      before.push_back(UnitValue(Mix(token, i % (heads * shape.k_dim) * kGolden + layer)));
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::size_t token = i / (heads * shape.k_dim);
      const auto position = static_cast<double>(first_position + token);
      const std::size_t d = i % shape.k_dim;
      const double angle = position * std::pow(static_cast<double>(shape.rope_theta),
                                               -static_cast<double>(d % pairs) / pairs);
      const double other = d < pairs ? -before[i + pairs] : before[i - pairs];
      after.push_back(static_cast<float>(before[i] * std::cos(angle) + other * std::sin(angle)));
    }
    tap_(layer, first_position, before, heads, shape.k_dim, false);
    tap_(layer, first_position, after, heads, shape.k_dim, true);
  }
}

// Hashes every visible cell; prefers printable text, with an "e acute" (two tokens) now and then.
void FakeEngine::FillLogits(const Sequence& cells, Token token, std::uint32_t position) {
  std::uint64_t state = options_.model_seed;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::uint32_t window = info_.geometry.layers[layer].window_tokens;
    const std::uint32_t begin = window == 0 || position + 1 < window ? 0 : position + 1 - window;
    for (std::uint32_t p = begin; p <= position; ++p) {
      const auto cell = cells[layer].find(p);
      state = Mix(state, cell == cells[layer].end() ? 0 : Hash64(cell->second, p));
    }
  }
  for (std::uint32_t v = 0; v < kVocabulary; ++v) {
    const bool printable = v >= 32 && v < 127;
    logits_[v] = UnitValue(Mix(state, v)) + static_cast<float>(v) * 1e-4F - (printable ? 0 : 50);
  }
  if (token == 0xC3) {
    logits_[0xA9] = 60;
  } else if (state % 8 == 0) {
    logits_[0xC3] = 60;
  } else if (options_.end_tokens && state % 16 == 1) {
    logits_[kEndToken] = 60;
  }
}

Result<std::span<const float>> FakeEngine::Decode(SequenceId sequence, Token token,
                                                  std::uint32_t position) {
  KVSERVE_TRY(CheckSequence(sequence));
  if (options_.on_decode) KVSERVE_TRY(options_.on_decode(position));
  Sequence& cells = sequences_[sequence];
  KVSERVE_TRY(Append(cells, token, position, position));
  FillLogits(cells, token, position);
  ++decoded_tokens_;
  return std::span<const float>(logits_);
}

Result<std::vector<float>> FakeEngine::Score(SequenceId sequence, std::span<const Token> tokens,
                                             std::uint32_t first_position) {
  std::vector<float> all;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    KVSERVE_ASSIGN(const auto logits, Decode(sequence, tokens[i], first_position + i));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

Status FakeEngine::Truncate(SequenceId sequence, std::uint32_t tokens) {
  KVSERVE_TRY(CheckSequence(sequence));
  for (std::map<std::uint32_t, Row>& layer : sequences_[sequence]) {
    layer.erase(layer.lower_bound(tokens), layer.end());
  }
  return {};
}

Status FakeEngine::Capture(SequenceId sequence, TokenRange tokens, std::uint32_t total_tokens,
                           KvBuffer& out) {
  KVSERVE_TRY(CheckSequence(sequence));
  KVSERVE_TRY(out.Resize(info_.geometry, tokens, total_tokens));
  const Sequence& cells = sequences_[sequence];
  const KvView view = out.view();
  for (const LayerView& layer : view.layers) {
    const LayerGeometry& shape = info_.geometry.layers[layer.layer];
    const std::size_t key_bytes = PlaneBytes(shape, options_.dtype, PlaneKind::kKey);
    const std::size_t value_bytes = PlaneBytes(shape, options_.dtype, PlaneKind::kValue);
    for (std::uint32_t i = 0; i < layer.tokens.size(); ++i) {
      const auto cell = cells[layer.layer].find(layer.tokens.begin + i);
      if (cell == cells[layer.layer].end()) {
        return MakeError(ErrorCode::kBadInput, "a token that was asked for is not in the cache");
      }
      std::memcpy(layer.k.at(i, 0, 0), cell->second.data(), key_bytes);
      std::memcpy(layer.v.at(i, 0, 0), cell->second.data() + key_bytes, value_bytes);
    }
  }
  return {};
}

Status FakeEngine::Inject(SequenceId sequence, const ConstKvView& chunk) {
  KVSERVE_TRY(CheckSequence(sequence));
  if (chunk.geometry == nullptr || *chunk.geometry != info_.geometry) {
    return MakeError(ErrorCode::kMismatch, "the chunk has another geometry");
  }
  Sequence& cells = sequences_[sequence];
  for (const ConstLayerView& layer : chunk.layers) {
    const LayerGeometry& shape = info_.geometry.layers[layer.layer];
    const std::size_t key_bytes = PlaneBytes(shape, options_.dtype, PlaneKind::kKey);
    const std::size_t value_bytes = PlaneBytes(shape, options_.dtype, PlaneKind::kValue);
    for (std::uint32_t i = 0; i < layer.tokens.size(); ++i) {
      Row row(key_bytes + value_bytes);
      std::memcpy(row.data(), layer.k.at(i, 0, 0), key_bytes);
      std::memcpy(row.data() + key_bytes, layer.v.at(i, 0, 0), value_bytes);
      cells[layer.layer][layer.tokens.begin + i] = std::move(row);
    }
  }
  injected_tokens_ += static_cast<int>(chunk.tokens.size());
  return {};
}

Status FakeEngine::Drop(SequenceId sequence, TokenRange tokens) {
  KVSERVE_TRY(CheckSequence(sequence));
  Sequence& cells = sequences_[sequence];
  if (tokens.empty()) return {};
  const std::uint32_t next = cells[0].empty() ? 0 : cells[0].rbegin()->first + 1;
  if (tokens.end > next) return MakeError(ErrorCode::kInvalidArgument, "beyond the sequence");
  if (tokens.end == next) return MakeError(ErrorCode::kUnsupported, "the last token must stay");
  for (auto& layer : cells) {
    layer.erase(layer.lower_bound(tokens.begin), layer.lower_bound(tokens.end));
  }
  dropped_tokens_ += static_cast<int>(tokens.size());
  return {};
}

}  // namespace kvserve::testing
