// Speed of the kernels in bytes of their larger side per second, with memcpy, LZ4 and zstd beside.
// KVSERVE_ISA pins the instruction set.
#include <benchmark/benchmark.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/affine/affine.h"
#include "kernels/bitpack/bitpack.h"
#include "kernels/convert/finite_convert.h"
#include "kernels/exponents/exponents.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/histogram/histogram.h"
#include "kernels/minmax/minmax.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/uniform_plane.h"
#include "kernels/rans/rans.h"
#include "kernels/strided_copy/strided_copy.h"

namespace kvserve {
namespace {

// One plane of a 256-token frame: 8 heads of 128.
constexpr std::size_t kColumns = 1024;
constexpr std::size_t kValues = 256 * kColumns;

std::vector<float> Floats() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::uint8_t> Symbols(std::uint32_t alphabet) {
  const auto values = Floats();
  std::vector<std::uint8_t> symbols(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    const float level = std::round((values[i] / 7.6F + 0.5F) * static_cast<float>(alphabet - 1));
    symbols[i] = static_cast<std::uint8_t>(std::clamp(level, 0.0F, alphabet - 1.0F));
  }
  return symbols;
}

void SetBytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

void Memcpy(benchmark::State& state) {
  const auto from = Floats();
  std::vector<float> to(kValues);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), 4 * kValues);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 4 * kValues);
}
BENCHMARK(Memcpy);

// Blocks of 128 tokens, keys transposed in each (Arg 1: out of them, Arg 0: into them), by element
// size; bytes of one side.
void Transposed(benchmark::State& state) {
  static constexpr std::uint32_t kTokens = 128;
  static constexpr std::uint32_t kHeads = 8;
  static constexpr std::uint32_t kDim = 128;
  const std::size_t size = static_cast<std::size_t>(state.range(0));
  const DType dtype = size == 1   ? DType::kFloat8E5M2
                      : size == 2 ? DType::kFloat16
                                  : DType::kFloat32;
  std::vector<std::byte> block(kValues * size, std::byte{1});
  std::vector<std::byte> rows(kValues * size, std::byte{2});
  const std::size_t block_bytes = std::size_t{kTokens} * kHeads * kDim * size;
  const auto copy = [&](std::byte* from, std::byte* to, bool out_of_block) {
    ConstPlaneView source{from, dtype, Device::kHost, kTokens, kHeads, kDim};
    PlaneView target{to, dtype, Device::kHost, kTokens, kHeads, kDim};
    const auto set = [](auto& plane, bool transposed) {
      plane.token_stride = transposed ? 1 : kHeads * kDim;
      plane.head_stride = transposed ? kDim * kTokens : kDim;
      plane.dim_stride = transposed ? kTokens : 1;
    };
    set(source, out_of_block);
    set(target, !out_of_block);
    CopyPlane(source, target);
  };
  for (auto _ : state) {
    for (std::size_t at = 0; at < block.size(); at += block_bytes) {
      if (state.range(1) == 1) {
        copy(block.data() + at, rows.data() + at, true);
      } else {
        copy(rows.data() + at, block.data() + at, false);
      }
    }
    benchmark::ClobberMemory();
  }
  SetBytes(state, kValues * size);
}
BENCHMARK(Transposed)->ArgsProduct({{1, 2, 4}, {0, 1}});

void Widen(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const std::vector<std::byte> elements(DTypeBytes(dtype) * kValues, std::byte{0x3C});
  std::vector<float> values(kValues);
  for (auto _ : state) benchmark::DoNotOptimize(ToFloatFinite(dtype, elements, values));
  SetBytes(state, 4 * kValues);
}
BENCHMARK(Widen)->DenseRange(1, 3);

void Narrow(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const auto values = Floats();
  std::vector<std::byte> elements(DTypeBytes(dtype) * kValues);
  for (auto _ : state) benchmark::DoNotOptimize(FromFloatFinite(dtype, values, elements));
  SetBytes(state, 4 * kValues);
}
BENCHMARK(Narrow)->DenseRange(1, 3);

void Hadamard(benchmark::State& state) {
  const auto dim = static_cast<std::uint32_t>(state.range(0));
  auto values = Floats();
  std::vector<std::uint32_t> signs(kColumns / dim * dim);
  HadamardSigns(1, 0, PlaneKind::kKey, dim, signs);
  const auto rows = std::span(values).first(kValues / signs.size() * signs.size());
  for (auto _ : state) {
    HadamardForward(rows, signs, dim);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 4 * rows.size());
}
BENCHMARK(Hadamard)->Arg(64)->Arg(80)->Arg(128)->Arg(256)->Arg(512)->Arg(1024);

void Center(benchmark::State& state) {
  auto values = Floats();
  const std::vector<float> mean(kColumns, 0.1F), factor(kColumns, 1.0F);
  for (auto _ : state) {
    CenterColumns(values, mean, factor);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 4 * kValues);
}
BENCHMARK(Center);

void ColumnSums(benchmark::State& state) {
  const auto values = Floats();
  std::vector<double> sums(kColumns), squares(kColumns);
  for (auto _ : state) {
    AddColumnSums(values, sums, squares);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 4 * kValues);
}
BENCHMARK(ColumnSums);

void SplitExponents(benchmark::State& state) {
  const auto values = Floats();
  std::vector<std::byte> elements(2 * kValues), rest(kValues);
  std::vector<std::uint8_t> exponents(kValues);
  benchmark::DoNotOptimize(FromFloatFinite(DType::kBFloat16, values, elements));
  for (auto _ : state) {
    SplitExponents16(elements, exponents, rest);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 2 * kValues);
}
BENCHMARK(SplitExponents);

