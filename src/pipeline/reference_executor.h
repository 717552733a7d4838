// Runs a chain over a chunk, plane by plane in the plain order that stage.h describes: the oracle
// of any faster executor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvserve/codec.h"
#include "kvserve/error.h"
#include "kvserve/view.h"
#include "pipeline/chain.h"

namespace kvserve {

// Section bytes of a frame; an empty section need not be stored.
struct CodedSections {
  std::vector<std::byte> classes;  // token classes of all planes, the quantizer's own format
  std::vector<std::byte> side;  // varint length of each plane's bytes, then those; empty if all are
  std::vector<std::byte> symbols;  // the codec's stream
};

struct SectionBytes {
  std::span<const std::byte> classes;
  std::span<const std::byte> side;
  std::span<const std::byte> symbols;
};

// What the selectors of a chain keep between the frames of one request; one thread at a time.
struct EncoderMemory {
  std::vector<std::unique_ptr<SelectorMemory>> selectors;
};
[[nodiscard]] EncoderMemory NewEncoderMemory(const Chain& chain);

// Encodes a host view that CheckView accepts; `frame.geometry` and `frame.tokens` are the view's.
// An arena or workers that `frame` lacks are made for the call.
// Deterministic. `seconds` accumulates by stage name, conversions from and to the cache's dtype as
// "convert". kBadInput names layer, plane and token of a value that is not finite where the
// quantizer is real, or that a transform made so or larger than kLargestCoefficient;
// kInvalidArgument for queries that a selector needs and `frame` lacks (CheckQueries).
[[nodiscard]] Status EncodePlanes(const Chain& chain, const ConstKvView& view,
                                  const FrameContext& frame, CodedSections& out,
                                  StageSeconds* seconds = nullptr, EncoderMemory* memory = nullptr);

// Gives the planes to fill, of the shapes that were announced (any strides); they outlive the call.
using OutputPlanes = std::function<Result<const KvView*>()>;

// Decodes planes of these shapes; their data is not looked at. `output` is called once, after all
// symbols are there, so that a header alone cannot make a decoder fill memory. Hostile bytes give
// kCorruptData. Memory beside the output: one byte per symbol, one plane of float32 (and of its
// elements if they lie apart), and a float32 copy of the chunk per feedback transform. Finite input
// never becomes infinite: see StoreFloats.
[[nodiscard]] Status DecodePlanes(const Chain& chain, const SectionBytes& sections,
                                  const FrameContext& frame, const KvView& shapes,
                                  const OutputPlanes& output, StageSeconds* seconds = nullptr);

// The same into planes that are there already.
[[nodiscard]] Status DecodePlanes(const Chain& chain, const SectionBytes& sections,
                                  const FrameContext& frame, const KvView& out,
                                  StageSeconds* seconds = nullptr);

}  // namespace kvserve
