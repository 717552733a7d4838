// Quantization in steps that both sides know: coefficients come in units of a step (whiten), a
// token's class gives it 2^((6 - class) / 2) times that, and nothing about the values is sent but
// the few that are out of reach. The request's first token is kept apart in parts of a step.
#include <algorithm>
#include <vector>

#include "base/try.h"
#include "kernels/convert/fine_floats.h"
#include "kernels/quantize/escapes.h"
#include "kernels/quantize/token_steps.h"
#include "pipeline/class_coding.h"
#include "pipeline/raw_first_row.h"
#include "pipeline/stage.h"
#include "pipeline/token_classes.h"

namespace kvserve {
namespace {

constexpr std::uint8_t kRawFirst = 1;  // not per plane

constexpr ParameterInfo kParameters[] = {
    {.id = kRawFirst,
     .name = "raw_first",
     .type = ParameterType::kBoolean,
     .low = 0,
     .high = 1,
     .default_k = 1,
     .help = "keep the request's first token apart, in 1/128 of a step"},
};

constexpr StageInfo kInfo = {
    .id = 0x0308,
    .name = "steps",
    .kind = StageKind::kQuantizer,
    .parameters = kParameters,
    .summary = "coefficients in steps of 1, finer or coarser by the selectors' token weights",
};

// How the classes are written.
enum class ClassForm : std::uint8_t { kPlain = 0, kCoded = 1 };

// What a tile leaves for the side bytes.
struct KeptTile : PlaneState {
  std::span<const float> raw;  // the first row of the request, if the tile has it
  EscapeList escapes;          // indexed within the plane's symbols
};

// What a decoder has read about a plane.
struct OpenSteps : PlaneState {
  std::span<const float> raw;
  std::span<const Escape> escapes;
  std::span<const std::uint8_t> classes;
};

// The rows of a tile that have symbols; those of a plane's first tile stand behind a raw row.
struct CodedRows {
  CodedRows(RealPlane rows, std::uint32_t first_row, std::size_t raw_rows)
      : skipped(first_row == 0 ? raw_rows : 0),
        first(first_row + skipped - raw_rows),
        values(rows.span().subspan(skipped * rows.columns())) {}
  [[nodiscard]] std::span<const std::uint8_t> Classes(std::span<const std::uint8_t> of_plane,
                                                      std::size_t columns) const {
    return of_plane.empty() ? of_plane : of_plane.subspan(first, values.size() / columns);
  }

  std::size_t skipped;
  std::size_t first;  // row of symbols
  std::span<float> values;
};

class Steps : public Quantizer, public TileQuantizer {
 public:
  explicit Steps(const Settings& settings) : raw_first_(settings.integer(kRawFirst) != 0) {}

  [[nodiscard]] bool honours_weights() const override { return true; }
  [[nodiscard]] ScaleSource scale_source(PlaneKind /*kind*/) const override {
    return ScaleSource::kProfile;
  }
  [[nodiscard]] const TileQuantizer* tiles() const override { return this; }

  Status Plan(const PlaneContext& plane, DType /*dtype*/, std::uint32_t heads, std::uint32_t dim,
              SymbolPlane& symbols) const override {
    symbols.tokens = plane.tokens.size() - RawFirstRow::Rows(raw_first_, plane);
    symbols.columns = heads * dim;
    symbols.alphabet = kStepAlphabet;
    return {};
  }

  // A dropped token keeps its rows of symbols, which all stand for 0.
  Status Classify(const FrameContext& /*frame*/, std::span<const std::vector<float>> weights,
                  std::span<SymbolPlane> planes) const override {
    for (std::size_t p = 0; p < weights.size(); ++p) {
      auto& classes = planes[p].token_classes;
      const auto coded = std::span(weights[p]).last(planes[p].tokens);
      classes.resize(planes[p].tokens);
      std::transform(coded.begin(), coded.end(), classes.begin(), TokenClassOf);
      const bool nominal = std::all_of(classes.begin(), classes.end(),
                                       [](std::uint8_t token) { return token == kNominalClass; });
      if (nominal) classes.clear();
    }
    return {};
  }

  Status WriteClasses(const FrameContext& frame, std::span<const SymbolPlane> planes,
                      ByteWriter& out) const override {
    const bool nominal = std::all_of(planes.begin(), planes.end(), [](const SymbolPlane& plane) {
      return plane.token_classes.empty();
    });
    if (nominal) return {};
    const std::size_t begin = out.size();
    out.Put(static_cast<std::uint8_t>(ClassForm::kPlain));
    WriteTokenClasses(planes, out);
    const CodeTables* tables = TablesOf(frame);
    if (tables == nullptr) return {};
    const std::size_t plain = out.size();
    out.Put(static_cast<std::uint8_t>(ClassForm::kCoded));
    const bool coded = WriteCodedClasses(*tables, planes, *frame.arena, out);
    auto& bytes = out.bytes();
    const bool shorter = coded && bytes.size() - plain < plain - begin;
    const auto at = [&](std::size_t offset) {
      return bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    };
    if (shorter) {
      bytes.erase(at(begin), at(plain));
    } else {
      bytes.erase(at(plain), bytes.end());
    }
    return {};
  }

