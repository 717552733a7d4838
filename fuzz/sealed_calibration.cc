#include "sealed_calibration.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/byte_io.h"
#include "base/hash.h"
#include "library/calibration_file.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::byte>;

struct Row {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t version = 0;
  Bytes bytes;
};

// A u16 size and so many bytes; what is missing is left out.
Bytes TakeSized(ByteReader& in) {
  const auto size = in.Get<std::uint16_t>();
  if (!size) return {};
  return *in.GetBytes(std::min<std::size_t>(*size, in.remaining()));
}

template <typename T>
void Overwrite(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

}  // namespace

std::vector<std::byte> SealCalibration(Bytes input) {
  ByteReader in(input);
  const Bytes body = TakeSized(in);
  std::vector<Row> rows;
  while (in.remaining() >= 3 && rows.size() < 255) {
    Row& row = rows.emplace_back(
        Row{*in.Get<std::uint8_t>(), *in.Get<std::uint8_t>(), *in.Get<std::uint8_t>(), {}});
    row.bytes = TakeSized(in);
  }
  std::vector<std::byte> file;
  ByteWriter out(file);
  out.Put(kCalibrationMagic);
  out.Put(kCalibrationVersion);
  out.Put(std::uint32_t{0});  // header_bytes, set below
  for (int i = 0; i < 3; ++i) out.Put(std::uint64_t{0});
  out.PutBytes(body);
  out.Put(static_cast<std::uint8_t>(rows.size()));
  for (const Row& row : rows) {
    out.Put(row.kind);
    out.Put(row.flags);
    out.Put(row.version);
    out.PutVarint(row.bytes.size());
    out.Put(Hash64(row.bytes, row.kind));
  }
  const std::size_t header_bytes = file.size();
  for (const Row& row : rows) out.PutBytes(row.bytes);
  Overwrite(file, 6, static_cast<std::uint32_t>(header_bytes));
  Overwrite(file, 18, std::uint64_t{file.size()});
  Overwrite(file, kCalibrationChecksumAt, Hash64(Bytes(file).first(header_bytes)));
  return file;
}

}  // namespace kvserve::fuzzing
