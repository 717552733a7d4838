#include "base/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "base/testing/address_space_limit.h"
#include "base/testing/sanitizers.h"

namespace kvserve {
namespace {

TEST(Arena, PiecesAreAlignedAndApart) {
  Arena arena;
  const auto first = arena.Take<std::uint8_t>(3);
  const auto second = arena.Take<float>(100);
  std::iota(first.begin(), first.end(), std::uint8_t{1});
  std::iota(second.begin(), second.end(), 5.0F);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % 64, 0U);
  EXPECT_EQ(first[2], 3);
  EXPECT_EQ(second[99], 104.0F);
}

TEST(Arena, SteadyStateKeepsItsMemory) {
  Arena arena;
  const auto round = [&] {
    arena.Reset();
    for (std::size_t i = 1; i <= 64; ++i) arena.Take<float>(i * 1000)[0] = 1.0F;
  };
  round();
  round();
  const std::size_t capacity = arena.capacity();
  const auto* const where = (arena.Reset(), arena.Take<float>(1).data());
  for (int i = 0; i < 10; ++i) round();
  EXPECT_EQ(arena.capacity(), capacity);
  arena.Reset();
  EXPECT_EQ(arena.Take<float>(1).data(), where);
}

TEST(Arena, ImpossibleSizesThrow) {
  Arena arena;
  EXPECT_THROW((void)arena.Take<double>(SIZE_MAX / 4), std::bad_alloc);
  EXPECT_EQ(arena.TakeZeroed<int>(7)[6], 0);
}

// The blocks go back to the system, which then has no more for one of their size.
TEST(Arena, ResetWithoutMemoryForOneBlockStartsAnew) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need address space themselves";
  constexpr std::ptrdiff_t kLarge = std::ptrdiff_t{1} << 26;
  Arena arena;
  (void)arena.Take<std::byte>(kLarge);
  (void)arena.Take<std::byte>(2 * kLarge);
  {
    const testing::AddressSpaceLimit limit(-3 * kLarge);
    arena.Reset();
  }
  EXPECT_EQ(arena.capacity(), 0U);
  const auto bytes = arena.Take<std::byte>(100);
  bytes[99] = std::byte{1};
  EXPECT_EQ(bytes[99], std::byte{1});
}

TEST(Arena, ReservesWhatWorkWillNeed) {
  Arena arena;
  (void)arena.Take<std::byte>(100);
  arena.ResetAndReserve(1 << 20);
  EXPECT_GE(arena.capacity(), std::size_t{1} << 20);
  const std::size_t held = arena.capacity();
  (void)arena.Take<std::byte>((1 << 20) - 4096);
  EXPECT_EQ(arena.capacity(), held);
  arena.ResetAndReserve(10);
  EXPECT_EQ(arena.capacity(), held);
}

}  // namespace
}  // namespace kvserve
