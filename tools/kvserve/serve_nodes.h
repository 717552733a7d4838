// The two subcommands of kvserve serve.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace kvserve::tool {

void AddServePrefill(CLI::App& serve, Invocation& invocation);
void AddServeDecode(CLI::App& serve, Invocation& invocation);

}  // namespace kvserve::tool
