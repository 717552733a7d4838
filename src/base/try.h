// Early-return glue for Result and Status.
#pragma once

#include <utility>

#include "kvserve/error.h"

#define KVSERVE_CONCAT_INNER(a, b) a##b
#define KVSERVE_CONCAT(a, b) KVSERVE_CONCAT_INNER(a, b)

// Returns from the enclosing function with the error of `expression`, if it has one.
#define KVSERVE_TRY(expression)                                                       \
  do {                                                                                \
    auto kvserve_try_status = (expression);                                           \
    if (!kvserve_try_status) {                                                        \
      return tl::unexpected<::kvserve::Error>(std::move(kvserve_try_status).error()); \
    }                                                                                 \
  } while (false)

#define KVSERVE_ASSIGN_IMPL(temporary, target, expression)                 \
  auto temporary = (expression);                                           \
  if (!temporary) {                                                        \
    return tl::unexpected<::kvserve::Error>(std::move(temporary).error()); \
  }                                                                        \
  target = std::move(*temporary)

// KVSERVE_ASSIGN(auto x, F()); declares or assigns `x`, or returns F's error.
#define KVSERVE_ASSIGN(target, expression) \
  KVSERVE_ASSIGN_IMPL(KVSERVE_CONCAT(kvserve_assign_, __LINE__), target, expression)
