#include "kernels/rans/context_coder.h"

#include <algorithm>
#include <cstring>

#include "kernels/rans/context_kernels.h"

namespace kvserve {
namespace {

// Escapes become the next escaped bytes, and coded bytes symbols. False: there are too few.
bool FinishSymbols(const MutableContextPart& part, std::span<const std::byte>& escaped) {
  for (std::span<std::uint8_t> left = part.symbols; !left.empty();) {
    const void* const found = std::memchr(left.data(), kContextEscape, left.size());
    if (found == nullptr) break;
    if (escaped.empty()) return false;
    const auto at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - left.data());
    left[at] = static_cast<std::uint8_t>(escaped.front());
    left = left.subspan(at + 1);
    escaped = escaped.subspan(1);
  }
  if (part.offset != 0) {
    for (std::uint8_t& symbol : part.symbols) {
      symbol = static_cast<std::uint8_t>(symbol - part.offset);
    }
  }
  return true;
}

tl::unexpected<Error> Short() {
  return MakeError(ErrorCode::kCorruptData, "the entropy-coded stream is short");
}

}  // namespace

ContextLength MeasureContexts(const ContextTables& tables, const ContextPart& part) {
  return ActiveContextKernels().measure(tables, part);
}

std::size_t ContextScratchWords(const ContextLength& length, std::uint64_t symbols,
                                unsigned lanes_log2) {
  // Lengths are rounded by at most 1/2048 bit: within what RansScratchWords adds per symbol.
  const std::uint64_t in_stream =
      length.code_length - length.escapes * (std::uint64_t{8} << kContextLengthBits);
  return RansScratchWords(in_stream << (16 - kContextLengthBits), symbols, lanes_log2);
}

ContextEncoder::ContextEncoder(const ContextTables& tables, unsigned lanes_log2,
                               std::span<std::uint16_t> words, std::span<std::uint8_t> escaped)
    : tables_(tables),
      lanes_log2_(lanes_log2),
      end_(words.data() + words.size()),
      words_(end_),
      escaped_(escaped.data() + escaped.size()) {
  states_.fill(kRansLow);
}

void ContextEncoder::Encode(const ContextPart& part) {
  ActiveContextKernels().encode(tables_, lanes_log2_, states_.data(), part, words_, escaped_);
}

std::span<const std::byte> ContextEncoder::Finish() {
  const std::size_t lanes = std::size_t{1} << lanes_log2_;
  words_ -= 2 * lanes;
  std::memcpy(words_, states_.data(), 4 * lanes);
  return std::as_bytes(std::span(words_, end_));
}

ContextDecoder::ContextDecoder(const ContextTables& tables, unsigned lanes_log2,
                               std::span<const std::byte> stream,
                               std::span<const std::byte> escaped)
    : tables_(tables),
      lanes_log2_(lanes_log2),
      has_states_(stream.size() >= std::size_t{4} << lanes_log2 && stream.size() % 2 == 0),
      escaped_(escaped),
      source_(has_states_ ? stream.subspan(std::size_t{4} << lanes_log2)
                          : std::span<const std::byte>()) {
  if (has_states_) std::memcpy(states_.data(), stream.data(), std::size_t{4} << lanes_log2);
}

Status ContextDecoder::Decode(const MutableContextPart& part) {
  if (!has_states_) return Short();
  const ContextKernels& kernels = ActiveContextKernels();
  std::size_t done = 0;
  do {
    done += kernels.decode(tables_, lanes_log2_, states_.data(), part.indices.subspan(done),
                           part.symbols.data() + done, source_.words);
  } while (done < part.symbols.size() && source_.Pad());
  if (done < part.symbols.size() || !FinishSymbols(part, escaped_)) return Short();
  return {};
}

Status ContextDecoder::Finish() const {
  const auto first = states_.begin();
  const auto last = first + (std::ptrdiff_t{1} << lanes_log2_);
  if (has_states_ && escaped_.empty() && source_.ended() &&
      std::all_of(first, last, [](std::uint32_t x) { return x == kRansLow; })) {
    return {};
  }
  return MakeError(ErrorCode::kCorruptData,
                   "the entropy-coded stream does not end where it should");
}

}  // namespace kvserve
