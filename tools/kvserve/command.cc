#include "command.h"

#include <cstdio>

#include "machine.h"

namespace kvserve::tool {

void AddJsonFlag(CLI::App& command, Invocation& invocation) {
  command.add_flag("--json", invocation.json, "Print one JSON document on one line of stdout");
}

void PrintJson(const Invocation& invocation, nlohmann::json document) {
  const Machine machine = DescribeMachine();
  document["kvserve_version"] = KVSERVE_VERSION;
  document["machine"] = {{"cpu", machine.cpu}, {"isa", machine.isa}, {"cores", machine.cores}};
  document["machine"]["gpu"] = machine.gpu.empty() ? nlohmann::json() : nlohmann::json(machine.gpu);
  document["argv"] = invocation.argv;
  // Arguments need not be UTF-8: replace what JSON cannot say.
  const std::string text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace kvserve::tool
