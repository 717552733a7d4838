// Entry point: parses the command line, runs one subcommand, turns its Error into one line and an
// exit status.
#include <cstdio>
#include <exception>
#include <string>

#include "command.h"
#include "kernels/isa/isa.h"

namespace kvserve::tool {

// Weak: a subcommand whose file is not part of this build has a null address.
#define KVSERVE_COMMAND(Name) \
  __attribute__((weak)) void Add##Name(CLI::App& app, Invocation& invocation);
#include "commands.def"
#undef KVSERVE_COMMAND

namespace {

constexpr AddCommand kCommands[] = {
#define KVSERVE_COMMAND(Name) Add##Name,
#include "commands.def"
#undef KVSERVE_COMMAND
};

void PrintError(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "kvserve: %s\n", message.c_str());
}

// CLI11 reports a misspelt command as a missing one.
bool KnowsCommand(const CLI::App& app, const std::string& word) {
  if (word.empty() || word[0] == '-') return true;
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == word) return true;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  PrintError("unknown command '" + word + "'; there are " + names);
  return false;
}

int Run(int argc, char** argv) {
  CLI::App app("Compresses the KV cache of language models on its way over a network.", "kvserve");
  app.set_version_flag("--version", std::string("kvserve ") + KVSERVE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done, 2 wrong usage, 3 bad input, 4 corrupt data, 5 peer unavailable,\n"
      "6 quality or SLO cannot be met, 1 anything else.\n"
      "'kvserve COMMAND --help' shows the options and examples of a command.");
  Invocation invocation;
  invocation.argv.assign(argv, argv + argc);
  for (const AddCommand add : kCommands) {
    if (add != nullptr) add(app, invocation);
  }
  if (argc > 1 && !KnowsCommand(app, argv[1])) return ExitStatus(ErrorCode::kInvalidArgument);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    PrintError(std::string(error.what()) + " (see --help)");
    return ExitStatus(ErrorCode::kInvalidArgument);
  }
  if (const auto isa = PinnedIsa(); !isa) {
    PrintError("KVSERVE_ISA: " + isa.error().message);
    if (isa.error().code == ErrorCode::kInvalidArgument) return ExitStatus(isa.error().code);
  }
  if (const Status status = invocation.run(); !status) {
    PrintError(status.error().message);
    return ExitStatus(status.error().code);
  }
  if (std::fflush(stdout) != 0) {
    PrintError("cannot write to standard output");
    return ExitStatus(ErrorCode::kInternal);
  }
  return 0;
}

}  // namespace
}  // namespace kvserve::tool

int main(int argc, char** argv) {
  try {
    return kvserve::tool::Run(argc, argv);
  } catch (const std::exception& exception) {  // from third-party code; ours returns errors
    std::fprintf(stderr, "kvserve: %s\n", exception.what());
    return 1;
  }
}
