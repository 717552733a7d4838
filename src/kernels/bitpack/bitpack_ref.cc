#include <algorithm>

#include "kernels/bitpack/bitpack.h"

namespace kvserve {

void PackSymbolsRef(std::span<const std::uint8_t> symbols, std::uint32_t alphabet,
                    std::span<std::byte> out) {
  if (alphabet == 1) return;
  const std::size_t block = PackBlockFor(alphabet).symbols;
  for (; !symbols.empty(); symbols = symbols.subspan(std::min(block, symbols.size()))) {
    const std::size_t digits = std::min(block, symbols.size());
    std::uint64_t number = 0;
    for (std::size_t i = digits; i-- > 0;) number = number * alphabet + symbols[i];
    const std::size_t bytes = PackedBytes(digits, alphabet);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(number >> (8 * i));
    out = out.subspan(bytes);
  }
}

Status UnpackSymbolsRef(std::span<const std::byte> in, std::uint32_t alphabet,
                        std::span<std::uint8_t> symbols) {
  std::fill(symbols.begin(), symbols.end(), std::uint8_t{0});
  if (alphabet == 1) return {};
  const std::size_t block = PackBlockFor(alphabet).symbols;
  for (; !symbols.empty(); symbols = symbols.subspan(std::min(block, symbols.size()))) {
    const std::size_t digits = std::min(block, symbols.size());
    const std::size_t bytes = PackedBytes(digits, alphabet);
    std::uint64_t number = 0;
    for (std::size_t i = bytes; i-- > 0;) number = number << 8 | std::to_integer<unsigned>(in[i]);
    for (std::size_t i = 0; i < digits; ++i, number /= alphabet) {
      symbols[i] = static_cast<std::uint8_t>(number % alphabet);
    }
    if (number != 0) return MakeError(ErrorCode::kCorruptData, "a packed block is out of range");
    in = in.subspan(bytes);
  }
  return {};
}

}  // namespace kvserve
