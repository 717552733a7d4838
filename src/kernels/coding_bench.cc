// Speed of counting and entropy coding in symbols per second, LZ4 and zstd beside.
#include <benchmark/benchmark.h>
#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/histogram/histogram.h"
#include "kernels/rans/context_coder.h"
#include "kernels/rans/rans.h"
#include "kernels/testing/bench_plane.h"
#include "kernels/testing/laplace_tables.h"

namespace kvserve {
namespace {

using testing::kColumns;
using testing::kValues;
using testing::SetBytes;
using testing::Symbols;

// Sets of symbols to code: a bell over 8 or 16 levels, 30 that occur of 256, and all of 256.
void Alphabets(benchmark::internal::Benchmark* b) {
  b->Arg(8)->Arg(16)->Arg(30)->Arg(256);
}

void Count(benchmark::State& state) {
  const auto alphabet = static_cast<std::uint32_t>(state.range(0));
  const auto symbols = Symbols(alphabet);
  for (auto _ : state) benchmark::DoNotOptimize(CountSymbols(symbols, alphabet));
  SetBytes(state, kValues);
}
BENCHMARK(Count)->Apply(Alphabets);

void Normalise(benchmark::State& state) {
  const auto counts = CountSymbols(Symbols(static_cast<std::uint32_t>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(NormaliseCounts(counts));
}
BENCHMARK(Normalise)->Apply(Alphabets);

// A plane as one part, with all lanes.
struct RansSample {
  explicit RansSample(std::uint32_t alphabet)
      : symbols(Symbols(alphabet)),
        table(NormaliseCounts(CountSymbols(symbols))),
        scratch(RansScratchWords(CodeLength(CountSymbols(symbols), table), kValues,
                                 kMaxRansLanesLog2)) {}
  std::span<const std::byte> Encode() {
    const RansPart part{symbols, &table};
    return RansEncode(std::span(&part, 1), kMaxRansLanesLog2, RansLayout::kAlias, scratch);
  }
  std::vector<std::uint8_t> symbols;
  RansTable table;
  std::vector<std::uint16_t> scratch;
};

void RansEncoding(benchmark::State& state) {
  RansSample sample(static_cast<std::uint32_t>(state.range(0)));
  std::size_t bytes = 0;
  for (auto _ : state) bytes = sample.Encode().size();
  SetBytes(state, kValues);
  state.counters["ratio"] = static_cast<double>(kValues) / static_cast<double>(bytes);
}
BENCHMARK(RansEncoding)->Apply(Alphabets);

void RansDecoding(benchmark::State& state) {
  RansSample sample(static_cast<std::uint32_t>(state.range(0)));
  const auto bytes = sample.Encode();
  std::vector<std::uint8_t> decoded(kValues);
  const MutableRansPart out{decoded, &sample.table};
  const auto decode = [&] {
    return RansDecode(bytes, kMaxRansLanesLog2, RansLayout::kAlias, std::span(&out, 1));
  };
  if (!decode() || decoded != sample.symbols) return state.SkipWithError("wrong symbols");
  for (auto _ : state) benchmark::DoNotOptimize(decode());
  SetBytes(state, kValues);
}
BENCHMARK(RansDecoding)->Apply(Alphabets);

// Rows of columns whose tables fall from `first` by `range`, as the components of a transform do.
struct ContextSample {
  ContextSample(std::size_t first, std::size_t range)
      : tables(std::make_unique<ContextTables>()), symbols(kValues), indices(kValues) {
    if (!FillContextTables(testing::LaplaceTables(), *tables)) return;
    std::mt19937 random(1);
    for (std::size_t i = 0; i < kValues; ++i) {
      const std::size_t column = i % kColumns;
      indices[i] = static_cast<std::uint8_t>(first - column * range / kColumns);
      symbols[i] = testing::LaplaceSymbol(indices[i], random);
    }
    length = MeasureContexts(*tables, {symbols, indices});
    words.resize(ContextScratchWords(length, kValues, kMaxRansLanesLog2));
    escaped.resize(length.escapes);
  }
  explicit ContextSample(const benchmark::State& state)
      : ContextSample(static_cast<std::size_t>(state.range(0)),
                      static_cast<std::size_t>(state.range(1))) {}
  std::span<const std::byte> Encode() {
    ContextEncoder encoder(*tables, kMaxRansLanesLog2, words, escaped);
    encoder.Encode({symbols, indices});
    return encoder.Finish();
  }
  std::unique_ptr<ContextTables> tables;
  std::vector<std::uint8_t> symbols, indices, escaped;
  std::vector<std::uint16_t> words;
  ContextLength length;
};

// Index of the first column, and how far the last is below: about 1, 2 and 8 bits a symbol.
void Contexts(benchmark::internal::Benchmark* b) {
  b->Args({24, 24})->Args({32, 24})->Args({50, 10});
}

void ContextEncoding(benchmark::State& state) {
  ContextSample sample(state);
  std::size_t bytes = 0;
  for (auto _ : state) bytes = sample.Encode().size();
  SetBytes(state, kValues);
  state.counters["bits"] = 8 * static_cast<double>(bytes) / static_cast<double>(kValues);
}
BENCHMARK(ContextEncoding)->Apply(Contexts);

void ContextDecoding(benchmark::State& state) {
  ContextSample sample(state);
  const auto bytes = sample.Encode();
  std::vector<std::uint8_t> decoded(kValues);
  const auto decode = [&] {
    ContextDecoder decoder(*sample.tables, kMaxRansLanesLog2, bytes,
                           std::as_bytes(std::span(sample.escaped)));
    return decoder.Decode({decoded, sample.indices}) && decoder.Finish();
  };
  if (!decode() || decoded != sample.symbols) return state.SkipWithError("wrong symbols");
  for (auto _ : state) benchmark::DoNotOptimize(decode());
  SetBytes(state, kValues);
}
BENCHMARK(ContextDecoding)->Apply(Contexts);

void ContextMeasuring(benchmark::State& state) {
  ContextSample sample(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(MeasureContexts(*sample.tables, {sample.symbols, sample.indices}));
  }
  SetBytes(state, kValues);
}
BENCHMARK(ContextMeasuring)->Apply(Contexts);

void FillingContextTables(benchmark::State& state) {
  const auto frequencies = testing::LaplaceTables();
  const auto tables = std::make_unique<ContextTables>();
  for (auto _ : state) benchmark::DoNotOptimize(FillContextTables(frequencies, *tables));
}
BENCHMARK(FillingContextTables);

void Lz4(benchmark::State& state) {
  const auto symbols = Symbols(static_cast<std::uint32_t>(state.range(0)));
  std::vector<char> out(static_cast<std::size_t>(LZ4_compressBound(kValues)));
  int bytes = 0;
  for (auto _ : state) {
    bytes = LZ4_compress_default(reinterpret_cast<const char*>(symbols.data()), out.data(), kValues,
                                 static_cast<int>(out.size()));
  }
  SetBytes(state, kValues);
  state.counters["ratio"] = static_cast<double>(kValues) / bytes;
}
BENCHMARK(Lz4)->Apply(Alphabets);

void Lz4Decoding(benchmark::State& state) {
  auto symbols = Symbols(static_cast<std::uint32_t>(state.range(0)));
  std::vector<char> packed(static_cast<std::size_t>(LZ4_compressBound(kValues)));
  const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(symbols.data()),
                                         packed.data(), kValues, static_cast<int>(packed.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(LZ4_decompress_safe(
        packed.data(), reinterpret_cast<char*>(symbols.data()), bytes, kValues));
  }
  SetBytes(state, kValues);
}
BENCHMARK(Lz4Decoding)->Apply(Alphabets);

void Zstd1(benchmark::State& state) {
  const auto symbols = Symbols(static_cast<std::uint32_t>(state.range(0)));
  std::vector<char> out(ZSTD_compressBound(kValues));
  std::size_t bytes = 0;
  for (auto _ : state) bytes = ZSTD_compress(out.data(), out.size(), symbols.data(), kValues, 1);
  SetBytes(state, kValues);
  state.counters["ratio"] = static_cast<double>(kValues) / static_cast<double>(bytes);
}
BENCHMARK(Zstd1)->Apply(Alphabets);

void Zstd1Decoding(benchmark::State& state) {
  auto symbols = Symbols(static_cast<std::uint32_t>(state.range(0)));
  std::vector<char> packed(ZSTD_compressBound(kValues));
  packed.resize(ZSTD_compress(packed.data(), packed.size(), symbols.data(), kValues, 1));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ZSTD_decompress(symbols.data(), kValues, packed.data(), packed.size()));
  }
  SetBytes(state, kValues);
}
BENCHMARK(Zstd1Decoding)->Apply(Alphabets);

}  // namespace
}  // namespace kvserve
