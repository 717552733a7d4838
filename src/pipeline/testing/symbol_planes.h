// Test glue for codecs: planes with their own storage, a frame's context, samples and their
// entropy.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/arena.h"
#include "base/workers.h"
#include "kernels/histogram/histogram.h"
#include "pipeline/stage.h"

namespace kvserve::testing {

struct Planes {
  std::vector<std::vector<std::uint8_t>> storage;
  std::vector<SymbolPlane> planes;

  void Add(std::uint32_t columns, std::uint32_t alphabet, std::vector<std::uint8_t> symbols) {
    SymbolPlane plane;
    plane.layer = static_cast<std::uint32_t>(planes.size());
    plane.tokens = static_cast<std::uint32_t>(symbols.size() / columns);
    plane.columns = columns;
    plane.alphabet = alphabet;
    storage.push_back(std::move(symbols));
    planes.push_back(plane);
    for (std::size_t i = 0; i < planes.size(); ++i) planes[i].symbols = storage[i];
  }
};

// What an executor gives a codec.
struct Frame {
  explicit Frame(unsigned threads = 1, const CalibrationArtefact* artefact = nullptr)
      : workers(threads) {
    context.arena = &arena;
    context.workers = &workers;
    context.artefact = artefact;
  }
  Arena arena;
  Workers workers;
  FrameContext context;
};

inline std::vector<std::byte> EncodeSymbols(const Codec& codec, const Planes& planes,
                                            unsigned threads = 1) {
  Frame frame(threads);
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  EXPECT_TRUE(codec.Encode(frame.context, planes.planes, writer));
  EXPECT_LE(bytes.size(), codec.MaxEncodedBytes(planes.planes));
  return bytes;
}

inline Status DecodeSymbols(const Codec& codec, std::span<const std::byte> bytes, Planes& planes,
                            unsigned threads = 1) {
  Frame frame(threads);
  ByteReader reader(bytes);
  return codec.Decode(frame.context, reader, planes.planes);
}

inline std::vector<std::uint8_t> Bell(std::size_t count, std::uint32_t alphabet, double sigma,
                                      unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.5 * (alphabet - 1), sigma);
  std::vector<std::uint8_t> symbols(count);
  for (auto& symbol : symbols) {
    symbol = static_cast<std::uint8_t>(std::clamp(std::round(normal(random)), 0.0, alphabet - 1.0));
  }
  return symbols;
}

inline double EntropyBytes(const std::vector<std::uint8_t>& symbols) {
  double bits = 0.0;
  for (const auto count : CountSymbols(symbols)) {
    if (count > 0) {
      bits -= static_cast<double>(count) *
              std::log2(static_cast<double>(count) / static_cast<double>(symbols.size()));
    }
  }
  return bits / 8.0;
}

}  // namespace kvserve::testing
