// Order of checks: magic, version, features, lengths, header checksum, header, sections. So a file
// of another version is told as such and not as damage.
#include <algorithm>
#include <array>
#include <exception>
#include <string>

#include "base/hash.h"
#include "base/try.h"
#include "library/calibration_file.h"
#include "library/sections/section.h"

namespace kvserve {
namespace {

using Bytes = std::span<const std::byte>;
using Contents = CalibrationArtefact::Contents;

struct TableRow {
  std::uint8_t kind = 0;
  bool required = false;
  std::uint8_t version = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

tl::unexpected<Error> Corrupt(const std::string& what) {
  return MakeError(ErrorCode::kCorruptData, what);
}

std::string SectionName(std::uint8_t kind) {
  const CalibrationSection* const section = FindCalibrationSection(kind);
  return section == nullptr ? "section " + std::to_string(kind)
                            : "section " + std::string(section->name);
}

std::uint64_t HeaderChecksum(Bytes header) {
  std::vector<std::byte> copy(header.begin(), header.end());
  std::fill_n(copy.begin() + kCalibrationChecksumAt, sizeof(std::uint64_t), std::byte{0});
  return Hash64(copy);
}

// Everything before the body; gives header_bytes.
Result<std::uint32_t> ReadPrefix(Bytes bytes) {
  ByteReader in(bytes);
  KVSERVE_ASSIGN(const auto magic, in.Get<std::uint32_t>());
  if (magic != kCalibrationMagic) return Corrupt("the magic number is not that of an artefact");
  KVSERVE_ASSIGN(const auto version, in.Get<std::uint16_t>());
  if (version != kCalibrationVersion) {
    return MakeError(ErrorCode::kUnsupported, "version " + std::to_string(version) +
                                                  "; this build reads version " +
                                                  std::to_string(kCalibrationVersion));
  }
  KVSERVE_ASSIGN(const auto header_bytes, in.Get<std::uint32_t>());
  KVSERVE_ASSIGN(const auto features, in.Get<std::uint64_t>());
  if (features != 0) {
    return MakeError(ErrorCode::kUnsupported, "feature bits that this build does not know");
  }
  KVSERVE_ASSIGN(const auto file_bytes, in.Get<std::uint64_t>());
  KVSERVE_ASSIGN(const auto checksum, in.Get<std::uint64_t>());
  if (file_bytes != bytes.size() || file_bytes > kMaxCalibrationBytes) {
    return Corrupt("it states " + std::to_string(file_bytes) + " bytes where there are " +
                   std::to_string(bytes.size()));
  }
  if (header_bytes < kCalibrationPrefixBytes || header_bytes > kMaxCalibrationHeaderBytes ||
      header_bytes > bytes.size()) {
    return Corrupt("header_bytes " + std::to_string(header_bytes) + " is out of range");
  }
  if (HeaderChecksum(bytes.first(header_bytes)) != checksum) {
    return Corrupt("the header does not have its checksum");
  }
  return header_bytes;
}

Result<std::string> ReadSource(ByteReader& in) {
  KVSERVE_ASSIGN(const auto size, in.GetVarint());
  if (size > kMaxCalibrationSourceBytes) return Corrupt("the source text is too long");
  KVSERVE_ASSIGN(const auto bytes, in.GetBytes(size));
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7E; });
  if (!printable) return Corrupt("the source text is not printable ASCII");
  return text;
}

Result<std::vector<TableRow>> ReadTable(ByteReader& in) {
  KVSERVE_ASSIGN(const auto count, in.Get<std::uint8_t>());
  std::vector<TableRow> table;
  for (unsigned i = 0; i < count; ++i) {
    TableRow row;
    KVSERVE_ASSIGN(row.kind, in.Get<std::uint8_t>());
    KVSERVE_ASSIGN(const auto flags, in.Get<std::uint8_t>());
    KVSERVE_ASSIGN(row.version, in.Get<std::uint8_t>());
    KVSERVE_ASSIGN(row.bytes, in.GetVarint());
    KVSERVE_ASSIGN(row.checksum, in.Get<std::uint64_t>());
    if (row.kind == 0 || (!table.empty() && row.kind <= table.back().kind)) {
      return Corrupt("section kinds do not ascend from 1");
    }
    if ((flags & ~kSectionRequired) != 0)
      return Corrupt(SectionName(row.kind) + " has unknown flags");
    row.required = flags == kSectionRequired;
    table.push_back(row);
  }
  return table;
}

Result<std::vector<TableRow>> ReadHeader(Bytes header, Contents& contents) {
  ByteReader in(header.subspan(kCalibrationPrefixBytes));
  KVSERVE_ASSIGN(contents.geometry, ReadCalibrationGeometry(in));
  KVSERVE_ASSIGN(const auto model, in.GetBytes(contents.model.bytes.size()));
  std::copy(model.begin(), model.end(),
            std::as_writable_bytes(std::span(contents.model.bytes)).begin());
  KVSERVE_ASSIGN(contents.tokens, in.GetVarint());
  KVSERVE_ASSIGN(contents.source, ReadSource(in));
  KVSERVE_ASSIGN(auto table, ReadTable(in));
  if (in.remaining() != 0) return Corrupt("the header has bytes left over");
  return table;
}

Status ReadSection(const TableRow& row, Bytes bytes, Contents& contents) {
  if (Hash64(bytes, row.kind) != row.checksum) return Corrupt("does not have its checksum");
  const CalibrationSection* const section = FindCalibrationSection(row.kind, row.version);
  if (section == nullptr) {
    if (!row.required) return {};
    return MakeError(ErrorCode::kUnsupported, "version " + std::to_string(row.version) +
                                                  " is needed and not known to this build");
  }
  ByteReader in(bytes);
  KVSERVE_TRY(section->read(in, contents));
  if (in.remaining() != 0) return Corrupt("has bytes left over");
  return section->check(contents);
}

Result<Contents> ReadContents(Bytes bytes) {
  KVSERVE_ASSIGN(const auto header_bytes, ReadPrefix(bytes));
  Contents contents;
  KVSERVE_ASSIGN(const auto table, ReadHeader(bytes.first(header_bytes), contents));
  ByteReader in(bytes.subspan(header_bytes));
  for (const TableRow& row : table) {
    if (row.bytes > in.remaining())
      return Corrupt(SectionName(row.kind) + " passes the file's end");
    KVSERVE_ASSIGN(const auto section, in.GetBytes(row.bytes));
    if (auto status = ReadSection(row, section, contents); !status) {
      return MakeError(status.error().code, SectionName(row.kind) + ": " + status.error().message);
    }
  }
  if (in.remaining() != 0) return Corrupt("bytes follow the last section");
  return contents;
}

}  // namespace

Result<std::shared_ptr<const CalibrationArtefact>> ParseCalibration(Bytes bytes) {
  try {
    auto contents = ReadContents(bytes);
    if (!contents) {
      return MakeError(contents.error().code, "calibration artefact: " + contents.error().message);
    }
    return std::make_shared<const CalibrationArtefact>(std::move(*contents), Hash128(bytes));
  } catch (const std::exception& error) {  // bad_alloc
    return MakeError(ErrorCode::kResourceExhausted, std::string("no memory: ") + error.what());
  }
}

}  // namespace kvserve
