// Blocks double in size. Reset merges them into one, so that a steady state runs in a single block
// and takes no memory from the system. Under the address sanitizer, what is not given out may not
// be touched, and pieces have a gap between them.
#include "base/arena.h"

#include <algorithm>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define KVSERVE_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVSERVE_POISONS 1
#endif
#endif
#ifdef KVSERVE_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace kvserve {
namespace {

constexpr std::size_t kFirstBlock = std::size_t{1} << 16;

#ifdef KVSERVE_POISONS
constexpr std::size_t kGap = 64;
void Forbid(const std::byte* bytes, std::size_t size) {
  ASAN_POISON_MEMORY_REGION(bytes, size);
}
void Allow(const std::byte* bytes, std::size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(bytes, size);
}
#else
constexpr std::size_t kGap = 0;
void Forbid(const std::byte* /*bytes*/, std::size_t /*size*/) {}
void Allow(const std::byte* /*bytes*/, std::size_t /*size*/) {}
#endif

std::byte* Allocate(std::size_t bytes, std::size_t alignment) {
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment}));
}

}  // namespace

void Arena::Free::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{kAlignment});
}

std::byte* Arena::TakeBytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < rounded) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size =
        std::max(rounded, blocks_.empty() ? kFirstBlock : 2 * blocks_.back().size);
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({std::unique_ptr<std::byte, Free>(Allocate(size, kAlignment)), size});
    Forbid(blocks_.back().bytes.get(), size);
  }
  std::byte* const taken = blocks_[block_].bytes.get() + used_;
  used_ += rounded;
  Allow(taken, bytes);
  return taken;
}

void Arena::Reset() noexcept {
  block_ = 0;
  used_ = 0;
  if (blocks_.size() > 1) {
    const std::size_t total = capacity();
    blocks_.clear();  // before the new one is asked for, so that both are never held
    auto* const merged =
        static_cast<std::byte*>(::operator new (total, std::align_val_t{kAlignment}, std::nothrow));
    if (merged == nullptr) return;  // Take asks for what it needs
    blocks_.push_back({std::unique_ptr<std::byte, Free>(merged), total});
  }
  for (const Block& block : blocks_) Forbid(block.bytes.get(), block.size);
}

void Arena::ResetAndReserve(std::size_t bytes) {
  Reset();
  if (capacity() >= bytes) return;
  std::unique_ptr<std::byte, Free> larger(Allocate(bytes, kAlignment));
  blocks_.clear();
  blocks_.push_back({std::move(larger), bytes});
  Forbid(blocks_.back().bytes.get(), bytes);
}

std::size_t Arena::capacity() const {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace kvserve
