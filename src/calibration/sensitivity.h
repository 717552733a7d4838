// How much a model's output changes with errors in its KV: a quadratic form per plane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"

namespace kvserve {

// For small errors e[t] of the tokens t of a context, keys before RoPE and values as they are, in
// columns head * dim: the divergence KL(unchanged || changed) of the next-token distribution, in
// nats per scored token, is about 1/2 * sum over planes and tokens of e[t]^T M e[t]. M is an
// average over the tokens 4 .. context_tokens - 32 of the texts: the first ones, attention sinks,
// are far more sensitive, and the last ones somewhat. Longer contexts share attention among more
// tokens, so M belongs to its context_tokens.
struct Sensitivity {
  // [2 * layer + kind][column, column], M of the plane: symmetric, no negative diagonal, in the
  // engine's order of channels; empty for the V of a single plane.
  std::vector<std::vector<float>> planes;
  std::uint32_t context_tokens = 0;  // tokens before the scored ones
  std::uint32_t scored_tokens = 0;   // per text
  std::string source;                // of whoever computed it, for people
};

// Reads what `python -m kvserve.sensitivity` wrote; docs/CALIBRATION.md has the format. Channels of
// keys that the file pairs for RoPE otherwise than `geometry` are put into its order. kBadInput: no
// such file, not such a file, or a matrix that is not finite, symmetric (to 1/1000 of its largest
// entry) or has a negative diagonal. kMismatch: another number of layers or columns. kUnsupported:
// keys that the file has before RoPE, of a layer that `geometry` cannot rotate back.
[[nodiscard]] Result<Sensitivity> ReadSensitivity(const std::string& path,
                                                  const KvGeometry& geometry);

}  // namespace kvserve
