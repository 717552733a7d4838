// The definition, one symbol at a time, from the frequencies.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/try.h"
#include "kernels/rans/context_coder.h"

namespace kvserve {
namespace {

std::uint32_t StartOf(const RansTable& table, std::size_t symbol) {
  return std::accumulate(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(symbol), 0U);
}

std::uint8_t SymbolAt(const RansTable& table, std::uint32_t slot) {
  std::size_t symbol = 0;
  for (std::uint32_t end = table[0]; end <= slot; end += table[symbol]) ++symbol;
  return static_cast<std::uint8_t>(symbol);
}

}  // namespace

ContextLength MeasureContextsRef(const ContextTables& tables, const ContextPart& part) {
  ContextLength sum;
  for (std::size_t i = 0; i < part.symbols.size(); ++i) {
    const std::uint8_t byte = (part.symbols[i] + part.offset) % 256;
    const std::uint16_t length = tables.lengths[256U * part.indices[i] + byte];
    sum.code_length += length % kContextEscaped;
    if (length >= kContextEscaped) ++sum.escapes;
  }
  return sum;
}

void EncodeContextsRef(std::span<const RansTable, kContextTables> tables,
                       std::span<const ContextPart> parts, unsigned lanes_log2, ByteWriter& stream,
                       ByteWriter& escaped) {
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2, kRansLow);
  std::vector<std::uint16_t> words;         // last one first
  std::vector<std::uint8_t> escaped_bytes;  // the same
  for (std::size_t p = parts.size(); p-- > 0;) {
    const ContextPart& part = parts[p];
    for (std::size_t i = part.symbols.size(); i-- > 0;) {
      const RansTable& table = tables[part.indices[i]];
      std::uint8_t byte = (part.symbols[i] + part.offset) % 256;
      if (table[byte] == 0 || byte == kContextEscape) {
        escaped_bytes.push_back(byte);
        byte = kContextEscape;
      }
      const std::uint32_t frequency = table[byte];
      std::uint32_t& x = states[i % states.size()];
      if (x >= std::uint64_t{frequency} << 20) {
        words.push_back(static_cast<std::uint16_t>(x));
        x >>= 16;
      }
      x = x / frequency * kRansTotal + StartOf(table, byte) + x % frequency;
    }
  }
  for (const std::uint32_t x : states) stream.Put(x);
  for (std::size_t i = words.size(); i-- > 0;) stream.Put(words[i]);
  for (std::size_t i = escaped_bytes.size(); i-- > 0;) escaped.Put(escaped_bytes[i]);
}

Status DecodeContextsRef(std::span<const RansTable, kContextTables> tables,
                         std::span<const std::byte> stream, std::span<const std::byte> escaped,
                         unsigned lanes_log2, std::span<const MutableContextPart> parts) {
  ByteReader words(stream);
  ByteReader bytes(escaped);
  std::vector<std::uint32_t> states(std::size_t{1} << lanes_log2);
  for (std::uint32_t& x : states) {
    KVSERVE_ASSIGN(x, words.Get<std::uint32_t>());
  }
  for (const MutableContextPart& part : parts) {
    for (std::size_t i = 0; i < part.symbols.size(); ++i) {
      const RansTable& table = tables[part.indices[i]];
      std::uint32_t& x = states[i % states.size()];
      const std::uint32_t slot = x % kRansTotal;
      std::uint8_t byte = SymbolAt(table, slot);
      x = table[byte] * (x / kRansTotal) + slot - StartOf(table, byte);
      if (x < kRansLow) {
        KVSERVE_ASSIGN(const auto word, words.Get<std::uint16_t>());
        x = x << 16 | word;
      }
      if (byte == kContextEscape) {
        KVSERVE_ASSIGN(byte, bytes.Get<std::uint8_t>());
      }
      part.symbols[i] = static_cast<std::uint8_t>(byte - part.offset);
    }
  }
  const bool ended =
      std::all_of(states.begin(), states.end(), [](std::uint32_t x) { return x == kRansLow; });
  if (!ended || words.remaining() > 0 || bytes.remaining() > 0) {
    return MakeError(ErrorCode::kCorruptData,
                     "the entropy-coded stream does not end where it should");
  }
  return {};
}

}  // namespace kvserve
