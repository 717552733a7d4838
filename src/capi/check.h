/* CHECK for tests in C: every failure is shown, CheckResult() is for main. */
#pragma once

#include <kvserve/kvserve.h>
#include <stdio.h>

static int check_failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      ++check_failures;                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

#define CHECK_OK(call)                                                  \
  do {                                                                  \
    const kvserve_status check_status = (call);                         \
    if (check_status != KVSERVE_OK) {                                   \
      ++check_failures;                                                 \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
              kvserve_status_name(check_status), kvserve_last_error()); \
    }                                                                   \
  } while (0)

static int CheckResult(void) {
  if (check_failures > 0) fprintf(stderr, "%d checks failed\n", check_failures);
  return check_failures > 0 ? 1 : 0;
}
