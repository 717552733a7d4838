// A progress line on a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace kvserve::tool {

// Rewrites one line of stderr, at most once per percent; silent unless stderr is a terminal. The
// destructor clears the line.
class Progress {
 public:
  Progress(std::string title, std::uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Set(std::uint64_t done);

 private:
  std::string title_;
  std::uint64_t total_;
  std::uint64_t shown_percent_ = UINT64_MAX;
  bool terminal_;
};

}  // namespace kvserve::tool
