#include <algorithm>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "base/try.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"

namespace kvserve {
namespace {

struct WrittenSection {
  const CalibrationSection* section = nullptr;
  std::vector<std::byte> bytes;
};

std::string PrintableSource(const std::string& source) {
  std::string text = source.substr(0, kMaxCalibrationSourceBytes);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  return text;
}

Result<std::vector<WrittenSection>> WriteSections(const CalibrationArtefact::Contents& contents) {
  std::vector<WrittenSection> written;
  for (const CalibrationSection& section : CalibrationSections()) {
    if (!section.present(contents)) continue;
    if (auto status = section.check(contents); !status) {
      return MakeError(
          ErrorCode::kInvalidArgument,
          "calibration artefact, " + std::string(section.name) + ": " + status.error().message);
    }
    auto& last = written.emplace_back(WrittenSection{&section, {}});
    ByteWriter writer(last.bytes);
    section.write(contents, writer);
  }
  return written;
}

template <typename T>
void Overwrite(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

}  // namespace

Result<std::vector<std::byte>> FormatCalibration(const CalibrationArtefact::Contents& contents) {
  KVSERVE_TRY(CheckGeometry(contents.geometry));
  KVSERVE_TRY(CheckDTypeSupported(contents.geometry.dtype));
  KVSERVE_ASSIGN(const auto sections, WriteSections(contents));
  std::vector<std::byte> file;
  ByteWriter out(file);
  out.Put(kCalibrationMagic);
  out.Put(kCalibrationVersion);
  out.Put(std::uint32_t{0});  // header_bytes, and from here on what is known at the end
  out.Put(std::uint64_t{0});  // features
  out.Put(std::uint64_t{0});  // file_bytes
  out.Put(std::uint64_t{0});  // header_checksum
  WriteCalibrationGeometry(contents.geometry, out);
  out.PutBytes(std::as_bytes(std::span(contents.model.bytes)));
  out.PutVarint(contents.tokens);
  const std::string source = PrintableSource(contents.source);
  out.PutVarint(source.size());
  out.PutBytes(std::as_bytes(std::span(source)));
  out.Put(static_cast<std::uint8_t>(sections.size()));
  std::uint64_t file_bytes = 0;
  for (const auto& [section, bytes] : sections) {
    out.Put(section->kind);
    out.Put(section->required ? kSectionRequired : std::uint8_t{0});
    out.Put(section->version);
    out.PutVarint(bytes.size());
    out.Put(Hash64(bytes, section->kind));
    file_bytes += bytes.size();
  }
  const auto header_bytes = static_cast<std::uint32_t>(file.size());
  file_bytes += header_bytes;
  if (header_bytes > kMaxCalibrationHeaderBytes || file_bytes > kMaxCalibrationBytes) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "calibration artefact: " + std::to_string(file_bytes) +
                         " bytes are more than a file may have");
  }
  Overwrite(file, 6, header_bytes);
  Overwrite(file, 18, file_bytes);
  Overwrite(file, kCalibrationChecksumAt, Hash64(file));
  for (const auto& written : sections) out.PutBytes(written.bytes);
  return file;
}

}  // namespace kvserve
