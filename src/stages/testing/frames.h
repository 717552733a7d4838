// Frames of any profile for tests: one that needs a calibration artefact gets a made-up one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvserve/codec.h"
#include "library/calibration_artefact.h"

namespace kvserve::testing {

// Statistics of every plane and two classes of tables for every alphabet. Equal geometries (but for
// the dtype and positions, which frames may change) give equal artefacts.
[[nodiscard]] std::shared_ptr<const CalibrationArtefact> SampleArtefact(const KvGeometry& geometry);

// An encoder, with SampleArtefact of the geometry if it needs one.
[[nodiscard]] Result<FrameEncoder> MakeSampleEncoder(const Profile& profile,
                                                     const KvGeometry& geometry,
                                                     std::uint32_t threads = 1);

// As EncodeFrame and DecodeFrame, on this many threads.
[[nodiscard]] Status EncodeSample(const ConstKvView& view, const Profile& profile,
                                  std::vector<std::byte>& out, std::uint32_t threads = 1);
[[nodiscard]] Result<std::size_t> DecodeSample(std::span<const std::byte> frame, KvBuffer& out,
                                               std::uint32_t threads = 1);

}  // namespace kvserve::testing
