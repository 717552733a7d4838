// One subcommand = one file with one Add function, listed in commands.def.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvserve/error.h"

namespace kvserve::tool {

// What main() runs after parsing: the chosen subcommand's body. Usage faults that CLI11 does not
// see are Errors with kInvalidArgument; main() prints any Error as one line and exits by
// ExitStatus.
struct Invocation {
  std::function<Status()> run;
  std::vector<std::string> argv;
  bool json = false;  // --json of the chosen subcommand
};

// Declares options on `app` and sets `invocation.run` from the subcommand's callback.
using AddCommand = void (*)(CLI::App& app, Invocation& invocation);

// Adds --json to a subcommand.
void AddJsonFlag(CLI::App& command, Invocation& invocation);

// Prints `document` on one line of stdout with kvserve_version, machine and argv added.
void PrintJson(const Invocation& invocation, nlohmann::json document);

}  // namespace kvserve::tool
