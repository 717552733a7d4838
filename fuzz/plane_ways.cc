#include "plane_ways.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/byte_io.h"
#include "decode_contract.h"

namespace kvserve::fuzzing {
namespace {

bool Accepted(const Status& status) {
  if (!status && !AllowedError(status.error().code)) {
    Fail("bytes caused " + std::string(ErrorName(status.error().code)) + ": " +
         status.error().message);
  }
  return status.has_value();
}

// An encoder may also find the values unfit.
bool Encoded(const Status& status) {
  return (!status && status.error().code == ErrorCode::kBadInput) ? false : Accepted(status);
}

RealPlane Plane(const PlaneCase& plane, std::vector<float>& values) {
  return {values.data(), plane.shape().tokens, plane.shape().heads, plane.shape().dim};
}

// Rows [first, first + count) of a plane.
template <typename T>
BasicRealPlane<T> Rows(const PlaneShape& shape, T* values, std::uint32_t first,
                       std::uint32_t count) {
  return {values + std::size_t{first} * shape.columns(), count, shape.heads, shape.dim};
}

// work(first row, rows) for the tiles of a plane whose first `lead` rows have no symbols.
template <typename Work>
void ForEachTile(const PlaneCase& plane, std::uint32_t lead, const Work& work) {
  const std::uint32_t tokens = plane.shape().tokens;
  std::uint32_t rows = std::max(lead, plane.tile_rows());
  for (std::uint32_t first = 0; first < tokens; first += rows, rows = plane.tile_rows()) {
    rows = std::min(rows, tokens - first);
    work(first, rows);
  }
}

// The symbols of these rows.
template <typename T>
std::span<T> SymbolsOf(std::span<T> symbols, const SymbolPlane& planned, std::uint32_t lead,
                       std::uint32_t first, std::uint32_t rows) {
  const std::uint32_t begin = std::max(first, lead) - lead;
  const std::uint32_t end = std::max(first + rows, lead) - lead;
  return symbols.subspan(std::size_t{begin} * planned.columns,
                         std::size_t{end - begin} * planned.columns);
}

Arena& OtherArena() {
  static Arena arena;
  return arena;
}

PlaneContext Fresh(const PlaneCase& plane, Arena& arena) {
  arena.Reset();
  return plane.ContextIn(arena);
}

// visit(first symbol, run) of each run of a plane's symbols.
template <typename Visit>
void ForEachSymbolRun(const SymbolPlane& planned, const Visit& visit) {
  std::size_t first = 0;
  for (const SymbolRun& run : planned.runs) {
    visit(first, run);
    first += run.count();
  }
  if (planned.runs.empty()) {
    visit(first, SymbolRun{planned.tokens, planned.columns, planned.alphabet});
  }
}

// What a decoder gets.
CodedPlane Given(const PlaneCase& plane, const SymbolPlane& planned) {
  CodedPlane given;
  given.side.assign(plane.side().begin(), plane.side().end());
  given.symbols.resize(planned.count());
  ForEachSymbolRun(planned, [&](std::size_t first, const SymbolRun& run) {
    plane.FillSymbols(run.alphabet, std::span(given.symbols).subspan(first, run.count()));
  });
  return given;
}

// A view of elements, contiguous or [head, dim, token].
template <typename Byte>
BasicPlaneView<Byte> ElementView(const PlaneCase& plane, std::vector<std::byte>& bytes,
                                 bool transposed) {
  const PlaneShape shape = plane.shape();
  BasicPlaneView<Byte> view;
  view.data = bytes.data();
  view.dtype = plane.dtype();
  view.tokens = shape.tokens;
  view.heads = shape.heads;
  view.dim = shape.dim;
  view.dim_stride = transposed ? shape.tokens : 1;
  view.head_stride = std::int64_t{shape.dim} * view.dim_stride;
  view.token_stride = transposed ? 1 : shape.columns();
  return view;
}

void Copy(const ConstPlaneView& from, const PlaneView& to) {
  for (std::uint32_t t = 0; t < from.tokens; ++t) {
    for (std::uint32_t h = 0; h < from.heads; ++h) {
      for (std::uint32_t d = 0; d < from.dim; ++d) {
        std::memcpy(to.at(t, h, d), from.at(t, h, d), DTypeBytes(from.dtype));
      }
    }
  }
}

}  // namespace

void CheckSame(const Floats& a, const Floats& b, const char* what) {
  if (a.has_value() != b.has_value()) Fail(std::string(what) + ": one way only");
  if (!a || std::memcmp(a->data(), b->data(), a->size() * sizeof(float)) == 0) return;
  for (std::size_t i = 0; i < a->size(); ++i) {
    const float x = (*a)[i];
    const float y = (*b)[i];
    if (std::isnan(x) && std::isnan(y)) continue;
    if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y)) {
      Fail(std::string(what) + ": value " + std::to_string(i) + " is " + std::to_string(x) +
           " and " + std::to_string(y));
    }
  }
}

