// Little-endian byte writer and bounds-checked reader; the only way the library forms wire bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "kvserve/error.h"

namespace kvserve {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

// Appends to a vector that the caller owns.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }
  // Unsigned LEB128, at most 10 bytes.
  void PutVarint(std::uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<std::byte>(value));
  }
  void PutBytes(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  // Grows by `count` bytes and returns them for writing; invalidated by the next call.
  [[nodiscard]] std::span<std::byte> Grow(std::size_t count) {
    const std::size_t at = out_.size();
    out_.resize(at + count);
    return std::span(out_).subspan(at);
  }
  [[nodiscard]] std::size_t size() const { return out_.size(); }
  [[nodiscard]] std::vector<std::byte>& bytes() { return out_; }

 private:
  std::vector<std::byte>& out_;
};

// Reads hostile bytes: every call checks what is left and fails with kCorruptData, consuming
// nothing.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_arithmetic_v<T>
  [[nodiscard]] Result<T> Get() {
    if (remaining() < sizeof(T)) return Truncated(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  [[nodiscard]] Result<std::uint64_t> GetVarint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      if (i >= remaining()) return Truncated(i + 1);
      const auto byte = static_cast<std::uint8_t>(bytes_[position_ + i]);
      if (i == 9 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7FU} << (7 * i);
      if (byte < 0x80) {
        if (byte == 0 && i > 0) break;  // one encoding per value
        position_ += i + 1;
        return value;
      }
    }
    return MakeError(ErrorCode::kCorruptData, "varint is not in its shortest 64-bit form");
  }
  [[nodiscard]] Result<std::span<const std::byte>> GetBytes(std::size_t count) {
    if (remaining() < count) return Truncated(count);
    const auto bytes = bytes_.subspan(position_, count);
    position_ += count;
    return bytes;
  }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size() - position_; }
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  [[nodiscard]] tl::unexpected<Error> Truncated(std::size_t wanted) const {
    return MakeError(ErrorCode::kCorruptData, "truncated: " + std::to_string(wanted) +
                                                  " bytes wanted, " + std::to_string(remaining()) +
                                                  " left");
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace kvserve
