// make_corpus FRAMES OUT: the committed seeds of the fuzz targets, from a folder of good frames.
// Deterministic. Each frame is a seed of both targets; of the small ones also damaged forms, so
// that a replay walks the error paths. Seeds of the other targets are made from the stage table; a
// new stage adds files and changes none. FRAMES is tests/golden/frames, or a release's folder of
// tests/compat.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "frame/frame.h"
#include "sealed_frame.h"
#include "stage_seeds.h"
#include "stages/registry.h"

namespace {

using Bytes = std::vector<std::byte>;
namespace fs = std::filesystem;

constexpr std::size_t kLargestSeed = 4096;
constexpr std::size_t kLargestDamaged = 1500;
constexpr std::uint64_t kLargestRaw = 1U << 17;

Bytes Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

void Write(const fs::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

struct Damage {
  const char* name;
  std::function<void(Bytes&)> apply;
};

void Flip(Bytes& bytes, std::size_t at) {
  if (at < bytes.size()) bytes[at] ^= std::byte{0x41};
}

// Places hit the prefix, the shapes, the stages and parameters, and the payload's start and end.
std::vector<Damage> Damages() {
  return {
      {"cut", [](Bytes& bytes) { bytes.resize(bytes.size() * 3 / 4); }},
      {"longer", [](Bytes& bytes) { bytes.insert(bytes.end(), 5, std::byte{0xA5}); }},
      {"shape", [](Bytes& bytes) { Flip(bytes, 46); }},
      {"payload", [](Bytes& bytes) { Flip(bytes, bytes.size() * 2 / 3); }},
      {"end", [](Bytes& bytes) { Flip(bytes, bytes.size() - 2); }},
  };
}

void WriteSeeds(const fs::path& folder, const std::string& name, const Bytes& seed) {
  if (seed.empty() || seed.size() > kLargestSeed) return;
  Write(folder / name, seed);
  if (seed.size() > kLargestDamaged) return;
  for (const Damage& damage : Damages()) {
    Bytes damaged = seed;
    damage.apply(damaged);
    Write(folder / (name + "." + damage.name), damaged);
  }
}

std::vector<std::string> NamesOf(kvserve::StageKind kind) {
  std::vector<std::string> names;
  for (const auto& entry : kvserve::BuiltinStages()) {
    if (entry.info->kind == kind) names.emplace_back(entry.info->name);
  }
  return names;
}

// The layout is roundtrip_fuzzer.cc's: profile text, shape, values. The text decides dtype and
// shape.
void WriteRoundTrip(const fs::path& folder, const std::string& text) {
  const auto choice =
      static_cast<std::uint8_t>(kvserve::Hash64(std::as_bytes(std::span(text))) % 32);
  Bytes seed{static_cast<std::byte>(text.size())};
  for (const char c : text) seed.push_back(static_cast<std::byte>(c));
  for (const std::uint8_t field : {choice, std::uint8_t{1}, std::uint8_t{23}}) {
    seed.push_back(static_cast<std::byte>(field));
  }
  if ((choice & 4) != 0) seed.push_back(std::byte{15});
  seed.push_back(std::byte{9});
  for (unsigned i = 0; i < 61; ++i) seed.push_back(static_cast<std::byte>(i * 37 % 64));
  std::string name = text;
  std::replace(name.begin(), name.end(), '|', '-');
  Write(folder / name, seed);
}

// Every quantizer with every codec, and each transform in one chain.
void WriteRoundTrips(const fs::path& folder) {
  for (const auto& quantizer : NamesOf(kvserve::StageKind::kQuantizer)) {
    for (const auto& codec : NamesOf(kvserve::StageKind::kCodec)) {
      WriteRoundTrip(folder, std::string(quantizer).append("|").append(codec));
    }
  }
  for (const auto& transform : NamesOf(kvserve::StageKind::kTransform)) {
    WriteRoundTrip(folder, transform + "|uniform|rans");
  }
}

// Damaged forms only where a decoder reads: an encoder takes any bytes.
kvserve::fuzzing::WriteSeed Into(const fs::path& folder, const std::string& damaged) {
  fs::create_directories(folder);
  return [folder, damaged](const std::string& name, const std::vector<std::uint8_t>& seed) {
    const auto bytes = std::as_bytes(std::span(seed));
    const Bytes copy(bytes.begin(), bytes.end());
    if (!damaged.empty() && name.ends_with(damaged)) return WriteSeeds(folder, name, copy);
    Write(folder / name, copy);
  };
}

// "v1-" for the frames of an old release in tests/compat/v1: seeds of decoders of old versions.
std::string ReleasePrefix(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with('v') ? name + "-" : "";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "make_corpus FRAMES OUT\n");
    return 2;
  }
  const fs::path frames = fs::path(argv[2]) / "frame_fuzzer";
  const fs::path stages = fs::path(argv[2]) / "stage_fuzzer";
  const fs::path round_trips = fs::path(argv[2]) / "roundtrip_fuzzer";
  fs::create_directories(frames);
  fs::create_directories(round_trips);
  WriteRoundTrips(round_trips);
  kvserve::fuzzing::MakeCodecSeeds(Into(fs::path(argv[2]) / "codec_fuzzer", "mixed"));
  kvserve::fuzzing::MakePiecesSeeds(Into(fs::path(argv[2]) / "pieces_fuzzer", ""));
  kvserve::fuzzing::MakePlaneSeeds(Into(fs::path(argv[2]) / "plane_fuzzer", ""));
  kvserve::fuzzing::MakeIsaSeeds(Into(fs::path(argv[2]) / "isa_fuzzer", ""));
  fs::create_directories(stages);
  const std::string release = ReleasePrefix(argv[1]);
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() != ".kvs") continue;
    const Bytes frame = Read(entry.path());
    const Bytes unsealed = kvserve::fuzzing::UnsealFrame(frame);
    if (unsealed.empty() || kvserve::fuzzing::SealFrame(unsealed) != frame) {
      std::fprintf(stderr, "%s: does not survive sealing\n", entry.path().c_str());
      return 1;
    }
    const std::string name = entry.path().stem().string();
    if (kvserve::RawBytes(kvserve::ReadFrame(frame)->header) > kLargestRaw) continue;  // too slow
    if (!release.empty()) {
      if (unsealed.size() <= kLargestSeed) Write(stages / (release + name), unsealed);
      continue;
    }
    if (frame.size() <= kLargestDamaged) WriteSeeds(frames, name, frame);
    WriteSeeds(stages, name, unsealed);
  }
  return 0;
}
