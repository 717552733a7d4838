// What a calibration artefact says about itself.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "command.h"
#include "kvserve/error.h"

namespace kvserve::tool {

// By the magic number alone.
[[nodiscard]] bool IsCalibration(std::span<const std::byte> bytes);

// Prints header, fingerprint and contents; an error names `path`.
[[nodiscard]] Status InspectCalibration(const std::string& path, std::span<const std::byte> bytes,
                                        const Invocation& invocation);

}  // namespace kvserve::tool