void CheckSame(const std::optional<std::vector<std::byte>>& a,
               const std::optional<std::vector<std::byte>>& b, const char* what) {
  if (a != b) Fail(std::string(what) + ": elements differ");
}

// ---- real --------------------------------------------------------------------------------------

Floats RealWays::Dequantize(CodedPlane coded) const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  SymbolPlane symbols = planned_;
  symbols.symbols = coded.symbols;
  ByteReader side(coded.side);
  std::vector<float> values(plane_.values());
  const bool decoded =
      Accepted(quantizer_.Dequantize(context, symbols, side, Plane(plane_, values)));
  if (!decoded || side.remaining() > 0) return std::nullopt;
  return values;
}

Floats RealWays::DecodeWhole() const {
  return Dequantize(Given(plane_, planned_));
}

Floats RealWays::DecodeAgain() const {
  const RowQuantizer* rows = quantizer_.rows();
  if (rows == nullptr) return DecodeWhole();
  const PlaneContext context = Fresh(plane_, OtherArena());
  const CodedPlane given = Given(plane_, planned_);
  ByteReader side(given.side);
  const auto state = rows->Open(context, plane_.shape(), planned_, side);
  if (!state) {
    (void)Accepted(tl::unexpected(state.error()));
    return std::nullopt;
  }
  if (side.remaining() > 0) return std::nullopt;
  std::vector<float> values(plane_.values());
  const std::uint32_t lead = plane_.shape().tokens - planned_.tokens;
  ForEachTile(plane_, lead, [&](std::uint32_t first, std::uint32_t count) {
    const auto symbols = SymbolsOf<const std::uint8_t>(given.symbols, planned_, lead, first, count);
    rows->DequantizeRows(*state, first, symbols, Rows(plane_.shape(), values.data(), first, count));
  });
  return values;
}

std::optional<CodedPlane> RealWays::EncodeWhole() const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  CodedPlane coded;
  coded.symbols.assign(planned_.count(), 0xEE);
  SymbolPlane symbols = planned_;
  symbols.symbols = coded.symbols;
  ByteWriter side(coded.side);
  const std::vector<float> values = plane_.Floats();
  const PlaneShape shape = plane_.shape();
  if (!Encoded(quantizer_.Quantize(context, Rows(shape, values.data(), 0, shape.tokens), symbols,
                                   side))) {
    return std::nullopt;
  }
  ForEachSymbolRun(planned_, [&](std::size_t first, const SymbolRun& run) {
    for (const std::uint8_t symbol : std::span(coded.symbols).subspan(first, run.count())) {
      if (symbol >= run.alphabet) Fail("quantized to a symbol outside of the alphabet");
    }
  });
  return coded;
}

std::optional<CodedPlane> RealWays::EncodeAgain() const {
  const RowQuantizer* rows = quantizer_.rows();
  if (rows == nullptr) return EncodeWhole();
  const PlaneContext context = Fresh(plane_, OtherArena());
  CodedPlane coded;
  coded.symbols.assign(planned_.count(), 0xEE);
  ByteWriter side(coded.side);
  const std::vector<float> values = plane_.Floats();
  const PlaneShape shape = plane_.shape();
  const std::uint32_t lead = shape.tokens - planned_.tokens;
  PlaneState* const state = rows->Begin(context, shape);
  ForEachTile(plane_, lead, [&](std::uint32_t first, std::uint32_t count) {
    rows->Observe(state, first, Rows(shape, values.data(), first, count));
  });
  if (!Encoded(rows->Finish(state, side))) return std::nullopt;
  ForEachTile(plane_, lead, [&](std::uint32_t first, std::uint32_t count) {
    rows->QuantizeRows(state, first, Rows(shape, values.data(), first, count),
                       SymbolsOf<std::uint8_t>(coded.symbols, planned_, lead, first, count));
  });
  return coded;
}

void RealWays::CheckDecodes(const CodedPlane& coded) const {
  const Floats values = Dequantize(coded);
  if (!values) Fail("a quantized plane does not decode");
  if (!std::ranges::all_of(*values, [](float value) { return std::isfinite(value); })) {
    Fail("finite values decode to others");
  }
}

// ---- native ------------------------------------------------------------------------------------

