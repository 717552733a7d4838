// What the parts of the extension module share: errors, plane tuples, fingerprints.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/codec.h"
#include "kvserve/view.h"

namespace kvserve::python {

namespace nb = nanobind;

// An Error on its way to Python, where it becomes the exception class of its code.
struct Raised {
  Error error;
};

template <typename T>
T Take(Result<T> result) {
  if (!result) throw Raised{std::move(result).error()};
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}
[[noreturn]] inline void Raise(ErrorCode code, std::string message) {
  throw Raised{{code, std::move(message)}};
}

// A plane as Python hands it over: address of element 0, shape [token, head, dim], strides in
// elements.
using PlaneTuple = std::tuple<std::uintptr_t, std::uint32_t, std::uint32_t, std::uint32_t,
                              std::int64_t, std::int64_t, std::int64_t>;
// Layer index, token range, K, V.
using LayerTuple = std::tuple<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>, PlaneTuple,
                              std::optional<PlaneTuple>>;
using RangeTuple = std::pair<std::uint32_t, std::uint32_t>;

// A chunk of KV in memory of somebody else's, who is kept alive.
struct BorrowedKv {
  KvGeometry geometry;
  KvView view;
  bool writable = false;
  nb::object owner;
};

// A decoded or gathered chunk in memory of its own.
struct Chunk {
  KvBuffer buffer;
};

struct Frame {
  std::vector<std::byte> bytes;
  std::uint64_t raw_bytes = 0;
};

using Calibration = std::shared_ptr<const CalibrationArtefact>;
struct CalibrationHandle {
  Calibration artefact;
};
inline Calibration ArtefactOf(const CalibrationHandle* handle) {
  return handle == nullptr ? nullptr : handle->artefact;
}

// kInvalidArgument for an address that is not aligned to an element of `dtype`.
std::byte* Address(std::uintptr_t address, DType dtype);
Fingerprint ToFingerprint(const std::optional<nb::bytes>& bytes);  // 16 bytes or none
nb::bytes ToBytes(const Fingerprint& fingerprint);
inline TokenRange ToRange(RangeTuple range) {
  return {range.first, range.second};
}
inline RangeTuple ToTuple(TokenRange range) {
  return {range.begin, range.end};
}

void BindErrors(nb::module_& module);
void BindGeometry(nb::module_& module);
void BindProfiles(nb::module_& module);
void BindChunks(nb::module_& module);
void BindCodec(nb::module_& module);
void BindTransfer(nb::module_& module);

}  // namespace kvserve::python
