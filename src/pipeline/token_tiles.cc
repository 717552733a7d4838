#include "pipeline/token_tiles.h"

#include <algorithm>

#include "base/byte_io.h"
#include "base/try.h"
#include "pipeline/dropped_tokens.h"
#include "pipeline/executor_faults.h"
#include "pipeline/plane_floats.h"

namespace kvserve {
namespace {

// Tokens of a tile. Every tile reads the matrices of all planes anew, ten bytes of them per byte of
// KV in tiles of 64 tokens: that costs more than what a large tile's rows and histories miss in the
// second-level cache.
constexpr std::uint32_t kTileTokens = 256;
constexpr std::uint32_t kLeastTileTokens = 16;  // fewer only to keep all threads at work

TokenRange Both(TokenRange a, TokenRange b) {
  const std::uint32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::uint32_t DivideUp(std::uint32_t value, std::uint32_t by) {
  return (value + by - 1) / by;
}

void ZeroDroppedRows(const SymbolPlane& symbols, std::uint32_t first_row, std::uint32_t lead,
                     RealPlane tile) {
  if (symbols.token_classes.empty()) return;
  for (std::uint32_t row = 0; row < tile.tokens; ++row) {
    if (first_row + row < lead) continue;
    if (symbols.token_classes[first_row + row - lead] != kDroppedToken) continue;
    std::fill_n(tile.data + std::size_t{row} * tile.columns(), tile.columns(), 0.0F);
  }
}

}  // namespace

bool WorksByTiles(const Chain& chain) {
  return !chain.native() && chain.quantizer().stage->tiles() != nullptr &&
         std::all_of(chain.transforms().begin(), chain.transforms().end(),
                     [](const ChainStage<Transform>& transform) {
                       return transform.stage->needs_feedback()
                                  ? transform.stage->predictor() != nullptr
                                  : transform.stage->rows() != nullptr;
                     });
}

template <typename Byte>
void TokenTiles<Byte>::Begin(const Chain& chain, const FrameContext& frame, Planes planes,
                             FramePlan& plan, StageClock& clock) {
  chain_ = &chain;
  frame_ = &frame;
  planes_ = planes;
  plan_ = &plan;
  clock_ = &clock;
  // A header may announce tokens that no plane holds; they cost nothing.
  tokens_ = {frame.tokens.end, frame.tokens.end};
  for (const auto& plane : planes) {
    if (!plane.tokens.empty()) tokens_.begin = std::min(tokens_.begin, plane.tokens.begin);
  }
  const std::uint32_t tokens = tokens_.size();
  const std::uint32_t wanted = std::max(
      DivideUp(tokens, kTileTokens),
      std::min<std::uint32_t>(frame.workers->threads(), DivideUp(tokens, kLeastTileTokens)));
  tile_tokens_ = std::max(1U, DivideUp(tokens, std::max(1U, wanted)));
  count_ = DivideUp(tokens, tile_tokens_);
  while (memory_.size() < count_) memory_.push_back(std::make_unique<TileMemory>());
  for (const auto& memory : memory_) memory->kept.Reset();
}

template <typename Byte>
TokenRange TokenTiles<Byte>::TokensOf(std::size_t tile) const {
  const auto begin = tokens_.begin + static_cast<std::uint32_t>(tile) * tile_tokens_;
  return {begin, std::min(begin + tile_tokens_, tokens_.end)};
}

template <typename Byte>
typename TokenTiles<Byte>::TileRun TokenTiles<Byte>::BeginTile(std::size_t tile, Arena& scratch) {
  TileRun run;
  run.tile = tile;
  run.memory = memory_[tile].get();
  run.tokens = TokensOf(tile);
  const auto& transforms = chain_->transforms();
  run.predictors = scratch.TakeZeroed<PlaneState*>(transforms.size());
  run.first_predictor = transforms.size();
  for (std::size_t i = transforms.size(); i-- > 0;) {
    if (!transforms[i].stage->needs_feedback()) continue;
    run.predictors[i] = transforms[i].stage->predictor()->BeginTile(*frame_, run.tokens, scratch);
    run.first_predictor = i;
  }
  std::size_t widest = 0;
  for (const auto& plane : planes_) {
    widest = std::max(widest, std::size_t{plane.view.heads} * plane.view.dim);
  }
  run.values = scratch.Take<float>(run.tokens.size() * widest);
  return run;
}

template <typename Byte>
Status TokenTiles<Byte>::EnterPlane(TileRun& run, std::size_t p) {
  const OrderedPlane<Byte>& plane = planes_[p];
  run.memory->plane.Reset();
  run.context = ContextOf(*frame_, plane, run.memory->plane);
  run.shape = ShapeOf(plane);
  const TokenRange tokens = Both(run.tokens, plane.tokens);
  run.first_row = tokens.begin - plane.tokens.begin;
  run.lead = plane.tokens.size() - plan_->symbols[p].tokens;
  run.rows = {run.values.data(), tokens.size(), plane.view.heads, plane.view.dim};
  PlaneContext part = run.context;
  part.tokens = tokens;
  for (std::size_t i = run.first_predictor; i < run.predictors.size(); ++i) {
    if (run.predictors[i] == nullptr) continue;
    const auto& transform = chain_->transforms()[i];
    const StageTimer timer(*clock_, ClockSlot::kFirstTransform + i);
    const PlaneShape shape{tokens.size(), plane.view.heads, plane.view.dim};
    KVSERVE_TRY(Named(transform.stage->predictor()->OpenPlane(run.predictors[i], part, shape),
                      run.context, *transform.info));
  }
  return {};
}

template <typename Byte>
Status TokenTiles<Byte>::Inverse(TileRun& run, std::size_t last) {
  for (std::size_t i = run.predictors.size(); i-- > last;) {
    const auto& transform = chain_->transforms()[i];
    const StageTimer timer(*clock_, ClockSlot::kFirstTransform + i);
    if (run.predictors[i] != nullptr) {
      transform.stage->predictor()->InverseRows(run.predictors[i], run.rows);
      continue;
    }
    const RowTransform& by_rows = *transform.stage->rows();
    auto state = by_rows.Open(run.context, run.shape, Direction::kInverse);
    if (!state) {
      return Named(tl::unexpected(std::move(state).error()), run.context, *transform.info);
    }
    by_rows.InverseRows(*state, run.first_row, run.rows);
  }
  return {};
}

template class TokenTiles<std::byte>;
template class TokenTiles<const std::byte>;

void TileEncoder::Begin(const Chain& chain, const FrameContext& frame, Planes planes,
                        FramePlan& plan, StageClock& clock) {
  TokenTiles::Begin(chain, frame, planes, plan, clock);
  kept_ = frame.arena->TakeZeroed<PlaneState*>(planes.size() * count());
}

Result<bool> TileEncoder::Forward(TileRun& run, std::size_t p) {
  {
    const StageTimer timer(*clock_, ClockSlot::kConvert);
    FetchRows(planes_[p].view, run.first_row + run.rows.tokens, run.rows.tokens);
    if (!LoadRows(planes_[p].view, run.first_row, run.rows.tokens, run.rows.span())) return false;
  }
  for (std::size_t i = 0; i < run.predictors.size(); ++i) {
    const auto& transform = chain_->transforms()[i];
    const StageTimer timer(*clock_, ClockSlot::kFirstTransform + i);
    if (run.predictors[i] != nullptr) {
      transform.stage->predictor()->ForwardRows(run.predictors[i], run.rows);
    } else {
      const RowTransform& by_rows = *transform.stage->rows();
      auto state = by_rows.Open(run.context, run.shape, Direction::kForward);
      if (!state) {
        return tl::unexpected(
            Named(tl::unexpected(std::move(state).error()), run.context, *transform.info).error());
      }
      by_rows.ForwardRows(*state, run.first_row, run.rows);
    }
    if (!AllBounded(run.rows.span())) return false;
  }
  return true;
}

Result<bool> TileEncoder::Encode(std::size_t tile, Arena& scratch) {
  TileRun run = BeginTile(tile, scratch);
  const TileQuantizer& quantizer = *chain_->quantizer().stage->tiles();
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    KVSERVE_TRY(EnterPlane(run, p));
    if (run.rows.tokens == 0) continue;
    KVSERVE_ASSIGN(const bool finite, Forward(run, p));
    if (!finite) return false;
    {
      const StageTimer timer(*clock_, ClockSlot::kQuantizer);
      PlaneContext keeping = run.context;
      keeping.arena = &run.memory->kept;
      kept_[p * count() + tile] =
          quantizer.QuantizeTile(keeping, plan_->symbols[p], run.first_row, run.rows);
    }
    KVSERVE_TRY(Inverse(run, run.first_predictor));
  }
  return true;
}

void TileEncoder::WriteSides(std::span<StageSides> sides) const {
  const TileQuantizer& quantizer = *chain_->quantizer().stage->tiles();
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    sides[p].resize(chain_->transforms().size() + 1);
    for (auto& bytes : sides[p]) bytes.clear();
    if (planes_[p].tokens.empty()) continue;
    // Tiles before the plane's first token hold nothing of it.
    const auto tiles = kept_.subspan(p * count(), count());
    const auto first = std::find_if(tiles.begin(), tiles.end(),
                                    [](const PlaneState* kept) { return kept != nullptr; });
    ByteWriter side(sides[p].back());
    quantizer.WriteSide({first, tiles.end()}, side);
  }
}

