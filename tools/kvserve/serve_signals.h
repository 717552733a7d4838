// SIGINT and SIGTERM as something to wait for.
#pragma once

#include <chrono>

namespace kvserve::tool {

// Call before any thread is started: all threads inherit the mask. SIGPIPE is ignored.
void HoldStopSignals();

// Blocks until one of the held signals comes.
void WaitForStopSignal();

// Waits at most so long; true if a held signal came (it is then consumed).
[[nodiscard]] bool StopSignalWithin(std::chrono::milliseconds wait);

}  // namespace kvserve::tool
