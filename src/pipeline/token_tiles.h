// A frame in tiles of tokens that pass all its planes in coding order, so that planes which are
// predicted from decoded ones need no other thread: many tiles at once, layers in sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "pipeline/chain.h"
#include "pipeline/frame_plan.h"
#include "pipeline/side_section.h"
#include "pipeline/stage_clock.h"

namespace kvserve {

// The quantizer offers tiles(), and every transform rows() or, if it needs feedback, predictor().
[[nodiscard]] bool WorksByTiles(const Chain& chain);

// What both directions share. Memory is kept from frame to frame.
template <typename Byte>
class TokenTiles {
 public:
  using Planes = std::span<const OrderedPlane<Byte>>;

  // Divides a frame; all of these outlive the work on it. `frame.arena` is not taken back before.
  void Begin(const Chain& chain, const FrameContext& frame, Planes planes, FramePlan& plan,
             StageClock& clock);
  [[nodiscard]] std::size_t count() const { return count_; }

 protected:
  struct TileMemory {
    Arena kept;   // until the frame is done
    Arena plane;  // until the plane is
  };
  // A tile on its way through the planes.
  struct TileRun {
    std::size_t tile = 0;
    TileMemory* memory = nullptr;
    TokenRange tokens;
    std::span<PlaneState*> predictors;  // [transform], null where it is none
    std::size_t first_predictor = 0;    // the number of transforms, if there is none
    std::span<float> values;
    // Of the plane in hand.
    PlaneContext context;
    PlaneShape shape;
    std::uint32_t first_row = 0;
    std::uint32_t lead = 0;  // rows of the plane without symbols
    RealPlane rows;
  };

  [[nodiscard]] TileRun BeginTile(std::size_t tile, Arena& scratch);
  // Which rows of the plane the tile has, if any; the predictors see all planes.
  [[nodiscard]] Status EnterPlane(TileRun& run, std::size_t p);
  // The transforms of the plane's rows, down to transform `last`.
  [[nodiscard]] Status Inverse(TileRun& run, std::size_t last);

  const Chain* chain_ = nullptr;
  const FrameContext* frame_ = nullptr;
  Planes planes_;
  FramePlan* plan_ = nullptr;
  StageClock* clock_ = nullptr;

 private:
  [[nodiscard]] TokenRange TokensOf(std::size_t tile) const;

  TokenRange tokens_;  // that any plane holds
  std::size_t count_ = 0;
  std::uint32_t tile_tokens_ = 1;
  std::vector<std::unique_ptr<TileMemory>> memory_;  // [tile]
};

// One frame at a time; its tiles by many threads at once.
class TileEncoder : public TokenTiles<const std::byte> {
 public:
  void Begin(const Chain& chain, const FrameContext& frame, Planes planes, FramePlan& plan,
             StageClock& clock);
  // From the cache's dtype to the symbols of plan. False when a value is not finite or a
  // coefficient out of bounds: whole planes then say which.
  [[nodiscard]] Result<bool> Encode(std::size_t tile, Arena& scratch);
  // When all tiles are encoded: the side bytes of every plane.
  void WriteSides(std::span<StageSides> sides) const;

 private:
  [[nodiscard]] Result<bool> Forward(TileRun& run, std::size_t p);

  std::span<PlaneState*> kept_;  // [plane][tile]
};

class TileDecoder : public TokenTiles<std::byte> {
 public:
  // After Begin and before any tile: reads the side bytes of every plane. kCorruptData.
  [[nodiscard]] Status Open(std::span<const std::span<const std::byte>> sides);
  // From the symbols of plan to the cache's dtype.
  [[nodiscard]] Status Decode(std::size_t tile, Arena& scratch);

 private:
  std::span<const PlaneState*> open_;  // [plane]
};

}  // namespace kvserve
