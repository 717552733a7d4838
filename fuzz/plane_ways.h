// The ways in which a stage can work on one plane: they must give the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plane_case.h"

namespace kvserve::fuzzing {

using Floats = std::optional<std::vector<float>>;  // nothing: refused, or side bytes left over

// Both refused or equal bit for bit; any NaN is like any other.
void CheckSame(const Floats& a, const Floats& b, const char* what);
void CheckSame(const std::optional<std::vector<std::byte>>& a,
               const std::optional<std::vector<std::byte>>& b, const char* what);

struct CodedPlane {
  std::vector<std::uint8_t> symbols;
  std::vector<std::byte> side;
  friend bool operator==(const CodedPlane&, const CodedPlane&) = default;
};

// A quantizer of real coefficients: over the whole plane, and by rows if it can.
class RealWays {
 public:
  RealWays(const Quantizer& quantizer, const PlaneCase& plane, const SymbolPlane& planned)
      : quantizer_(quantizer), plane_(plane), planned_(planned) {}

  [[nodiscard]] Floats DecodeWhole() const;
  [[nodiscard]] Floats DecodeAgain() const;
  [[nodiscard]] std::optional<CodedPlane> EncodeWhole() const;
  [[nodiscard]] std::optional<CodedPlane> EncodeAgain() const;
  // What was encoded decodes to finite values and uses up its side bytes.
  void CheckDecodes(const CodedPlane& coded) const;

 private:
  [[nodiscard]] Floats Dequantize(CodedPlane coded) const;

  const Quantizer& quantizer_;
  const PlaneCase& plane_;
  const SymbolPlane& planned_;
};

// A quantizer of the cache's own elements: contiguous, and with strides.
class NativeWays {
 public:
  NativeWays(const Quantizer& quantizer, const PlaneCase& plane, const SymbolPlane& planned,
             bool lossless)
      : quantizer_(quantizer), plane_(plane), planned_(planned), lossless_(lossless) {}

  using Elements = std::optional<std::vector<std::byte>>;  // contiguous
  [[nodiscard]] Elements DecodeWhole() const;
  [[nodiscard]] Elements DecodeAgain() const;
  [[nodiscard]] std::optional<CodedPlane> EncodeWhole() const;
  [[nodiscard]] std::optional<CodedPlane> EncodeAgain() const;
  void CheckDecodes(const CodedPlane& coded) const;

 private:
  [[nodiscard]] Elements Dequantize(CodedPlane coded, bool transposed) const;
  [[nodiscard]] std::optional<CodedPlane> Quantize(bool transposed) const;

  const Quantizer& quantizer_;
  const PlaneCase& plane_;
  const SymbolPlane& planned_;
  bool lossless_;
};

// A transform: over the whole plane, and by rows if it can.
class TransformWays {
 public:
  TransformWays(const Transform& transform, const PlaneCase& plane)
      : transform_(transform), plane_(plane) {}

  struct Forwarded {
    Floats values;
    std::vector<std::byte> side;
  };
  [[nodiscard]] Floats InverseWhole() const;
  [[nodiscard]] Floats InverseAgain() const;
  [[nodiscard]] Forwarded ForwardWhole() const;
  [[nodiscard]] Forwarded ForwardAgain() const;
  // What went forward comes back, and its side bytes are used up.
  void CheckInverts(const Forwarded& forwarded) const;

 private:
  [[nodiscard]] Floats ByRows(bool forward) const;
  [[nodiscard]] Floats Inverse(std::vector<float> values, std::span<const std::byte> side) const;

  const Transform& transform_;
  const PlaneCase& plane_;
};

}  // namespace kvserve::fuzzing
