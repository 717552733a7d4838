#include "pipeline/executor_faults.h"

#include <string>
#include <utility>

#include "pipeline/plane_floats.h"
#include "pipeline/plane_order.h"

namespace kvserve {
namespace {

std::string Where(const PlaneContext& plane) {
  return PlaneName(plane.layer, plane.kind);
}

std::string WhereIn(const PlaneContext& plane, const ConstRealPlane& values, std::size_t at) {
  const std::size_t column = at % values.columns();
  return Where(plane) + " token " + std::to_string(plane.tokens.begin + at / values.columns()) +
         " head " + std::to_string(column / values.dim) + " channel " +
         std::to_string(column % values.dim);
}

}  // namespace

Status Named(Status status, const PlaneContext& plane, const StageInfo& info) {
  if (status) return status;
  return MakeError(status.error().code,
                   Where(plane) + ", " + std::string(info.name) + ": " + status.error().message);
}

Status Named(Status status, const StageInfo& info) {
  if (status) return status;
  return MakeError(status.error().code, std::string(info.name) + ": " + status.error().message);
}

Status CheckFinite(const PlaneContext& plane, ConstRealPlane values, std::string_view source,
                   std::string_view quantizer) {
  const auto at = FindNonFinite(values.span());
  if (!at) return {};
  return MakeError(ErrorCode::kBadInput, WhereIn(plane, values, *at) + ": " + std::string(source) +
                                             " holds a value that is not finite, and '" +
                                             std::string(quantizer) +
                                             "' needs finite ones; 'lossless' and 'none' take any");
}

Status CheckBounded(const PlaneContext& plane, ConstRealPlane values, std::string_view transform) {
  const auto at = FindUnbounded(values.span());
  if (!at) return {};
  return MakeError(ErrorCode::kBadInput,
                   WhereIn(plane, values, *at) + ": '" + std::string(transform) +
                       "' gives a value that is not finite or above 2^100, which may not come "
                       "back; chains without transforms take larger ones");
}

Status CheckSectionRead(const ByteReader& reader, std::string_view section) {
  if (reader.remaining() == 0) return {};
  return MakeError(ErrorCode::kCorruptData, "section " + std::string(section) + ": " +
                                                std::to_string(reader.remaining()) +
                                                " bytes are left over");
}

Status CheckSideRead(const ByteReader& reader, const PlaneContext& plane) {
  if (reader.remaining() == 0) return {};
  return MakeError(
      ErrorCode::kCorruptData,
      Where(plane) + ": " + std::to_string(reader.remaining()) + " side bytes are left over");
}

Status NotNumbers(const PlaneContext& plane) {
  return MakeError(ErrorCode::kCorruptData,
                   Where(plane) + ": decodes to values that are not numbers");
}

}  // namespace kvserve
