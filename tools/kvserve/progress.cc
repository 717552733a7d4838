#include "progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace kvserve::tool {

Progress::Progress(std::string title, std::uint64_t total)
    : title_(std::move(title)), total_(total), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::Set(std::uint64_t done) {
  const std::uint64_t percent = total_ == 0 ? 100 : done * 100 / total_;
  if (!terminal_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  std::fprintf(stderr, "\r%s %3u %%", title_.c_str(), static_cast<unsigned>(percent));
}

}  // namespace kvserve::tool
