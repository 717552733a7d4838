// The frames of a .kvs file as one piece of KV.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kvserve/error.h"
#include "tensorfile/kv_file.h"

namespace kvserve::tool {

struct FrameSequence {
  KvFileInfo info;                       // of all frames together
  std::vector<std::size_t> frame_begin;  // offsets in the file
  bool lossless = true;                  // every frame gives back every bit
};

// Parses and verifies every frame of `bytes`. Frames follow each other in token order without gap
// or repetition, and each holds all layers. kCorruptData for anything else; kMismatch when models
// or geometries differ; kUnsupported for a range of layers. Messages start with the frame's number.
[[nodiscard]] Result<FrameSequence> ReadFrameSequence(std::span<const std::byte> bytes);

// "frame 2 at byte 1234: " + the error's message, same code.
[[nodiscard]] tl::unexpected<Error> FrameError(std::size_t index, std::size_t offset,
                                               const Error& error);

}  // namespace kvserve::tool
