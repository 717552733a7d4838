#include "pipeline/testing/row_stages.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/try.h"
#include "pipeline/testing/toy_stages.h"

namespace kvserve::testing {
namespace {

// ---- turn --------------------------------------------------------------------------------------

class Turn final : public Transform, private RowTransform {
 public:
  explicit Turn(const Settings& settings) : overflow_(settings.value(1) != 0.0) {}

  [[nodiscard]] const RowTransform* rows() const override { return this; }

 private:
  Result<const PlaneState*> Open(const PlaneContext& /*plane*/, PlaneShape /*shape*/,
                                 Direction /*direction*/) const override {
    return nullptr;
  }
  void ForwardRows(const PlaneState* /*state*/, std::uint32_t first_row,
                   RealPlane rows) const override {
    Scale(first_row, rows, 1);
    for (std::uint32_t r = 0; overflow_ && r < rows.tokens; ++r) {
      if (first_row + r == 3) {
        rows.data[r * rows.columns()] = std::numeric_limits<float>::infinity();
      }
    }
  }
  void InverseRows(const PlaneState* /*state*/, std::uint32_t first_row,
                   RealPlane rows) const override {
    Scale(first_row, rows, -1);
  }
  static void Scale(std::uint32_t first_row, RealPlane rows, int sign) {
    for (std::size_t i = 0; i < rows.values(); ++i) {
      const auto row = static_cast<int>(first_row + i / rows.columns());
      rows.data[i] = std::ldexp(rows.data[i], sign * (row % 5));
    }
  }

  bool overflow_;
};

// ---- ranges ------------------------------------------------------------------------------------

struct RangesState : PlaneState {
  std::span<float> low, step;    // [column]
  std::span<const float> raw;    // leading rows
  std::span<float> raw_written;  // the same, for an encoder
};

class Ranges final : public Quantizer, private RowQuantizer {
 public:
  explicit Ranges(const Settings& settings) : lead_(settings.integer(1)) {}

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - std::min(lead_, plane.tokens.size());
    symbols.columns = heads * dim;
    symbols.alphabet = 16;
    return {};
  }
  [[nodiscard]] const RowQuantizer* rows() const override { return this; }
  // Takes selectors, so that tests can put one before it.
  [[nodiscard]] bool honours_weights() const override { return true; }

 private:
  [[nodiscard]] PlaneState* Begin(const PlaneContext& plane, PlaneShape shape) const override {
    auto* state = plane.arena->New<RangesState>();
    state->low = plane.arena->Take<float>(shape.columns());
    state->step = plane.arena->Take<float>(shape.columns());
    std::fill(state->low.begin(), state->low.end(), std::numeric_limits<float>::max());
    std::fill(state->step.begin(), state->step.end(), -std::numeric_limits<float>::max());
    state->raw_written = plane.arena->Take<float>(Raw(shape));
    return state;
  }
  void Observe(PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows) const override {
    auto& state = static_cast<RangesState&>(*opaque);
    for (std::size_t i = 0; i < rows.values(); ++i) {
      const std::size_t at = std::size_t{first_row} * rows.columns() + i;
      if (at < state.raw_written.size()) {
        state.raw_written[at] = rows.data[i];
        continue;
      }
      const std::size_t c = i % rows.columns();
      state.low[c] = std::min(state.low[c], rows.data[i]);
      state.step[c] = std::max(state.step[c], rows.data[i]);
    }
  }
  Status Finish(PlaneState* opaque, ByteWriter& side) const override {
    auto& state = static_cast<RangesState&>(*opaque);
    for (const float value : state.raw_written) side.Put(value);
    for (std::size_t c = 0; c < state.low.size(); ++c) {
      state.step[c] = std::max((state.step[c] - state.low[c]) / 15.0F, 1e-6F);
      side.Put(state.low[c]);
      side.Put(state.step[c]);
    }
    return {};
  }
  void QuantizeRows(const PlaneState* opaque, std::uint32_t first_row, ConstRealPlane rows,
                    std::span<std::uint8_t> symbols) const override {
    const auto& state = static_cast<const RangesState&>(*opaque);
    const std::size_t skip = rows.values() - symbols.size();  // of the leading rows
    if (skip > 0 && first_row > 0) return;                    // would be a fault of the executor
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const std::size_t c = i % rows.columns();
      const float level = (rows.data[skip + i] - state.low[c]) / state.step[c] + 0.5F;
      symbols[i] = static_cast<std::uint8_t>(std::clamp(level, 0.0F, 15.0F));
    }
  }
  [[nodiscard]] Result<const PlaneState*> Open(const PlaneContext& plane, PlaneShape shape,
                                               const SymbolPlane& /*symbols*/,
                                               ByteReader& side) const override {
    auto* state = plane.arena->New<RangesState>();
    const auto raw = plane.arena->Take<float>(Raw(shape));
    for (float& value : raw) {
      KVSERVE_ASSIGN(value, side.Get<float>());
    }
    state->raw = raw;
    state->low = plane.arena->Take<float>(shape.columns());
    state->step = plane.arena->Take<float>(shape.columns());
    for (std::size_t c = 0; c < state->low.size(); ++c) {
      KVSERVE_ASSIGN(state->low[c], side.Get<float>());
      KVSERVE_ASSIGN(state->step[c], side.Get<float>());
    }
    return state;
  }
  void DequantizeRows(const PlaneState* opaque, std::uint32_t /*first_row*/,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& state = static_cast<const RangesState&>(*opaque);
    const std::size_t skip = rows.values() - symbols.size();
    std::copy_n(state.raw.begin(), skip, rows.data);
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const std::size_t c = i % rows.columns();
      rows.data[skip + i] = state.low[c] + static_cast<float>(symbols[i]) * state.step[c];
    }
  }
  [[nodiscard]] std::size_t Raw(PlaneShape shape) const {
    return std::size_t{std::min(lead_, shape.tokens)} * shape.columns();
  }

  std::uint32_t lead_;
};

