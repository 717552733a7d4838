#include "pipeline/plane_tiles.h"

#include <algorithm>

#include "base/try.h"
#include "pipeline/executor_faults.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

// Floats of a tile: half of a first-level cache of 32 KiB, the rest is for what stages read beside.
constexpr std::size_t kTileValues = 4096;

// Tiles of rows [first, end) of a plane with `lead` leading rows, which belong to the first tile.
class Tiles {
 public:
  Tiles(std::uint32_t first, std::uint32_t end, std::uint32_t lead, std::uint32_t columns)
      : next_(first), end_(end) {
    const std::size_t rows = kTileValues / std::max<std::uint32_t>(columns, 1);
    step_ = static_cast<std::uint32_t>(std::max<std::size_t>(rows, 1));
    first_step_ = first < lead ? std::max(step_, lead - first + 1) : step_;
  }
  [[nodiscard]] std::uint32_t largest() const { return std::min(first_step_, end_ - next_); }
  // Moves to the next tile; false when there is none.
  [[nodiscard]] bool Next(std::uint32_t& first, std::uint32_t& rows) {
    if (next_ == end_) return false;
    first = next_;
    rows = std::min(first_step_, end_ - next_);
    first_step_ = step_;
    next_ += rows;
    return true;
  }

 private:
  std::uint32_t next_;
  std::uint32_t end_;
  std::uint32_t step_;
  std::uint32_t first_step_;
};

using States = std::span<const PlaneState*>;

Result<States> OpenTransforms(const Chain& chain, const PlaneContext& context, PlaneShape shape,
                              Direction direction, StageClock& clock) {
  const States states = context.arena->Take<const PlaneState*>(chain.transforms().size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto& transform = chain.transforms()[i];
    const StageTimer timer(clock, ClockSlot::kFirstTransform + i);
    auto state = transform.stage->rows()->Open(context, shape, direction);
    if (!state) {
      return tl::unexpected(
          Named(tl::unexpected(std::move(state).error()), context, *transform.info).error());
    }
    states[i] = *state;
  }
  return states;
}

ConstRealPlane AsConst(const RealPlane& plane) {
  return {plane.data, plane.tokens, plane.heads, plane.dim};
}

// Loads and transforms a tile; false when a value is not finite, or a coefficient out of bounds.
bool TransformTile(const Chain& chain, States states, const ConstPlaneView& view,
                   std::uint32_t first_row, const RealPlane& tile, StageClock& clock) {
  {
    const StageTimer timer(clock, ClockSlot::kConvert);
    if (!LoadRows(view, first_row, tile.tokens, tile.span())) return false;
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    const StageTimer timer(clock, ClockSlot::kFirstTransform + i);
    chain.transforms()[i].stage->rows()->ForwardRows(states[i], first_row, tile);
    if (!AllBounded(tile.span())) return false;
  }
  return true;
}

// What decoding a tile needs to know about its plane.
struct OpenPlane {
  PlaneShape shape;
  States transforms;
  const PlaneState* quantizer = nullptr;
};

Result<OpenPlane> OpenForDecoding(const Chain& chain, const PlaneContext& context, PlaneShape shape,
                                  const SymbolPlane& plan, std::span<const std::byte> side,
                                  StageClock& clock) {
  OpenPlane open;
  open.shape = shape;
  ByteReader reader(side);
  const auto& quantizer = chain.quantizer();
  {
    const StageTimer timer(clock, ClockSlot::kQuantizer);
    auto state = quantizer.stage->rows()->Open(context, shape, plan, reader);
    if (!state) {
      return tl::unexpected(
          Named(tl::unexpected(std::move(state).error()), context, *quantizer.info).error());
    }
    open.quantizer = *state;
  }
  KVSERVE_TRY(CheckSideRead(reader, context));
  KVSERVE_ASSIGN(open.transforms,
                 OpenTransforms(chain, context, shape, Direction::kInverse, clock));
  return open;
}

