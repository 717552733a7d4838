// kvserve serve: a prefill node or a decode node with the embedded engine.
#include "command.h"
#include "serve_nodes.h"

namespace kvserve::tool {

void AddServe(CLI::App& app, Invocation& invocation) {
  CLI::App* serve = app.add_subcommand("serve", "Run one node of a prefill/decode pair");
  serve->require_subcommand(1);
  AddServePrefill(*serve, invocation);
  AddServeDecode(*serve, invocation);
}

}  // namespace kvserve::tool
