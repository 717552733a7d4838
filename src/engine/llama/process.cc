#include "engine/llama/process.h"

#include <llama.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>

namespace kvserve {
namespace {

thread_local std::string last_error;

void KeepErrors(ggml_log_level level, const char* text, void* /*user_data*/) {
  if (level != GGML_LOG_LEVEL_ERROR || text == nullptr) return;
  last_error = text;
  while (!last_error.empty() && last_error.back() == '\n') last_error.pop_back();
}

}  // namespace

void PrepareProcessForEngines(char** argv) {
  constexpr const char* kVariable = "OMP_WAIT_POLICY";
  if (std::getenv(kVariable) != nullptr) return;
  if (setenv(kVariable, "PASSIVE", 0) != 0) return;
  execv("/proc/self/exe", argv);
}

void InitEngineLibrary() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(KeepErrors, nullptr);
    llama_backend_init();
  });
}

std::string LastEngineError() {
  return std::exchange(last_error, {});
}

}  // namespace kvserve
