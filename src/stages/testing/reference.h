// The public encoder's and decoder's work by the reference executor, for comparison.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvserve/codec.h"
#include "pipeline/reference_executor.h"

namespace kvserve::testing {

// The sections of EncodeSample's frame; chains that need an artefact or queries get the
// same ones.
[[nodiscard]] Status EncodeByReference(const ConstKvView& view, const Profile& profile,
                                       CodedSections& out);

// As DecodeSample of a frame whose raw size is at most `max_raw_bytes`.
[[nodiscard]] Status DecodeByReference(std::span<const std::byte> frame, KvBuffer& out,
                                       std::uint64_t max_raw_bytes = UINT64_MAX);

// Whether the frame has these sections; one that it lacks is empty.
[[nodiscard]] bool HasSections(std::span<const std::byte> frame, const CodedSections& sections);

}  // namespace kvserve::testing
