#include "sealed_frame.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/byte_io.h"
#include "base/hash.h"
#include "frame/frame.h"
#include "frame/layout.h"

namespace kvserve::fuzzing {
namespace {

using Bytes = std::span<const std::byte>;

Bytes Take(Bytes& input, std::size_t size) {
  const Bytes part = input.first(std::min(size, input.size()));
  input = input.subspan(part.size());
  return part;
}

Bytes TakeSized(Bytes& input) {
  std::uint16_t size = 0;
  const Bytes prefix = Take(input, sizeof(size));
  if (prefix.size() == sizeof(size)) std::memcpy(&size, prefix.data(), sizeof(size));
  return Take(input, size);
}

template <typename T>
void Patch(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

std::size_t VarintBytes(std::uint64_t value) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).PutVarint(value);
  return bytes.size();
}

}  // namespace

std::vector<std::byte> SealFrame(std::span<const std::byte> input) {
  const Bytes body = TakeSized(input);
  const Bytes classes = TakeSized(input);
  const Bytes side = TakeSized(input);
  std::vector<Section> sections;
  for (const Section& section :
       {Section{SectionKind::kClasses, classes}, Section{SectionKind::kSide, side},
        Section{SectionKind::kSymbols, input}}) {
    if (!section.bytes.empty()) sections.push_back(section);
  }
  std::vector<std::byte> frame(kPrefixBytes + body.size());
  std::ranges::copy(body, frame.begin() + kPrefixBytes);
  ByteWriter out(frame);
  out.Put(static_cast<std::uint8_t>(sections.size()));
  std::uint64_t section_bytes = 0;
  for (const Section& section : sections) {
    out.Put(static_cast<std::uint8_t>(section.kind));
    out.PutVarint(section.bytes.size());
    out.Put(SectionChecksum(section.kind, section.bytes));
    section_bytes += section.bytes.size();
  }
  const std::size_t header_bytes = frame.size();
  std::memcpy(frame.data(), kFrameMagic.data(), kFrameMagic.size());
  Patch(frame, kVersionOffset, kFrameVersion);
  Patch(frame, kHeaderBytesOffset, static_cast<std::uint32_t>(header_bytes));
  Patch(frame, kFrameBytesOffset, std::uint64_t{header_bytes + section_bytes});
  Patch(frame, kChecksumOffset, Hash64(frame));
  for (const Section& section : sections) out.PutBytes(section.bytes);
  return frame;
}

std::vector<std::byte> UnsealFrame(std::span<const std::byte> frame) {
  const auto view = ReadFrame(frame);
  if (!view) return {};
  std::size_t table_bytes = 1;
  std::size_t section_bytes = 0;
  Bytes parts[3];
  for (const Section& section : view->sections) {
    table_bytes += 1 + VarintBytes(section.bytes.size()) + sizeof(std::uint64_t);
    section_bytes += section.bytes.size();
    parts[static_cast<std::size_t>(section.kind) - 1] = section.bytes;
  }
  const std::size_t header_bytes = view->frame_bytes - section_bytes;
  const Bytes body = frame.subspan(kPrefixBytes, header_bytes - kPrefixBytes - table_bytes);
  std::vector<std::byte> input;
  ByteWriter out(input);
  for (const Bytes part : {body, parts[0], parts[1]}) {
    if (part.size() > UINT16_MAX) return {};
    out.Put(static_cast<std::uint16_t>(part.size()));
    out.PutBytes(part);
  }
  out.PutBytes(parts[2]);
  return input;
}

}  // namespace kvserve::fuzzing
