// A process that gets no more memory than so many bytes beyond what it has (or below it), for as
// long as this lives. Not under sanitizers, which need address space of their own.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace kvserve::testing {

class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::ptrdiff_t more_bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limited = before_;
    limited.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) +
                       static_cast<std::size_t>(more_bytes);
    setrlimit(RLIMIT_AS, &limited);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace kvserve::testing