  Status ReadClasses(const FrameContext& frame, std::span<SymbolPlane> planes,
                     ByteReader& in) const override {
    if (in.remaining() == 0) return {};
    KVSERVE_ASSIGN(const auto form, in.Get<std::uint8_t>());
    if (form == static_cast<std::uint8_t>(ClassForm::kPlain)) return ReadTokenClasses(in, planes);
    const CodeTables* tables = TablesOf(frame);
    if (form != static_cast<std::uint8_t>(ClassForm::kCoded) || tables == nullptr) {
      return MakeError(ErrorCode::kCorruptData, "unknown form of token classes, or no tables");
    }
    return ReadCodedClasses(*tables, in, planes);
  }

  Status Quantize(const PlaneContext& plane, ConstRealPlane values, SymbolPlane& symbols,
                  ByteWriter& side) const override {
    const auto copy = plane.arena->Take<float>(values.values());
    std::copy_n(values.data, values.values(), copy.begin());
    PlaneState* const tile =
        QuantizeTile(plane, symbols, 0, {copy.data(), values.tokens, values.heads, values.dim});
    WriteSide({&tile, 1}, side);
    return {};
  }

  Status Dequantize(const PlaneContext& plane, const SymbolPlane& symbols, ByteReader& side,
                    RealPlane values) const override {
    const PlaneShape shape{values.tokens, values.heads, values.dim};
    KVSERVE_ASSIGN(const PlaneState* state, OpenTiles(plane, shape, symbols, side));
    DequantizeTile(state, 0, symbols.symbols, values);
    return {};
  }

  [[nodiscard]] PlaneState* QuantizeTile(const PlaneContext& plane, const SymbolPlane& symbols,
                                         std::uint32_t first_row, RealPlane rows) const override {
    auto* kept = plane.arena->New<KeptTile>();
    const CodedRows coded(rows, first_row, RawFirstRow::Rows(raw_first_, plane));
    const std::size_t columns = rows.columns();
    if (coded.skipped > 0) {
      const auto raw = plane.arena->Take<float>(columns);
      RoundFineFloats(rows.span().first(columns));
      std::copy_n(rows.data, columns, raw.begin());
      kept->raw = raw;
    }
    const std::size_t first = coded.first * columns;
    const auto place = symbols.symbols.subspan(first, coded.values.size());
    const auto classes = coded.Classes(symbols.token_classes, columns);
    if (QuantizeTokenSteps(coded.values, columns, classes, place.data())) {
      KeepEscapes(coded.values, columns, classes, place, first, *plane.arena, kept->escapes);
    }
    return kept;
  }

  void WriteSide(std::span<PlaneState* const> tiles, ByteWriter& side) const override {
    EscapeList escapes;
    for (PlaneState* const tile : tiles) {
      const auto& kept = *static_cast<const KeptTile*>(tile);
      if (!kept.raw.empty()) WriteFineFloats(kept.raw, side);
      escapes.Append(kept.escapes);
    }
    escapes.Write(side);
  }

  [[nodiscard]] Result<const PlaneState*> OpenTiles(const PlaneContext& plane, PlaneShape shape,
                                                    const SymbolPlane& symbols,
                                                    ByteReader& side) const override {
    auto* open = plane.arena->New<OpenSteps>();
    const std::size_t raw_rows = RawFirstRow::Rows(raw_first_, plane);
    const auto raw = plane.arena->Take<float>(raw_rows * shape.columns());
    if (raw_rows > 0) KVSERVE_TRY(ReadFineFloats(side, raw));
    KVSERVE_ASSIGN(open->escapes, ReadEscapes(symbols.count(), *plane.arena, side));
    open->raw = raw;
    open->classes = symbols.token_classes;
    return open;
  }

  void DequantizeTile(const PlaneState* state, std::uint32_t first_row,
                      std::span<const std::uint8_t> symbols, RealPlane rows) const override {
    const auto& open = *static_cast<const OpenSteps*>(state);
    const std::size_t columns = rows.columns();
    const CodedRows coded(rows, first_row, open.raw.empty() ? 0 : 1);
    if (coded.skipped > 0) std::copy(open.raw.begin(), open.raw.end(), rows.data);
    DequantizeTokenSteps(symbols, columns, coded.Classes(open.classes, columns),
                         coded.values.data());
    ApplyEscapes(open.escapes, coded.first * columns, coded.values);
  }

 private:
  static const CodeTables* TablesOf(const FrameContext& frame) {
    if (frame.artefact == nullptr) return nullptr;
    const CodeTables* tables = frame.artefact->code_tables();
    return tables != nullptr && tables->has_classes() ? tables : nullptr;
  }

  // Values at either end of the codes that are not these codes' own are as they were.
  static void KeepEscapes(std::span<const float> values, std::size_t columns,
                          std::span<const std::uint8_t> classes,
                          std::span<const std::uint8_t> symbols, std::size_t first, Arena& arena,
                          EscapeList& escapes) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (symbols[i] != 0 && symbols[i] != kStepAlphabet - 1) continue;
      const float step = TokenStep(classes.empty() ? kNominalClass : classes[i / columns]);
      const float own = static_cast<float>(int{symbols[i]} - kLargestStepCode) * step;
      if (values[i] != own) escapes.Add({first + i, values[i]}, arena);
    }
  }

  bool raw_first_;
};

}  // namespace

const StageEntry& StepsStage() {
  static const StageEntry entry = {
      .info = &kInfo,
      .make_quantizer = [](const Settings& settings) -> Result<std::unique_ptr<Quantizer>> {
        return std::make_unique<Steps>(settings);
      }};
  return entry;
}

}  // namespace kvserve
