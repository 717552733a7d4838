// operator new that counts live bytes and ends the process above the cap: a decoder that believes a
// length from the wire fails the replay instead of passing on a machine with much memory.
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kCapBytes = std::size_t{64} << 20;
std::atomic<std::size_t> live_bytes{0};

void* Counted(void* block, std::size_t wanted) {
  const std::size_t size = block == nullptr ? wanted : malloc_usable_size(block);
  if (block == nullptr || live_bytes.fetch_add(size) + size > kCapBytes) {
    std::fprintf(stderr, "allocation of %zu bytes passes the cap of %zu live bytes\n", wanted,
                 kCapBytes);
    std::abort();
  }
  return block;
}

void Release(void* block) {
  if (block != nullptr) live_bytes.fetch_sub(malloc_usable_size(block));
  std::free(block);
}

void* Allocate(std::size_t size) {
  return Counted(std::malloc(size == 0 ? 1 : size), size);
}

void* AllocateAligned(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return Counted(std::aligned_alloc(step, (size + step) / step * step), size);
}

}  // namespace

void* operator new(std::size_t size) {
  return Allocate(size);
}
void* operator new[](std::size_t size) {
  return Allocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return AllocateAligned(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return AllocateAligned(size, alignment);
}
// Replaced like the others: under sanitizers a default would not call them.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateAligned(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateAligned(size, alignment);
}
void operator delete(void* block) noexcept {
  Release(block);
}
void operator delete[](void* block) noexcept {
  Release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  Release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  Release(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  Release(block);
}
void operator delete[](void* block, std::align_val_t) noexcept {
  Release(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  Release(block);
}
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  Release(block);
}
