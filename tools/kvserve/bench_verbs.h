// The verbs of kvserve bench.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace kvserve::tool {

void AddBenchCodec(CLI::App& bench, Invocation& invocation);

}  // namespace kvserve::tool
