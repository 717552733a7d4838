// The bodies of the handles, and the way from Result to status. Public API alone lies beneath.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kvserve/calibration.h"
#include "kvserve/codec.h"
#include "kvserve/kvserve.h"
#include "kvserve/paged.h"
#include "kvserve/view.h"

// NOLINTBEGIN(readability-identifier-naming)
struct kvserve_geometry {
  kvserve::KvGeometry geometry;
};
struct kvserve_profile {
  kvserve::Profile profile;
};
struct kvserve_calibration {
  std::shared_ptr<const kvserve::CalibrationArtefact> artefact;
};
struct kvserve_buffer {
  std::vector<std::byte> bytes;
};
struct kvserve_encoder {
  kvserve::FrameEncoder encoder;
};
struct kvserve_request {
  kvserve::RequestMemory memory;
};
struct kvserve_decoder {
  kvserve::FrameDecoder decoder;
};
struct kvserve_chunk {
  kvserve::KvBuffer buffer;
  kvserve_geometry geometry;  // of the buffer, as a handle
  std::vector<kvserve_layer_view> layers;
};
struct kvserve_paged_cache {
  kvserve::PagedCache cache;
};
// NOLINTEND(readability-identifier-naming)

namespace kvserve::capi {

// Keeps the message for kvserve_last_error.
kvserve_status Fail(ErrorCode code, const char* message) noexcept;
inline kvserve_status Fail(const Error& error) noexcept {
  return Fail(error.code, error.message.c_str());
}

// Runs `body`, a function of nothing that returns Status; nothing is thrown into C.
template <typename Body>
kvserve_status Run(const Body& body) noexcept {
  try {
    const Status status = body();
    return status ? KVSERVE_OK : Fail(status.error());
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInternal, error.what());
  } catch (...) {
    return Fail(ErrorCode::kInternal, "an unknown exception");
  }
}

// kInvalidArgument unless every pointer is set.
template <typename... Pointers>
Status Need(const char* what, const Pointers*... pointers) {
  if (((pointers != nullptr) && ...)) return {};
  return MakeError(ErrorCode::kInvalidArgument, std::string("NULL where there must be ") + what);
}

template <typename Struct>
Status HasRoom(const Struct& given, std::size_t first_bytes) {
  if (given.struct_size >= first_bytes) return {};
  return MakeError(ErrorCode::kInvalidArgument, "struct_size " + std::to_string(given.struct_size) +
                                                    " is below " + std::to_string(first_bytes));
}

// A copy of a struct that grows: fields that the caller does not know are zero. `first_bytes` is
// the size of its first version. NULL: all zero.
template <typename Struct>
Result<Struct> Read(const Struct* given, std::size_t first_bytes) {
  Struct copy{};
  if (given == nullptr) return copy;
  if (auto status = HasRoom(*given, first_bytes); !status) return tl::unexpected(status.error());
  std::memcpy(&copy, given, std::min(given->struct_size, sizeof(Struct)));
  return copy;
}

// The other way: what the caller has room for, at least the first version.
template <typename Struct>
Status Write(Struct value, Struct* out, std::size_t first_bytes) {
  if (auto status = HasRoom(*out, first_bytes); !status) return status;
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(value.struct_size, sizeof(Struct)));
  return {};
}

// The C++ view of the caller's planes; CheckView is left to who uses it.
Result<KvView> ToView(const kvserve_view* view);

// Copies of the tables.
Result<std::vector<BlockTable>> ToTables(const kvserve_block_table* tables, std::size_t count);

Fingerprint ToFingerprint(const kvserve_fingerprint& fingerprint);
LayerGeometry ToLayer(const kvserve_layer& layer);
kvserve_layer FromLayer(const LayerGeometry& layer);
kvserve_layer_view FromLayerView(const LayerView& layer);

}  // namespace kvserve::capi
