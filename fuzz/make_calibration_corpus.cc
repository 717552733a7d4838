// make_calibration_corpus OUT: the committed seeds of the calibration fuzzer. Deterministic.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/byte_io.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"
#include "library/testing/sample_calibration.h"
#include "sealed_calibration.h"

namespace kvserve {
namespace {

using Bytes = std::vector<std::byte>;
using Contents = CalibrationArtefact::Contents;

void PutSized(ByteWriter& out, const Bytes& bytes) {
  out.Put(static_cast<std::uint16_t>(bytes.size()));
  out.PutBytes(bytes);
}

// The input that becomes the file of these contents, with one more section of any kind.
Bytes Unsealed(const Contents& contents, std::uint8_t extra_kind, std::uint8_t extra_flags) {
  Bytes body;
  ByteWriter header(body);
  WriteCalibrationGeometry(contents.geometry, header);
  header.PutBytes(std::as_bytes(std::span(contents.model.bytes)));
  header.PutVarint(contents.tokens);
  header.PutVarint(contents.source.size());
  header.PutBytes(std::as_bytes(std::span(contents.source)));
  Bytes input(1, std::byte{1});
  ByteWriter out(input);
  PutSized(out, body);
  for (const auto& section : CalibrationSections()) {
    if (!section.present(contents)) continue;
    Bytes bytes;
    ByteWriter writer(bytes);
    section.write(contents, writer);
    out.Put(section.kind);
    out.Put(std::uint8_t{0});
    out.Put(section.version);
    PutSized(out, bytes);
  }
  if (extra_kind != 0) {
    out.Put(extra_kind);
    out.Put(extra_flags);
    out.Put(std::uint8_t{1});
    PutSized(out, Bytes(9, std::byte{0x5A}));
  }
  return input;
}

void Write(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// The same model without any section.
Contents Without(const Contents& contents) {
  Contents bare;
  bare.model = contents.model;
  bare.geometry = contents.geometry;
  bare.tokens = contents.tokens;
  bare.source = contents.source;
  return bare;
}

void WriteSeeds(const std::filesystem::path& folder) {
  const Contents contents = testing::SampleCalibration();
  Bytes file(1);
  const auto formatted = FormatCalibration(contents).value();
  file.insert(file.end(), formatted.begin(), formatted.end());
  Write(folder / "file", file);
  file.resize(file.size() * 3 / 4);
  Write(folder / "file.cut", file);
  Write(folder / "sealed", Unsealed(contents, 0, 0));
  Write(folder / "sealed-optional", Unsealed(contents, 200, 0));
  Write(folder / "sealed-required.refused", Unsealed(contents, 200, kSectionRequired));
  Contents alone = Without(contents);
  alone.statistics = contents.statistics;
  Write(folder / "sealed-statistics", Unsealed(alone, 0, 0));
  alone = Without(contents);
  alone.klt_heads = contents.klt_heads;
  alone.klt_joint = contents.klt_joint;
  Write(folder / "sealed-klt", Unsealed(alone, 0, 0));
  alone = Without(contents);
  alone.query_statistics = contents.query_statistics;
  alone.head_scores = contents.head_scores;
  Write(folder / "sealed-queries", Unsealed(alone, 0, 0));
  alone = Without(contents);
  alone.whitening = contents.whitening;
  alone.predictors = contents.predictors;
  Write(folder / "sealed-transform", Unsealed(alone, 0, 0));
  alone.query_statistics = contents.query_statistics;
  testing::MakeCompact(alone);
  Write(folder / "sealed-compact", Unsealed(alone, 0, 0));
  alone = Without(contents);
  alone.code_tables = testing::SampleCodeTables(contents.geometry, 64);
  Write(folder / "sealed-code-tables", Unsealed(alone, 0, 0));
  alone = Without(contents);
  alone.entropy = contents.entropy;
  Write(folder / "sealed-entropy", Unsealed(alone, 0, 0));
  Bytes damaged = Unsealed(alone, 0, 0);
  damaged.back() ^= std::byte{1};
  Write(folder / "sealed-sum.refused", damaged);
}

}  // namespace
}  // namespace kvserve

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "make_calibration_corpus OUT\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  kvserve::WriteSeeds(argv[1]);
  return 0;
}
