#include "runtime/text_stream.h"

#include <algorithm>
#include <utility>

namespace kvserve {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the character that `lead` starts, 0 if none can.
std::size_t CharacterBytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Range of the second byte: keeps out overlong forms, surrogates and values above U+10FFFF.
bool SecondByteFits(unsigned char lead, unsigned char second) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

}  // namespace

std::size_t AppendWholeCharacters(std::string_view bytes, std::string& text) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = CharacterBytes(lead);
    std::size_t good = length == 0 ? 0 : 1;
    while (good > 0 && good < length && at + good < bytes.size()) {
      const auto next = static_cast<unsigned char>(bytes[at + good]);
      if (good == 1 ? !SecondByteFits(lead, next) : (next & 0xC0) != 0x80) break;
      ++good;
    }
    if (good == length && length > 0) {
      text.append(bytes.substr(at, length));
      at += length;
    } else if (good > 0 && at + good == bytes.size()) {
      break;
    } else {
      text.append(kReplacement);
      at += std::max<std::size_t>(good, 1);
    }
  }
  return at;
}

// Bytes at the end of text_ that are a proper prefix of some stop string.
std::size_t TextStream::HeldBack() const {
  std::size_t held = 0;
  for (const auto& stop : stops_) {
    const std::size_t longest = std::min(stop.size() - 1, text_.size());
    for (std::size_t n = longest; n > held; --n) {
      if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  return held;
}

std::string TextStream::Add(std::string_view piece) {
  if (stopped_) return {};
  bytes_.append(piece);
  bytes_.erase(0, AppendWholeCharacters(bytes_, text_));
  std::size_t cut = std::string::npos;
  for (const auto& stop : stops_) cut = std::min(cut, text_.find(stop));
  if (cut != std::string::npos) {
    stopped_ = true;
    bytes_.clear();
    text_.resize(cut);
    return std::exchange(text_, {});
  }
  const std::size_t ready = text_.size() - HeldBack();
  std::string out = text_.substr(0, ready);
  text_.erase(0, ready);
  return out;
}

std::string TextStream::Finish() {
  std::string out = std::exchange(text_, {});
  if (!bytes_.empty()) out.append(kReplacement);
  bytes_.clear();
  return out;
}

}  // namespace kvserve
