#include "kernels/quantize/quantize.h"

#include "kernels/isa/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvserve {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U8 = hn::Rebind<std::uint8_t, F32>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;

HWY_INLINE void StoreSymbols(VF value, VF zero, VF inverse, VF top, std::uint8_t* out) {
  const VF position = hn::Mul(hn::Sub(value, zero), inverse);
  const VF clamped = hn::Max(hn::Zero(F32()), hn::Min(position, top));
  hn::StoreU(hn::DemoteTo(U8(), hn::NearestInt(clamped)), U8(), out);
}

HWY_INLINE VF Reconstruct(const std::uint8_t* symbols, VF zero, VF step) {
  const auto q = hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(U8(), symbols)));
  return hn::Add(zero, hn::Mul(q, step));
}

}  // namespace

// Each handles the leading whole vectors (of every row) and returns how many; the oracle the rest.
std::size_t QuantizeSpanBulk(const float* values, std::size_t count, float zero, float inverse,
                             float top, std::uint8_t* symbols) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  const VF vector_zero = hn::Set(df, zero);
  const VF vector_inverse = hn::Set(df, inverse);
  const VF vector_top = hn::Set(df, top);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreSymbols(hn::LoadU(df, values + i), vector_zero, vector_inverse, vector_top, symbols + i);
  }
  return i;
}

std::size_t DequantizeSpanBulk(const std::uint8_t* symbols, std::size_t count, float zero,
                               float step, float* values) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  const VF vector_zero = hn::Set(df, zero);
  const VF vector_step = hn::Set(df, step);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Reconstruct(symbols + i, vector_zero, vector_step), df, values + i);
  }
  return i;
}

std::size_t QuantizeColumnsBulk(const float* values, const float* zero, const float* inverse,
                                std::size_t columns, float top, std::uint8_t* symbols) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  const VF vector_top = hn::Set(df, top);
  std::size_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    StoreSymbols(hn::LoadU(df, values + c), hn::LoadU(df, zero + c), hn::LoadU(df, inverse + c),
                 vector_top, symbols + c);
  }
  return c;
}

std::size_t DequantizeColumnsBulk(const std::uint8_t* symbols, const float* zero, const float* step,
                                  std::size_t columns, float* values) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  std::size_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    hn::StoreU(Reconstruct(symbols + c, hn::LoadU(df, zero + c), hn::LoadU(df, step + c)), df,
               values + c);
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvserve
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvserve {

HWY_EXPORT(QuantizeSpanBulk);
HWY_EXPORT(DequantizeSpanBulk);
HWY_EXPORT(QuantizeColumnsBulk);
HWY_EXPORT(DequantizeColumnsBulk);

void QuantizeSpan(std::span<const float> values, float zero, float inverse, std::uint32_t top,
                  std::span<std::uint8_t> symbols) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(QuantizeSpanBulk)(values.data(), values.size(), zero, inverse,
                                                  static_cast<float>(top), symbols.data());
  }
  QuantizeSpanRef(values.subspan(done), zero, inverse, top, symbols.subspan(done));
}

void DequantizeSpan(std::span<const std::uint8_t> symbols, float zero, float step,
                    std::span<float> values) {
  std::size_t done = 0;
  if (!UseScalarKernels()) {
    done = HWY_DYNAMIC_DISPATCH(DequantizeSpanBulk)(symbols.data(), symbols.size(), zero, step,
                                                    values.data());
  }
  DequantizeSpanRef(symbols.subspan(done), zero, step, values.subspan(done));
}

void QuantizeColumns(std::span<const float> values, std::span<const float> zero,
                     std::span<const float> inverse, std::uint32_t top,
                     std::span<std::uint8_t> symbols) {
  if (UseScalarKernels()) return QuantizeColumnsRef(values, zero, inverse, top, symbols);
  const std::size_t columns = zero.size();
  for (std::size_t at = 0; at < values.size(); at += columns) {
    const std::size_t done = HWY_DYNAMIC_DISPATCH(QuantizeColumnsBulk)(
        &values[at], zero.data(), inverse.data(), columns, static_cast<float>(top), &symbols[at]);
    const std::size_t rest = columns - done;
    QuantizeColumnsRef(values.subspan(at + done, rest), zero.last(rest), inverse.last(rest), top,
                       symbols.subspan(at + done, rest));
  }
}

void DequantizeColumns(std::span<const std::uint8_t> symbols, std::span<const float> zero,
                       std::span<const float> step, std::span<float> values) {
  if (UseScalarKernels()) return DequantizeColumnsRef(symbols, zero, step, values);
  const std::size_t columns = zero.size();
  for (std::size_t at = 0; at < symbols.size(); at += columns) {
    const std::size_t done = HWY_DYNAMIC_DISPATCH(DequantizeColumnsBulk)(
        &symbols[at], zero.data(), step.data(), columns, &values[at]);
    const std::size_t rest = columns - done;
    DequantizeColumnsRef(symbols.subspan(at + done, rest), zero.last(rest), step.last(rest),
                         values.subspan(at + done, rest));
  }
}

}  // namespace kvserve
#endif
