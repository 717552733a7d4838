// The bytes of a .calib file; docs/CALIBRATION.md has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/byte_io.h"
#include "kvserve/error.h"
#include "library/calibration_artefact.h"

namespace kvserve {

inline constexpr std::uint32_t kCalibrationMagic = 0x4353564B;  // "KVSC"
inline constexpr std::uint16_t kCalibrationVersion = 1;
inline constexpr std::size_t kCalibrationPrefixBytes = 34;  // up to and with the header's checksum
inline constexpr std::size_t kCalibrationChecksumAt = 26;
inline constexpr std::uint32_t kMaxCalibrationHeaderBytes = 1U << 20;
inline constexpr std::uint64_t kMaxCalibrationBytes = std::uint64_t{1} << 30;
inline constexpr std::size_t kMaxCalibrationSourceBytes = 4096;
inline constexpr std::uint8_t kSectionRequired = 1;  // flag: readers that lack the kind must refuse

// The file of these contents, the same for the same contents. Characters of the source text that
// are not printable ASCII become '?', and what is too long is cut. kInvalidArgument names what no
// reader would accept.
[[nodiscard]] Result<std::vector<std::byte>> FormatCalibration(
    const CalibrationArtefact::Contents& contents);

// The geometry inside the header. Layers that are alike share one entry.
void WriteCalibrationGeometry(const KvGeometry& geometry, ByteWriter& out);
[[nodiscard]] Result<KvGeometry> ReadCalibrationGeometry(ByteReader& in);

}  // namespace kvserve