Status TileDecoder::Open(std::span<const std::span<const std::byte>> sides) {
  const auto& quantizer = chain_->quantizer();
  const StageTimer timer(*clock_, ClockSlot::kQuantizer);
  open_ = frame_->arena->TakeZeroed<const PlaneState*>(planes_.size());
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    const PlaneContext context = ContextOf(*frame_, planes_[p], *frame_->arena);
    ByteReader side(sides[p]);
    if (!context.tokens.empty()) {
      auto state = quantizer.stage->tiles()->OpenTiles(context, ShapeOf(planes_[p]),
                                                       plan_->symbols[p], side);
      if (!state) {
        return Named(tl::unexpected(std::move(state).error()), context, *quantizer.info);
      }
      open_[p] = *state;
    }
    KVSERVE_TRY(CheckSideRead(side, context));
  }
  return {};
}

Status TileDecoder::Decode(std::size_t tile, Arena& scratch) {
  TileRun run = BeginTile(tile, scratch);
  const TileQuantizer& quantizer = *chain_->quantizer().stage->tiles();
  for (std::size_t p = 0; p < planes_.size(); ++p) {
    KVSERVE_TRY(EnterPlane(run, p));
    if (run.rows.tokens == 0) continue;
    const SymbolPlane& symbols = plan_->symbols[p];
    const std::size_t begin = std::max(run.first_row, run.lead) - run.lead;
    const std::size_t end = std::max(run.first_row + run.rows.tokens, run.lead) - run.lead;
    {
      const StageTimer timer(*clock_, ClockSlot::kQuantizer);
      quantizer.DequantizeTile(
          open_[p], run.first_row,
          symbols.symbols.subspan(begin * symbols.columns, (end - begin) * symbols.columns),
          run.rows);
    }
    KVSERVE_TRY(Inverse(run, 0));
    const StageTimer timer(*clock_, ClockSlot::kConvert);
    ZeroDroppedRows(symbols, run.first_row, run.lead, run.rows);
    FetchRows(planes_[p].view, run.first_row, run.rows.tokens);
    if (!StoreRows(run.rows.span(), planes_[p].view, run.first_row, run.rows.tokens)) {
      return NotNumbers(run.context);
    }
  }
  return {};
}

}  // namespace kvserve
