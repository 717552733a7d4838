// Entropy tables by alphabet, two bytes per frequency: 2 KiB for 64 tables of 16 symbols, so a
// closer code would save nothing that matters.
#include <algorithm>
#include <numeric>
#include <string>

#include "base/try.h"
#include "library/sections/section.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

constexpr std::uint32_t kTotal = 4096;
constexpr std::size_t kMaxClasses = 64;

bool Present(const Contents& contents) {
  return !contents.entropy.empty();
}

void Write(const Contents& contents, ByteWriter& out) {
  out.PutVarint(contents.entropy.size());
  for (const EntropyClasses& classes : contents.entropy) {
    out.PutVarint(classes.alphabet);
    out.PutVarint(classes.frequencies.size());
    for (const auto& table : classes.frequencies) {
      out.PutBytes(std::as_bytes(std::span(table).first(classes.alphabet)));
    }
  }
}

Status ReadAlphabet(ByteReader& in, EntropyClasses& classes) {
  KVSERVE_ASSIGN(const auto alphabet, in.GetVarint());
  if (alphabet < 2 || alphabet > 256) {
    return Wrong("alphabet " + std::to_string(alphabet) + " is outside 2..256");
  }
  classes.alphabet = static_cast<std::uint32_t>(alphabet);
  KVSERVE_ASSIGN(const auto count, in.GetVarint());
  if (count < 1 || count > kMaxClasses) {
    return Wrong("alphabet " + std::to_string(alphabet) + ": " + std::to_string(count) +
                 " classes are outside 1..64");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(alphabet * sizeof(std::uint16_t)));
    auto& table = classes.frequencies.emplace_back();
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(table)).begin());
  }
  return {};
}

Status Read(ByteReader& in, Contents& contents) {
  KVSERVE_ASSIGN(const auto count, in.GetVarint());
  if (count < 1 || count > 255) {
    return Wrong(std::to_string(count) + " alphabets are outside 1..255");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    KVSERVE_TRY(ReadAlphabet(in, contents.entropy.emplace_back()));
  }
  return {};
}

bool GoodTable(std::span<const std::uint16_t, 256> table, std::uint32_t alphabet) {
  const auto zero = [](std::uint16_t frequency) { return frequency == 0; };
  const auto used = table.first(alphabet);
  const auto beyond = table.subspan(alphabet);
  return std::none_of(used.begin(), used.end(), zero) &&
         std::all_of(beyond.begin(), beyond.end(), zero) &&
         std::accumulate(used.begin(), used.end(), std::uint32_t{0}) == kTotal;
}

Status Check(const Contents& contents) {
  std::uint32_t before = 1;
  for (const EntropyClasses& classes : contents.entropy) {
    const std::string where = "alphabet " + std::to_string(classes.alphabet);
    if (classes.alphabet <= before || classes.alphabet > 256) {
      return Wrong(where + " is outside 2..256 or does not ascend");
    }
    before = classes.alphabet;
    if (classes.frequencies.empty() || classes.frequencies.size() > kMaxClasses) {
      return Wrong(where + ": the number of classes is outside 1..64");
    }
    for (std::size_t i = 0; i < classes.frequencies.size(); ++i) {
      if (GoodTable(classes.frequencies[i], classes.alphabet)) continue;
      return Wrong(where + ", class " + std::to_string(i) +
                   ": frequencies of the symbols must be 1 or more and sum to 4096");
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& EntropyClassesSection() {
  static const CalibrationSection section = {.kind = 2,
                                             .name = "entropy_classes",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