bool DecodeTile(const Chain& chain, const OpenPlane& open, std::uint32_t first_row,
                std::span<const std::uint8_t> symbols, const RealPlane& tile, const PlaneView& out,
                StageClock& clock) {
  {
    const StageTimer timer(clock, ClockSlot::kQuantizer);
    chain.quantizer().stage->rows()->DequantizeRows(open.quantizer, first_row, symbols, tile);
  }
  for (std::size_t i = open.transforms.size(); i-- > 0;) {
    const StageTimer timer(clock, ClockSlot::kFirstTransform + i);
    chain.transforms()[i].stage->rows()->InverseRows(open.transforms[i], first_row, tile);
  }
  const StageTimer timer(clock, ClockSlot::kConvert);
  return StoreRows(tile.span(), out, first_row, tile.tokens);
}

}  // namespace

bool WorksByRows(const Chain& chain) {
  return !chain.native() && !chain.needs_feedback() && chain.quantizer().stage->rows() != nullptr &&
         std::all_of(chain.transforms().begin(), chain.transforms().end(),
                     [](const ChainStage<Transform>& transform) {
                       return transform.stage->rows() != nullptr;
                     });
}

Result<bool> EncodeByRows(const Chain& chain, const PlaneContext& context,
                          const ConstPlaneView& view, const SymbolPlane& symbols, ByteWriter& side,
                          StageClock& clock) {
  const PlaneShape shape{view.tokens, view.heads, view.dim};
  const std::size_t columns = shape.columns();
  const std::uint32_t lead = view.tokens - symbols.tokens;
  const RowQuantizer& quantizer = *chain.quantizer().stage->rows();
  const std::span<float> values = context.arena->Take<float>(view.values());
  KVSERVE_ASSIGN(const States states,
                 OpenTransforms(chain, context, shape, Direction::kForward, clock));
  PlaneState* state = quantizer.Begin(context, shape);
  std::uint32_t first = 0;
  std::uint32_t rows = 0;
  for (Tiles tiles(0, view.tokens, lead, shape.columns()); tiles.Next(first, rows);) {
    const RealPlane tile{&values[first * columns], rows, shape.heads, shape.dim};
    FetchRows(view, first + rows, rows);
    if (!TransformTile(chain, states, view, first, tile, clock)) return false;
    const StageTimer timer(clock, ClockSlot::kQuantizer);
    quantizer.Observe(state, first, AsConst(tile));
  }
  const StageTimer timer(clock, ClockSlot::kQuantizer);
  KVSERVE_TRY(Named(quantizer.Finish(state, side), context, *chain.quantizer().info));
  for (Tiles tiles(0, view.tokens, lead, shape.columns()); tiles.Next(first, rows);) {
    const ConstRealPlane tile{&values[first * columns], rows, shape.heads, shape.dim};
    const std::size_t begin = std::max(first, lead) - lead;
    const std::size_t end = std::max(first + rows, lead) - lead;
    quantizer.QuantizeRows(
        state, first, tile,
        symbols.symbols.subspan(begin * symbols.columns, (end - begin) * symbols.columns));
  }
  return true;
}

Status DecodeByRows(const Chain& chain, const PlaneContext& context, const SymbolPlane& plan,
                    const SymbolRows& part, std::span<const std::byte> side, const PlaneView& out,
                    StageClock& clock) {
  const PlaneShape shape{out.tokens, out.heads, out.dim};
  const std::size_t columns = shape.columns();
  const std::uint32_t lead = out.tokens - plan.tokens;
  const std::uint32_t begin = part.first_row == 0 ? 0 : part.first_row + lead;
  const std::uint32_t end = part.first_row + part.rows + lead;
  KVSERVE_ASSIGN(const OpenPlane open, OpenForDecoding(chain, context, shape, plan, side, clock));
  Tiles tiles(begin, end, lead, shape.columns());
  const std::span<float> values = context.arena->Take<float>(tiles.largest() * columns);
  std::span<const std::uint8_t> symbols = part.symbols;
  std::uint32_t first = 0;
  std::uint32_t rows = 0;
  while (tiles.Next(first, rows)) {
    const RealPlane tile{values.data(), rows, shape.heads, shape.dim};
    FetchRows(out, first, rows);
    const std::size_t count = std::size_t{first + rows - std::max(first, lead)} * plan.columns;
    if (!DecodeTile(chain, open, first, symbols.first(count), tile, out, clock)) {
      return NotNumbers(context);
    }
    symbols = symbols.subspan(count);
  }
  return {};
}

}  // namespace kvserve
