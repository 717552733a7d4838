#include "kernels/isa/isa.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "base/try.h"
#include "hwy/highway.h"

namespace kvserve {
namespace {

struct Target {
  std::string_view name;
  std::int64_t bit;  // of Highway; 0 for the oracles
};

// Best first.
constexpr std::array<Target, 5> kTargets = {{
#if HWY_ARCH_X86
    {"avx512", HWY_AVX3},
    {"avx2", HWY_AVX2},
    {"sse4", HWY_SSE4},
#else
    {"avx512", -1},
    {"avx2", -1},
    {"sse4", -1},
#endif
#if HWY_ARCH_ARM
    {"neon", HWY_NEON},
#else
    {"neon", -1},
#endif
    {"scalar", 0},
}};

bool Available(const Target& target) {
  if (target.bit == 0) return true;
#ifdef HWY_COMPILE_ONLY_SCALAR
  return false;
#else
  if (target.bit < 0) return false;
  static const std::int64_t supported = hwy::SupportedTargets();
  return (supported & target.bit) != 0;
#endif
}

Result<const Target*> Find(std::string_view name) {
  std::string known;
  for (const auto& target : kTargets) {
    if (target.name != name) {
      known += (known.empty() ? "" : ", ") + std::string(target.name);
      continue;
    }
    if (Available(target)) return &target;
    return MakeError(ErrorCode::kUnsupported, "instruction set " + std::string(name) +
                                                  " is not available here; using " +
                                                  std::string(AvailableIsas().front()));
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   "instruction set '" + std::string(name) + "' is not one of " + known);
}

std::atomic<const Target*> g_active{nullptr};

void Activate(const Target& target) {
  if (target.bit > 0) hwy::GetChosenTarget().Update(target.bit);
  g_active.store(&target, std::memory_order_release);
}

const Target& Best() {
  for (const auto& target : kTargets) {
    if (Available(target)) return target;
  }
  return kTargets.back();
}

// Reads the environment once; later changes of the variable have no effect.
const Status& EnvironmentStatus() {
  static const Status status = [] {
    const char* wanted = std::getenv("KVSERVE_ISA");
    if (wanted == nullptr || *wanted == '\0') {
      Activate(Best());
      return Status();
    }
    const auto found = Find(wanted);
    Activate(found ? **found : Best());
    return found ? Status() : Status(tl::unexpected(found.error()));
  }();
  return status;
}

const Target& Active() {
  const Target* active = g_active.load(std::memory_order_acquire);
  if (active == nullptr) {
    (void)EnvironmentStatus();
    active = g_active.load(std::memory_order_acquire);
  }
  return *active;
}

}  // namespace

std::string_view ActiveIsa() {
  return Active().name;
}

std::vector<std::string_view> AvailableIsas() {
  std::vector<std::string_view> names;
  for (const auto& target : kTargets) {
    if (Available(target)) names.push_back(target.name);
  }
  return names;
}

Result<std::string> PinnedIsa() {
  KVSERVE_TRY(EnvironmentStatus());
  return std::string(ActiveIsa());
}

Status SetIsa(std::string_view name) {
  (void)EnvironmentStatus();
  KVSERVE_ASSIGN(const Target* target, Find(name));
  Activate(*target);
  return {};
}

bool UseScalarKernels() {
  return Active().bit == 0;
}

}  // namespace kvserve