NativeWays::Elements NativeWays::Dequantize(CodedPlane coded, bool transposed) const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  SymbolPlane symbols = planned_;
  symbols.symbols = coded.symbols;
  ByteReader side(coded.side);
  std::vector<std::byte> bytes(plane_.values() * DTypeBytes(plane_.dtype()));
  const auto view = ElementView<std::byte>(plane_, bytes, transposed);
  const bool decoded = Accepted(quantizer_.DequantizeNative(context, symbols, side, view));
  if (!decoded || side.remaining() > 0) return std::nullopt;
  if (!transposed) return bytes;
  std::vector<std::byte> contiguous(bytes.size());
  Copy(ElementView<const std::byte>(plane_, bytes, true),
       ElementView<std::byte>(plane_, contiguous, false));
  return contiguous;
}

NativeWays::Elements NativeWays::DecodeWhole() const {
  return Dequantize(Given(plane_, planned_), false);
}

NativeWays::Elements NativeWays::DecodeAgain() const {
  return Dequantize(Given(plane_, planned_), true);
}

std::optional<CodedPlane> NativeWays::Quantize(bool transposed) const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  std::vector<std::byte> bytes(plane_.values() * DTypeBytes(plane_.dtype()));
  plane_.FillElements(bytes);
  std::vector<std::byte> laid(bytes.size());
  Copy(ElementView<const std::byte>(plane_, bytes, false),
       ElementView<std::byte>(plane_, laid, transposed));
  CodedPlane coded;
  coded.symbols.assign(planned_.count(), 0xEE);
  SymbolPlane symbols = planned_;
  symbols.symbols = coded.symbols;
  ByteWriter side(coded.side);
  const auto view = ElementView<const std::byte>(plane_, laid, transposed);
  if (!Encoded(quantizer_.QuantizeNative(context, view, symbols, side))) return std::nullopt;
  return coded;
}

std::optional<CodedPlane> NativeWays::EncodeWhole() const {
  return Quantize(false);
}

std::optional<CodedPlane> NativeWays::EncodeAgain() const {
  return Quantize(true);
}

void NativeWays::CheckDecodes(const CodedPlane& coded) const {
  const Elements elements = Dequantize(coded, false);
  if (!elements) Fail("quantized elements do not decode");
  std::vector<std::byte> bytes(elements->size());
  plane_.FillElements(bytes);
  if (lossless_ && *elements != bytes) Fail("a lossless quantizer gives other bits back");
}

// ---- transforms --------------------------------------------------------------------------------

Floats TransformWays::Inverse(std::vector<float> values, std::span<const std::byte> side) const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  ByteReader reader(side);
  const bool inverted = Accepted(transform_.Inverse(context, Plane(plane_, values), reader));
  if (!inverted || reader.remaining() > 0) return std::nullopt;
  return values;
}

Floats TransformWays::InverseWhole() const {
  return Inverse(plane_.Floats(), plane_.side());
}

Floats TransformWays::ByRows(bool forward) const {
  const RowTransform* rows = transform_.rows();
  const PlaneContext context = Fresh(plane_, OtherArena());
  const PlaneShape shape = plane_.shape();
  const auto state =
      rows->Open(context, shape, forward ? Direction::kForward : Direction::kInverse);
  if (!state) {
    (void)Encoded(tl::unexpected(state.error()));
    return std::nullopt;
  }
  std::vector<float> values = plane_.Floats();
  ForEachTile(plane_, 0, [&](std::uint32_t first, std::uint32_t count) {
    const RealPlane tile = Rows(shape, values.data(), first, count);
    if (forward) {
      rows->ForwardRows(*state, first, tile);
    } else {
      rows->InverseRows(*state, first, tile);
    }
  });
  return values;
}

Floats TransformWays::InverseAgain() const {
  if (transform_.rows() == nullptr) return InverseWhole();
  if (!plane_.side().empty()) return std::nullopt;  // rows have no side bytes
  return ByRows(false);
}

TransformWays::Forwarded TransformWays::ForwardWhole() const {
  const PlaneContext context = Fresh(plane_, SharedArena());
  Forwarded forwarded;
  ByteWriter side(forwarded.side);
  std::vector<float> values = plane_.Floats();
  if (Encoded(transform_.Forward(context, Plane(plane_, values), side))) forwarded.values = values;
  return forwarded;
}

TransformWays::Forwarded TransformWays::ForwardAgain() const {
  if (transform_.rows() == nullptr) return ForwardWhole();
  return {ByRows(true), {}};
}

void TransformWays::CheckInverts(const Forwarded& forwarded) const {
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(*forwarded.values, finite)) return;  // the executor refuses it
  if (!Inverse(*forwarded.values, forwarded.side)) Fail("a transformed plane does not come back");
}

}  // namespace kvserve::fuzzing
