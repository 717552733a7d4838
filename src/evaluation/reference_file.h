// References of a prompt's probes as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evaluation/probe_runner.h"

namespace kvserve {

// The layout is in capture_store.h; the payload is, per probe, both distributions and the outcome.
[[nodiscard]] std::vector<std::byte> FormatReferences(std::span<const ProbeReference> references);

// kCorruptData for bytes that are damaged, and for those of another number of probes; kUnsupported
// for another version.
[[nodiscard]] Result<std::vector<ProbeReference>> ParseReferences(std::span<const std::byte> bytes,
                                                                  std::size_t probes,
                                                                  std::uint32_t vocabulary);

}  // namespace kvserve