void JoinExponents(benchmark::State& state) {
  std::vector<std::byte> elements(2 * kValues), rest(kValues);
  const std::vector<std::uint8_t> exponents(kValues, 120), levels(kColumns, 3);
  for (auto _ : state) {
    JoinExponents16(exponents, levels, rest, elements);
    benchmark::ClobberMemory();
  }
  SetBytes(state, 2 * kValues);
}
BENCHMARK(JoinExponents);

void ByteLevels(benchmark::State& state) {
  std::vector<std::uint8_t> exponents(kValues, 120);
  const std::vector<std::uint8_t> levels(kColumns, 3);
  std::vector<std::uint32_t> sums(kColumns);
  for (auto _ : state) {
    AddByteColumns(exponents, sums);
    SubtractByteLevels(exponents, levels);
    benchmark::ClobberMemory();
  }
  SetBytes(state, kValues);
}
BENCHMARK(ByteLevels);

// Tiles that stay in L1 or L2, as a pipeline that works row by row sees them.
constexpr std::size_t kTileColumns = 192;

struct Tile {
  explicit Tile(std::size_t rows) : values(Floats()), symbols(rows * kTileColumns) {
    values.resize(symbols.size());
    low.assign(kTileColumns, -3.0F);
    high.assign(kTileColumns, 3.0F);
    step.assign(kTileColumns, 0.4F);
    inverse.assign(kTileColumns, 2.5F);
    grids.zero = low;
    grids.step = step;
    grids.inverse = inverse;
    grids.top = 15;
    QuantizeColumns(values, grids, symbols);
  }
  [[nodiscard]] std::size_t bytes() const { return 4 * values.size(); }
  std::vector<float> values, low, high, step, inverse;
  std::vector<std::uint8_t> symbols;
  Grids grids;
};

void TileMemcpy(benchmark::State& state) {
  const Tile tile(static_cast<std::size_t>(state.range(0)));
  std::vector<float> to(tile.values.size());
  for (auto _ : state) {
    std::memcpy(to.data(), tile.values.data(), tile.bytes());
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileMemcpy)->Arg(16)->Arg(256);

void TileMinMaxColumns(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    WidenMinMaxColumns(tile.values, tile.low, tile.high);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileMinMaxColumns)->Arg(16)->Arg(256);

void TileMinMaxTokens(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    MinMaxRuns(tile.values, {kTileColumns, kTileColumns}, tile.low, tile.high);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileMinMaxTokens)->Arg(16)->Arg(192);

void TileQuantizeColumns(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    QuantizeColumns(tile.values, tile.grids, tile.symbols);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileQuantizeColumns)->Arg(16)->Arg(256);

void TileQuantizeTokens(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    QuantizeRuns(tile.values, {kTileColumns, kTileColumns}, tile.grids, tile.symbols);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileQuantizeTokens)->Arg(16)->Arg(192);

// The second argument: points of their own, as conditional means give.
void TileDequantizeColumns(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  const std::vector<float> points(256, 1.25F);
  if (state.range(1) != 0) tile.grids.points = points;
  for (auto _ : state) {
    DequantizeColumns(tile.symbols, tile.grids, tile.values);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileDequantizeColumns)->Args({16, 0})->Args({256, 0})->Args({16, 1});

void TileDequantizeTokens(benchmark::State& state) {
  Tile tile(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    DequantizeRuns(tile.symbols, {kTileColumns, kTileColumns}, tile.grids, tile.values);
    benchmark::ClobberMemory();
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(TileDequantizeTokens)->Arg(16)->Arg(192);

// Writing and reading the grids of a plane, in bytes of a plane of 256 rows.
void PlaneGrids(benchmark::State& state) {
  const bool read = state.range(0) != 0;
  const UniformOptions options;
  const Tile tile(256);
  Arena arena;
  std::vector<std::byte> side;
  const auto write = [&] {
    side.clear();
    UniformPlane plane(options, 256, 3, kTileColumns / 3, arena);
    plane.BeginEncoding();
    plane.Observe(0, std::span(tile.values).first(kTileColumns));
    ByteWriter writer(side);
    plane.Finish(writer);
  };
  write();
  for (auto _ : state) {
    arena.Reset();
    if (!read) {
      write();
      continue;
    }
    UniformPlane plane(options, 256, 3, kTileColumns / 3, arena);
    ByteReader reader(side);
    benchmark::DoNotOptimize(plane.Open(reader));
  }
  SetBytes(state, tile.bytes());
}
BENCHMARK(PlaneGrids)->Arg(0)->Arg(1);

void Pack(benchmark::State& state) {
  const auto alphabet = static_cast<std::uint32_t>(state.range(0));
  const auto symbols = Symbols(alphabet);
  std::vector<std::byte> packed(PackedBytes(kValues, alphabet));
  for (auto _ : state) {
    PackSymbols(symbols, alphabet, packed);
    benchmark::ClobberMemory();
  }
  SetBytes(state, kValues);
}
BENCHMARK(Pack)->Arg(3)->Arg(8)->Arg(16);

void Unpack(benchmark::State& state) {
  const auto alphabet = static_cast<std::uint32_t>(state.range(0));
  auto symbols = Symbols(alphabet);
  std::vector<std::byte> packed(PackedBytes(kValues, alphabet));
  PackSymbols(symbols, alphabet, packed);
  for (auto _ : state) benchmark::DoNotOptimize(UnpackSymbols(packed, alphabet, symbols));
  SetBytes(state, kValues);
}
BENCHMARK(Unpack)->Arg(3)->Arg(8)->Arg(16);

void CopySymbols(benchmark::State& state) {
  const auto from = Symbols(16);
  std::vector<std::uint8_t> to(kValues);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kValues);
    benchmark::ClobberMemory();
  }
  SetBytes(state, kValues);
}
BENCHMARK(CopySymbols);

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

BENCHMARK_MAIN();
