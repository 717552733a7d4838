#include "machine.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

#include "kernels/isa/isa.h"

namespace kvserve::tool {
namespace {

// Value of the first "key : value" line of a file of the proc file system.
std::string ProcValue(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return {};
}

std::string FirstGpu() {
  std::error_code error;
  const std::filesystem::directory_iterator gpus("/proc/driver/nvidia/gpus", error);
  if (error || gpus == std::filesystem::directory_iterator()) return {};
  return ProcValue(gpus->path() / "information", "Model");
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  machine.cpu = ProcValue("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  machine.isa = ActiveIsa();
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    machine.cores = static_cast<unsigned>(CPU_COUNT(&set));
  }
  machine.gpu = FirstGpu();
  return machine;
}

}  // namespace kvserve::tool
