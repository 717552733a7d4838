// Versions, status names and the last error of each thread.
#include "capi/capi.h"

namespace kvserve::capi {
namespace {

thread_local std::string last_error;

}  // namespace

kvserve_status Fail(ErrorCode code, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();  // no memory for the text; the code still tells
  }
  return static_cast<kvserve_status>(code);
}

static_assert(KVSERVE_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(KVSERVE_INVALID_ARGUMENT == static_cast<int>(ErrorCode::kInvalidArgument));
static_assert(KVSERVE_BAD_INPUT == static_cast<int>(ErrorCode::kBadInput));
static_assert(KVSERVE_CORRUPT_DATA == static_cast<int>(ErrorCode::kCorruptData));
static_assert(KVSERVE_UNAVAILABLE == static_cast<int>(ErrorCode::kUnavailable));
static_assert(KVSERVE_BUDGET_EXCEEDED == static_cast<int>(ErrorCode::kBudgetExceeded));
static_assert(KVSERVE_UNSUPPORTED == static_cast<int>(ErrorCode::kUnsupported));
static_assert(KVSERVE_MISMATCH == static_cast<int>(ErrorCode::kMismatch));
static_assert(KVSERVE_DEADLINE_EXCEEDED == static_cast<int>(ErrorCode::kDeadlineExceeded));
static_assert(KVSERVE_CANCELLED == static_cast<int>(ErrorCode::kCancelled));
static_assert(KVSERVE_RESOURCE_EXHAUSTED == static_cast<int>(ErrorCode::kResourceExhausted));
static_assert(KVSERVE_PERMISSION_DENIED == static_cast<int>(ErrorCode::kPermissionDenied));

static_assert(KVSERVE_FLOAT16 == static_cast<int>(DType::kFloat16));
static_assert(KVSERVE_BFLOAT16 == static_cast<int>(DType::kBFloat16));
static_assert(KVSERVE_FLOAT32 == static_cast<int>(DType::kFloat32));
static_assert(KVSERVE_FLOAT8_E4M3FN == static_cast<int>(DType::kFloat8E4M3FN));
static_assert(KVSERVE_FLOAT8_E4M3FNUZ == static_cast<int>(DType::kFloat8E4M3FNUZ));
static_assert(KVSERVE_FLOAT8_E5M2 == static_cast<int>(DType::kFloat8E5M2));
static_assert(KVSERVE_FLOAT8_E5M2FNUZ == static_cast<int>(DType::kFloat8E5M2FNUZ));
static_assert(KVSERVE_UINT8 == static_cast<int>(DType::kUint8));

static_assert(KVSERVE_ROPE_INTERLEAVED == static_cast<int>(RopeStyle::kInterleaved));
static_assert(KVSERVE_ROPE_HALVES == static_cast<int>(RopeStyle::kHalves));

}  // namespace kvserve::capi

extern "C" {

uint32_t kvserve_abi_version(void) {
  return KVSERVE_ABI_VERSION;
}

const char* kvserve_version(void) {
  return KVSERVE_VERSION;
}

const char* kvserve_status_name(kvserve_status status) {
  if (status == KVSERVE_OK) return "ok";
  return kvserve::ErrorName(static_cast<kvserve::ErrorCode>(status));
}

const char* kvserve_last_error(void) {
  return kvserve::capi::last_error.c_str();
}

}  // extern "C"