// ---- pieces ------------------------------------------------------------------------------------

class RawPieces final : public SymbolReader {
 public:
  RawPieces(std::span<const std::byte> bytes, std::span<const SymbolPiece> pieces,
            std::span<const std::size_t> begins, std::uint32_t alphabet)
      : bytes_(bytes), pieces_(pieces), begins_(begins), alphabet_(alphabet) {}
  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
              Arena& /*scratch*/) const override {
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      symbols[i] = static_cast<std::uint8_t>(bytes_[begins_[piece] + i]);
      if (symbols[i] >= alphabet_) {
        return MakeError(ErrorCode::kCorruptData, "symbol outside the alphabet");
      }
    }
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::span<const SymbolPiece> pieces_;
  std::span<const std::size_t> begins_;
  std::uint32_t alphabet_;
};

class Pieces final : public Codec {
 public:
  explicit Pieces(const Settings& settings) : cut_(settings.integer(1)) {}

  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    for (const SymbolPlane& plane : planes) out.PutBytes(std::as_bytes(plane.symbols));
    return {};
  }
  Status Decode(const FrameContext& /*frame*/, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    for (SymbolPlane& plane : planes) {
      KVSERVE_ASSIGN(const auto bytes, in.GetBytes(plane.count()));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        plane.symbols[i] = static_cast<std::uint8_t>(bytes[i]);
        if (plane.symbols[i] >= plane.alphabet) {
          return MakeError(ErrorCode::kCorruptData, "symbol outside the alphabet");
        }
      }
    }
    return {};
  }
  std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const SymbolPlane& plane : planes) bytes += plane.count();
    return bytes;
  }
  Result<const SymbolReader*> Open(const FrameContext& frame, ByteReader& in,
                                   std::span<const SymbolPlane> planes) const override {
    std::size_t most = 0;
    for (const SymbolPlane& plane : planes) most += plane.tokens / cut_ + 1;
    const auto pieces = frame.arena->Take<SymbolPiece>(most);
    const auto begins = frame.arena->Take<std::size_t>(most);
    std::size_t count = 0;
    std::size_t at = 0;
    const auto add = [&](SymbolPiece piece, std::size_t symbols) {
      pieces[count] = piece;
      begins[count++] = at;
      at += symbols;
    };
    for (std::size_t p = 0; p < planes.size(); ++p) {
      if (planes[p].count() == 0) continue;  // nothing to cover
      for (std::uint32_t row = 0; planes[p].tokens > cut_ && row < planes[p].tokens; row += cut_) {
        const std::uint32_t rows = std::min(cut_, planes[p].tokens - row);
        add({p, 1, row, rows}, std::size_t{rows} * planes[p].columns);
      }
      if (planes[p].tokens > cut_) continue;
      const bool pair = p + 1 < planes.size() && planes[p + 1].tokens <= cut_;
      add({p, pair ? 2U : 1U, 0, 0}, planes[p].count() + (pair ? planes[p + 1].count() : 0));
      if (pair) ++p;
    }
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(at));
    const std::uint32_t alphabet = planes.empty() ? 256 : planes[0].alphabet;
    return frame.arena->New<RawPieces>(bytes, pieces.first(count), begins.first(count), alphabet);
  }

 private:
  std::uint32_t cut_;
};

constexpr ParameterInfo kTurnParameters[] = {
    {.id = 1, .name = "overflow", .type = ParameterType::kBoolean, .high = 1}};
constexpr ParameterInfo kRangesParameters[] = {
    {.id = 1, .name = "lead", .type = ParameterType::kInteger, .low = 0, .high = 1000}};
constexpr ParameterInfo kPiecesParameters[] = {{.id = 1,
                                                .name = "cut",
                                                .type = ParameterType::kInteger,
                                                .low = 1,
                                                .high = 100000,
                                                .default_k = 7}};
constexpr StageInfo kTurn{.id = 0x0211, .name = "turn", .parameters = kTurnParameters};
constexpr StageInfo kRanges{
    .id = 0x0311, .name = "ranges", .kind = StageKind::kQuantizer, .parameters = kRangesParameters};
constexpr StageInfo kPieces{.id = 0x0411,
                            .name = "pieces",
                            .kind = StageKind::kCodec,
                            .lossless = true,
                            .parameters = kPiecesParameters};

}  // namespace

StageTable RowStages() {
  static const std::vector<StageEntry> table = [] {
    std::vector<StageEntry> all(ToyStages().begin(), ToyStages().end());
    all.push_back({.info = &kTurn,
                   .make_transform = [](const Settings& s) -> Result<std::unique_ptr<Transform>> {
                     return std::make_unique<Turn>(s);
                   }});
    all.push_back({.info = &kRanges,
                   .make_quantizer = [](const Settings& s) -> Result<std::unique_ptr<Quantizer>> {
                     return std::make_unique<Ranges>(s);
                   }});
    all.push_back(
        {.info = &kPieces, .make_codec = [](const Settings& s) -> Result<std::unique_ptr<Codec>> {
           return std::make_unique<Pieces>(s);
         }});
    return all;
  }();
  return table;
}

}  // namespace kvserve::testing
