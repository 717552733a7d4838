// The HTTP routes of both nodes: completions, chat, models, health and metrics.
#pragma once

#include "runtime/decode_node.h"
#include "runtime/http_listener.h"

namespace kvserve {

// GET /healthz and GET /metrics.
void AddNodeRoutes(HttpListener& http, NodeMetrics& metrics);

// POST /v1/completions, POST /v1/chat/completions, GET /v1/models. `node` outlives `http`.
void AddCompletionRoutes(HttpListener& http, DecodeNode& node);

}  // namespace kvserve
