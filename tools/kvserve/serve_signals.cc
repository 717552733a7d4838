#include "serve_signals.h"

#include <signal.h>

#include <ctime>

namespace kvserve::tool {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void HoldStopSignals() {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void WaitForStopSignal() {
  const sigset_t signals = StopSignals();
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
}

bool StopSignalWithin(std::chrono::milliseconds wait) {
  const sigset_t signals = StopSignals();
  const timespec limit{static_cast<time_t>(wait.count() / 1000),
                       static_cast<long>(wait.count() % 1000) * 1000000};
  return sigtimedwait(&signals, nullptr, &limit) > 0;
}

}  // namespace kvserve::tool
