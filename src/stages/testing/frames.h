// Frames of any profile for tests: one that needs a calibration artefact gets a made-up one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvserve/codec.h"

namespace kvserve::testing {

// An encoder, with SampleArtefact of the geometry if it needs one.
[[nodiscard]] Result<FrameEncoder> MakeSampleEncoder(const Profile& profile,
                                                     const KvGeometry& geometry,
                                                     std::uint32_t threads = 1);

// As EncodeFrame and DecodeFrame, on this many threads, with the queries of QuerySample.
[[nodiscard]] Status EncodeSample(const ConstKvView& view, const Profile& profile,
                                  std::vector<std::byte>& out, std::uint32_t threads = 1);
[[nodiscard]] Result<std::size_t> DecodeSample(std::span<const std::byte> frame, KvBuffer& out,
                                               std::uint32_t threads = 1);

}  // namespace kvserve::testing
