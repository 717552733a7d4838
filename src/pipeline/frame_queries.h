// Whether the queries that came with a frame are those that its selectors need.
#pragma once

#include "kvserve/codec.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "pipeline/chain.h"

namespace kvserve {

// kInvalidArgument unless the chain needs no queries, or `queries` has finite ones in the keys'
// shape for every layer of the view.
[[nodiscard]] Status CheckQueries(const Chain& chain, const ConstKvView& view,
                                  const QueryView* queries);

// Of one layer; null when there are none.
[[nodiscard]] const QueryLayer* FindQueries(const QueryView& queries, std::uint32_t layer);

}  // namespace kvserve
