// Speed of the kernels in bytes of their larger side per second, with memcpy beside.
// KVSERVE_ISA pins the instruction set.
#include <benchmark/benchmark.h>

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
#include "kernels/minmax/minmax.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/uniform_plane.h"
#include "kernels/strided_copy/strided_copy.h"
#include "kernels/testing/bench_plane.h"

namespace kvserve {
namespace {

using testing::Floats;
using testing::kColumns;
using testing::kValues;
using testing::SetBytes;
using testing::Symbols;

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

}  // namespace
}  // namespace kvserve

BENCHMARK_MAIN();
