// Committed frames and the digests of what they decode to.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvserve/view.h"

namespace kvserve::testing {

// Bytes of a file; empty when there is none.
[[nodiscard]] std::vector<std::byte> ReadBytes(const std::filesystem::path& path);
void WriteBytes(const std::filesystem::path& path, std::span<const std::byte> bytes);

// "name digest" per line.
[[nodiscard]] std::map<std::string, std::string> ReadDigests(const std::filesystem::path& path);
void WriteDigests(const std::filesystem::path& path,
                  const std::map<std::string, std::string>& digests);

// XXH3-64 over layers, token ranges and elements of every plane, in coding order, as hexadecimal.
[[nodiscard]] std::string DecodedDigest(const ConstKvView& view);

// Decodes a frame with the artefact that it names, from the .calib files of a folder.
[[nodiscard]] Result<std::size_t> DecodeRecorded(std::span<const std::byte> frame,
                                                 const std::filesystem::path& artefacts,
                                                 KvBuffer& out);

}  // namespace kvserve::testing
