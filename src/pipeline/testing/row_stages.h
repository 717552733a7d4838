// The toy stages and three that work by rows and in pieces, for tests of the fast executor.
#pragma once

#include "pipeline/stage.h"

namespace kvserve::testing {

// Names and ids beside those of ToyStages:
//   turn     0x0211 transform  by rows: scales each row by a power of two of its index; option
//                              overflow makes row 3 infinite
//   ranges   0x0311 quantizer  by rows: min-max per column, first `lead` rows raw in side bytes
//   pieces   0x0411 codec      raw, in pieces: planes of more than `cut` rows are cut there,
//   smaller
//                              ones are joined two by two
[[nodiscard]] StageTable RowStages();

}  // namespace kvserve::testing
