#include "engine/llama/process.h"

#include <llama.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

namespace kvserve {
namespace {

thread_local std::string last_error;

void KeepErrors(ggml_log_level level, const char* text, void* /*user_data*/) {
  if (level != GGML_LOG_LEVEL_ERROR || text == nullptr) return;
  last_error = text;
  while (!last_error.empty() && last_error.back() == '\n') last_error.pop_back();
}

}  // namespace

void PrepareProcessForEngines() {
  constexpr const char* kVariable = "OMP_WAIT_POLICY";
  if (std::getenv(kVariable) != nullptr) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty() || setenv(kVariable, "PASSIVE", 0) != 0) return;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
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

std::string EngineLibraryIdentity() {
  return std::string(ggml_version()) + " " + ggml_commit() + " " + llama_print_system_info();
}

}  // namespace kvserve
