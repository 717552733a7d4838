// kvserve dequantize: a model with its weights in F16, so that quality can be measured.
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/try.h"
#include "command.h"
#include "engine/llama/llama_engine.h"
#include "output_argument.h"
#include "table.h"

namespace kvserve::tool {
namespace {

struct Arguments {
  std::string model;
  std::string output;
};

Status RunDequantize(const Arguments& arguments, const Invocation& invocation) {
  KVSERVE_TRY(CheckOutputIsNoInput(arguments.output, {arguments.model}));
  double seconds = 0;
  {
    const ScopedTimer timer(seconds);
    KVSERVE_TRY(DequantizeModel(arguments.model, arguments.output));
  }
  std::error_code ignored;  // the file was written a moment ago
  const std::uint64_t bytes = std::filesystem::file_size(arguments.output, ignored);
  if (invocation.json) {
    PrintJson(invocation, {{"output", arguments.output}, {"bytes", bytes}, {"seconds", seconds}});
    return {};
  }
  Table table;
  table.Add({"model", arguments.output});
  table.Add({"size", BytesText(bytes)});
  table.Add({"seconds", Fixed(seconds, 2)});
  table.Print();
  return {};
}

}  // namespace

void AddDequantize(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("dequantize", "Write a model with its weights in F16");
  command.add_option("--model", arguments->model, "GGUF file to read")->required();
  command.add_option("-o,--output", arguments->output, "GGUF file to write")->required();
  AddJsonFlag(command, invocation);
  command.footer(
      "4-bit weights amplify a one-bit change of the KV, which hides what a profile costs.\n"
      "Example:\n"
      "  kvserve dequantize --model model-q4.gguf -o model-f16.gguf");
  command.callback([arguments, &invocation] {
    invocation.run = [arguments, &invocation] { return RunDequantize(*arguments, invocation); };
  });
}

}  // namespace kvserve::tool
