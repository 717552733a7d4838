// SIGINT and SIGTERM as something to wait for.
#pragma once

namespace kvserve::tool {

// Call before any thread is started: all threads inherit the mask. SIGPIPE is ignored.
void HoldStopSignals();

// Blocks until one of the held signals comes.
void WaitForStopSignal();

}  // namespace kvserve::tool
