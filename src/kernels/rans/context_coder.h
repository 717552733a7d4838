// rANS coding in which every symbol has a table index of its own, given beside the symbols: the
// stream is that of rans.h (states, words, lanes), with the slots of the symbol's table in
// intervals. A symbol that its table lacks is coded as an escape, and its byte goes to a list
// beside the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_io.h"
#include "kernels/rans/context_tables.h"
#include "kernels/rans/rans.h"
#include "kernels/rans/word_source.h"
#include "kvserve/error.h"

namespace kvserve {

// Symbols with their tables, [symbol] below kContextTables. Parts lie one after the other in the
// stream; each starts at lane 0. What is coded of a symbol is the byte symbol + offset, modulo 256.
template <typename Symbol>
struct BasicContextPart {
  std::span<Symbol> symbols;
  std::span<const std::uint8_t> indices;
  std::uint8_t offset = 0;
};
using ContextPart = BasicContextPart<const std::uint8_t>;
using MutableContextPart = BasicContextPart<std::uint8_t>;

struct ContextLength {
  std::uint64_t code_length = 0;  // in 1/1024 bit, escaped bytes included
  std::uint64_t escapes = 0;
};
[[nodiscard]] ContextLength MeasureContexts(const ContextTables& tables, const ContextPart& part);

// How many u16 of words an encoder needs for parts of this length together.
[[nodiscard]] std::size_t ContextScratchWords(const ContextLength& length, std::uint64_t symbols,
                                              unsigned lanes_log2);

// One stream. Parts are given from the last to the first; their memory is free after each call.
class ContextEncoder {
 public:
  // `words` as ContextScratchWords says; `escaped`: exactly a byte for each escape. Both stay the
  // caller's and must live as long as this.
  ContextEncoder(const ContextTables& tables, unsigned lanes_log2, std::span<std::uint16_t> words,
                 std::span<std::uint8_t> escaped);
  void Encode(const ContextPart& part);
  // The decoder's first states (u32 per lane), then the words (u16), as a part of `words`.
  [[nodiscard]] std::span<const std::byte> Finish();

 private:
  const ContextTables& tables_;
  unsigned lanes_log2_;
  std::uint16_t* end_;
  std::uint16_t* words_;   // the lowest that is filled
  std::uint8_t* escaped_;  // the same
  alignas(64) std::array<std::uint32_t, kMaxRansLanes> states_;
};

// Its inverse, parts from the first to the last.
class ContextDecoder {
 public:
  // Reads both as long as it lives; what is wrong with them shows in Decode and Finish.
  ContextDecoder(const ContextTables& tables, unsigned lanes_log2,
                 std::span<const std::byte> stream, std::span<const std::byte> escaped);
  // kCorruptData when the stream or the escaped bytes are too short.
  [[nodiscard]] Status Decode(const MutableContextPart& part);
  // kCorruptData unless both are used up and the states are those of a new encoder.
  [[nodiscard]] Status Finish() const;

 private:
  const ContextTables& tables_;
  unsigned lanes_log2_;
  bool has_states_;
  std::span<const std::byte> escaped_;
  RansWordSource source_;
  alignas(64) std::array<std::uint32_t, kMaxRansLanes> states_{};
};

// Oracles, of all parts of a stream at once.
[[nodiscard]] ContextLength MeasureContextsRef(const ContextTables& tables,
                                               const ContextPart& part);
void EncodeContextsRef(std::span<const RansTable, kContextTables> tables,
                       std::span<const ContextPart> parts, unsigned lanes_log2, ByteWriter& stream,
                       ByteWriter& escaped);
[[nodiscard]] Status DecodeContextsRef(std::span<const RansTable, kContextTables> tables,
                                       std::span<const std::byte> stream,
                                       std::span<const std::byte> escaped, unsigned lanes_log2,
                                       std::span<const MutableContextPart> parts);

}  // namespace kvserve
