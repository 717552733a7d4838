// Scratch memory that is given out piece by piece and taken back all at once; its blocks are kept,
// so that work which repeats allocates nothing after its first rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvserve {

// One thread at a time.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `count` elements, not initialised, 64-byte aligned, valid until Reset. Throws std::bad_alloc.
  template <typename T>
  requires std::is_trivially_destructible_v<T>
  [[nodiscard]] std::span<T> Take(std::size_t count) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer, whose own size is meant
    constexpr std::size_t kBytes = sizeof(T);
    if (count > static_cast<std::size_t>(-1) / 2 / kBytes) throw std::bad_alloc();
    return {reinterpret_cast<T*>(TakeBytes(count * kBytes)), count};
  }
  // The same, all zero.
  template <typename T>
  requires std::is_trivial_v<T>
  [[nodiscard]] std::span<T> TakeZeroed(std::size_t count) {
    const auto taken = Take<T>(count);
    std::fill(taken.begin(), taken.end(), T{});
    return taken;
  }
  // One object, constructed; its destructor is never run.
  template <typename T, typename... Arguments>
  requires std::is_trivially_destructible_v<T>
  [[nodiscard]] T* New(Arguments&&... arguments) {
    return new (TakeBytes(sizeof(T))) T(std::forward<Arguments>(arguments)...);
  }

  // Takes everything back; what was given out is invalid from now on. Without memory for one block
  // in place of many, the arena holds nothing, as a new one.
  void Reset() noexcept;
  // The same, and holds at least so many bytes from now on. Throws std::bad_alloc.
  void ResetAndReserve(std::size_t bytes);
  // Bytes held from the system.
  [[nodiscard]] std::size_t capacity() const;

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    std::size_t size = 0;
  };

  [[nodiscard]] std::byte* TakeBytes(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // in use
  std::size_t used_ = 0;   // of it
};

}  // namespace kvserve
