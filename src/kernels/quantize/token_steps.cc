#include "kernels/quantize/token_steps.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/token_steps.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::Rebind<std::int32_t, F32>;
using U8 = hn::Rebind<std::uint8_t, F32>;

}  // namespace

// Both do the leading vectors of one row and return how many values that were.
std::size_t QuantizeVectors(float* values, std::size_t count, float gain, float step,
                            std::uint8_t* symbols, bool& beyond) {
  const F32 d;
  const auto limit = hn::Set(d, static_cast<float>(kLargestStepCode + 1));
  const auto least = hn::Neg(limit);
  const auto largest = hn::Set(I32(), kLargestStepCode);
  const auto smallest = hn::Neg(largest);
  auto outside = hn::Zero(I32());
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, values + i);
    auto scaled = hn::Mul(value, hn::Set(d, gain));
    scaled = hn::IfThenElse(hn::Lt(scaled, limit), scaled, limit);
    scaled = hn::IfThenElse(hn::Gt(scaled, least), scaled, least);
    const auto code = hn::NearestInt(scaled);
    const auto inside = hn::Min(hn::Max(code, smallest), largest);
    const auto restored = hn::Mul(hn::ConvertTo(d, inside), hn::Set(d, step));
    const auto same = hn::RebindMask(d, hn::Eq(code, inside));
    outside = hn::Or(outside, hn::Xor(code, inside));
    hn::StoreU(hn::IfThenElse(same, restored, value), d, values + i);
    hn::StoreU(hn::DemoteTo(U8(), hn::Add(inside, largest)), U8(), symbols + i);
  }
  beyond = beyond || !hn::AllTrue(I32(), hn::Eq(outside, hn::Zero(I32())));
  return i;
}

std::size_t DequantizeVectors(const std::uint8_t* symbols, std::size_t count, float step,
                              float* values) {
  const F32 d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto symbol = hn::PromoteTo(I32(), hn::LoadU(U8(), symbols + i));
    const auto code = hn::Sub(symbol, hn::Set(I32(), kLargestStepCode));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, code), hn::Set(d, step)), d, values + i);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {
namespace {

// A row's class as a list for the oracles; empty for the nominal one.
std::span<const std::uint8_t> One(std::span<const std::uint8_t> classes, std::size_t row) {
  return classes.empty() ? classes : classes.subspan(row, 1);
}

std::uint8_t ClassOf(std::span<const std::uint8_t> classes, std::size_t row) {
  return classes.empty() ? kUnitStepClass : classes[row];
}

}  // namespace

HWY_EXPORT(QuantizeVectors);
HWY_EXPORT(DequantizeVectors);

bool QuantizeTokenSteps(std::span<float> values, std::size_t columns,
                        std::span<const std::uint8_t> classes, std::uint8_t* symbols) {
  if (UseScalarKernels()) return QuantizeTokenStepsRef(values, columns, classes, symbols);
  bool beyond = false;
  for (std::size_t row = 0; row * columns < values.size(); ++row, symbols += columns) {
    const auto part = values.subspan(row * columns, columns);
    const std::uint8_t token_class = ClassOf(classes, row);
    std::size_t done = 0;
    if (token_class < kStepClasses) {
      done = HWY_DYNAMIC_DISPATCH(QuantizeVectors)(part.data(), columns, TokenGain(token_class),
                                                   TokenStep(token_class), symbols, beyond);
    }
    const bool rest =
        QuantizeTokenStepsRef(part.subspan(done), columns, One(classes, row), symbols + done);
    beyond = beyond || rest;
  }
  return beyond;
}

void DequantizeTokenSteps(std::span<const std::uint8_t> symbols, std::size_t columns,
                          std::span<const std::uint8_t> classes, float* values) {
  if (UseScalarKernels()) return DequantizeTokenStepsRef(symbols, columns, classes, values);
  for (std::size_t row = 0; row * columns < symbols.size(); ++row, values += columns) {
    const auto part = symbols.subspan(row * columns, columns);
    const std::uint8_t token_class = ClassOf(classes, row);
    std::size_t done = 0;
    if (token_class < kStepClasses) {
      done = HWY_DYNAMIC_DISPATCH(DequantizeVectors)(part.data(), columns, TokenStep(token_class),
                                                     values);
    }
    DequantizeTokenStepsRef(part.subspan(done), columns, One(classes, row), values + done);
  }
}

}  // namespace kvserve
#endif
