// kvserve bench: speed on this machine.
#include "bench_verbs.h"
#include "command.h"

namespace kvserve::tool {

void AddBench(CLI::App& app, Invocation& invocation) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  kvserve bench codec\n  kvserve bench codec --help");
  AddBenchCodec(*bench, invocation);
}

}  // namespace kvserve::tool
