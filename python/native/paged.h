// A paged cache of Python's, which senders and receivers start on.
#pragma once

#include "glue.h"
#include "kvserve/paged.h"

namespace kvserve::python {

struct CacheHandle {
  PagedCache cache;
  nb::object owner;
};

using Tables = std::vector<BlockTable>;  // [group]

void BindPaged(nb::module_& module);

}  // namespace kvserve::python
