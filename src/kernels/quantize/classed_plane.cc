// Encoding: the kept rows give the ranges; then run by run the values are gathered, quantized on
// the run's grids, and, from a sample of rows, its conditional means found.
#include "kernels/quantize/classed_plane.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "kernels/quantize/grid_code.h"
#include "kernels/quantize/level_means.h"
#include "kernels/quantize/range_layout.h"

namespace kvserve {
namespace {

// Rows in which means are counted; see uniform_plane.cc.
constexpr std::size_t kSampleValues = 4096;
constexpr std::size_t kSampleRows = 8;

std::size_t SampleStride(std::size_t rows, std::size_t columns) {
  const std::size_t wanted = std::max(kSampleRows, (kSampleValues + columns - 1) / columns);
  return std::max<std::size_t>(1, rows / wanted);
}

UniformOptions WithoutMeans(UniformOptions options) {
  options.means = false;
  return options;
}

}  // namespace

// What the kernels need of a run.
struct ClassedPlane::RunPlane {
  std::size_t rows = 0;
  std::size_t columns = 0;
  RangeLayout layout;
  Grids grids;
};

ClassedPlane::ClassedPlane(const UniformOptions& options, std::span<const std::uint32_t> kept,
                           std::size_t heads, std::size_t dim, Arena& arena)
    : options_(options),
      kept_(kept),
      heads_(heads),
      dim_(dim),
      arena_(arena),
      ranges_(WithoutMeans(options)),
      uniform_(ranges_, kept.size(), heads, dim, arena) {}

// Neighbours at once.
void ClassedPlane::ObserveKept(std::span<const float> values) {
  const std::size_t columns = heads_ * dim_;
  for (std::size_t i = 0; i < kept_.size();) {
    std::size_t end = i + 1;
    while (end < kept_.size() && kept_[end] == kept_[end - 1] + 1) ++end;
    uniform_.Observe(i, values.subspan(kept_[i] * columns, (end - i) * columns));
    i = end;
  }
}

// Of the plane, for range `index` of a run.
std::size_t ClassedPlane::RangeOf(const ClassedRun& run, std::size_t index) const {
  switch (options_.axis) {
    case RangeAxis::kChannel: return run.heads[index / dim_] * dim_ + index % dim_;
    case RangeAxis::kToken: return run.rows[index];
    default: return 0;
  }
}

// Grids of another number of levels over the same ranges. A range may end a quarter of a nominal
// step outside of its grid, which only finer grids have to reach.
Grids ClassedPlane::GridsOf(const ClassedRun& run, std::size_t ranges) const {
  const Grids& nominal = uniform_.grids();
  const bool finer = run.levels > options_.levels;
  const auto spanned = static_cast<float>(options_.levels - 1) + (finer ? 0.5F : 0.0F);
  const float ratio = spanned / static_cast<float>(run.levels - 1);
  const auto zero = arena_.Take<float>(ranges);
  const auto step = arena_.Take<float>(ranges);
  const auto inverse = arena_.Take<float>(ranges);
  for (std::size_t i = 0; i < ranges; ++i) {
    const std::size_t from = RangeOf(run, i);
    const float whole = nominal.step[from];
    zero[i] = finer ? nominal.zero[from] - 0.25F * whole : nominal.zero[from];
    step[i] = whole * ratio;
    inverse[i] = Grid{zero[i], step[i]}.inverse();
  }
  Grids grids;
  grids.zero = zero;
  grids.step = step;
  grids.inverse = inverse;
  grids.top = run.levels - 1;
  return grids;
}

ClassedPlane::RunPlane ClassedPlane::Open(const ClassedRun& run) const {
  RunPlane plane;
  plane.rows = run.rows.size();
  plane.columns = run.heads.size() * dim_;
  plane.layout = RangeLayout(options_.axis, dim_, plane.rows, run.heads.size(), dim_);
  plane.grids = GridsOf(run, plane.layout.count());
  return plane;
}

// visit(first value within the plane, first within the run) of each run of neighbouring heads of
// a row, and how many values they have.
template <typename Visit>
void ClassedPlane::ForEachHead(const ClassedRun& run, const Visit& visit) const {
  std::size_t at = 0;
  for (const std::uint32_t index : run.rows) {
    const std::size_t row = kept_[index] * heads_;
    for (std::size_t h = 0; h < run.heads.size();) {
      std::size_t end = h + 1;
      while (end < run.heads.size() && run.heads[end] == run.heads[end - 1] + 1) ++end;
      const std::size_t count = (end - h) * dim_;
      visit((row + run.heads[h]) * dim_, at, count);
      at += count;
      h = end;
    }
  }
}

void ClassedPlane::WriteMeans(const RunPlane& plane, std::span<const float> values,
                              std::span<const std::uint8_t> symbols, ByteWriter& side) const {
  LevelMeans means(plane.grids.top + 1);
  const std::size_t columns = plane.columns;
  for (std::size_t row = 0; row < plane.rows; row += SampleStride(plane.rows, columns)) {
    const std::size_t first = row * columns;
    plane.layout.ForEachValue(row, columns, [&](std::size_t i, std::size_t range) {
      const float position =
          (values[first + i] - plane.grids.zero[range]) * plane.grids.inverse[range];
      const float offset = position - static_cast<float>(symbols[first + i]);
      if (std::fabs(offset) <= plane.grids.reach) means.Add(symbols[first + i], offset);
    });
  }
  means.Write(values.size(), side);
}

void ClassedPlane::Encode(std::span<const float> values, std::span<const ClassedRun> runs,
                          ByteWriter& side, std::span<std::uint8_t> symbols) {
  uniform_.BeginEncoding();
  ObserveKept(values);
  uniform_.Finish(side);
  const float factor = std::ldexp(1.0F, uniform_.shift());
  for (const ClassedRun& run : runs) {
    const RunPlane plane = Open(run);
    const auto gathered = arena_.Take<float>(run.values(dim_));
    ForEachHead(run, [&](std::size_t from, std::size_t to, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) gathered[to + i] = values[from + i] * factor;
    });
    const auto coded = symbols.first(gathered.size());
    symbols = symbols.subspan(gathered.size());
    plane.layout.Quantize(0, gathered, plane.grids, coded);
    if (options_.means) WriteMeans(plane, gathered, coded, side);
  }
}

Status ClassedPlane::Decode(ByteReader& side, std::span<const ClassedRun> runs,
                            std::span<const std::uint8_t> symbols, std::span<float> values) {
  KVSERVE_TRY(uniform_.Open(side));
  for (const ClassedRun& run : runs) {
    RunPlane plane = Open(run);
    if (options_.means) {
      KVSERVE_ASSIGN(plane.grids.points, LevelMeans::Read(run.levels, arena_, side));
    }
    const auto decoded = arena_.Take<float>(run.values(dim_));
    plane.layout.Dequantize(0, symbols.first(decoded.size()), plane.grids, decoded);
    symbols = symbols.subspan(decoded.size());
    if (uniform_.shift() != 0) Unshift(uniform_.shift(), decoded);
    ForEachHead(run, [&](std::size_t to, std::size_t from, std::size_t count) {
      std::copy_n(&decoded[from], count, &values[to]);
    });
  }
  return {};
}

}  // namespace kvserve
