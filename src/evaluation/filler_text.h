// Endless prose without meaning for anything that is asked: seeded, made of our own sentences.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace kvserve {

class FillerText {
 public:
  explicit FillerText(std::uint64_t seed) : random_(seed) {}

  // A sentence with its end and a blank; no digits in it.
  [[nodiscard]] std::string Sentence();

 private:
  template <std::size_t N>
  [[nodiscard]] const char* Pick(const char* const (&words)[N]) {
    return words[random_() % N];
  }

  std::mt19937_64 random_;
};

}  // namespace kvserve
