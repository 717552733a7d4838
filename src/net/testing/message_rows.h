// What the tests of every group of messages do with each of them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvserve/error.h"

namespace kvserve::testing {

// Valid bytes of one message, and a decoder that returns the bytes of what it read.
struct MessageRow {
  std::string name;
  std::vector<std::byte> bytes;
  std::function<Result<std::vector<std::byte>>(std::span<const std::byte>)> decode_and_encode;
  bool ends_anywhere = false;  // a chunk's frame takes whatever is left
};

template <typename T>
std::vector<std::byte> Encoded(const T& message) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(Encode(message, bytes).has_value());
  return bytes;
}

template <typename T>
MessageRow MakeRow(std::string name, const T& sample,
                   Result<T> (*decode)(std::span<const std::byte>)) {
  return {std::move(name), Encoded(sample),
          [decode](std::span<const std::byte> bytes) -> Result<std::vector<std::byte>> {
            auto message = decode(bytes);
            if (!message) return tl::unexpected<Error>(message.error());
            return Encoded(*message);
          }};
}

}  // namespace kvserve::testing
