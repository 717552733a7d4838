// What a sender does with one connection after the handshake.
#pragma once

#include "net/connection.h"
#include "net/handshake.h"
#include "transfer/idle_connections.h"
#include "transfer/ticket_table.h"

namespace kvserve {

// Serves fetches, one after the other, until the peer goes or misbehaves. Blocks. An offer that has
// ended while it is read ends the fetch with an abort that says why. Between fetches it is `idle`.
void RunSenderSession(TicketTable& tickets, const Agreement& agreement, IdleConnections& idle,
                      Connection& connection);

}  // namespace kvserve
