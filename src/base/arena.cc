// Blocks double in size. Reset merges them into one, so that a steady state runs in a single block
// and takes no memory from the system.
#include "base/arena.h"

#include <algorithm>
#include <new>

namespace kvserve {
namespace {

constexpr std::size_t kFirstBlock = std::size_t{1} << 16;

std::byte* Allocate(std::size_t bytes, std::size_t alignment) {
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment}));
}

}  // namespace

void Arena::Free::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{kAlignment});
}

std::byte* Arena::TakeBytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < rounded) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size =
        std::max(rounded, blocks_.empty() ? kFirstBlock : 2 * blocks_.back().size);
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({std::unique_ptr<std::byte, Free>(Allocate(size, kAlignment)), size});
  }
  std::byte* const taken = blocks_[block_].bytes.get() + used_;
  used_ += rounded;
  return taken;
}

void Arena::Reset() {
  if (blocks_.size() > 1) {
    const std::size_t total = capacity();
    blocks_.clear();
    blocks_.push_back({std::unique_ptr<std::byte, Free>(Allocate(total, kAlignment)), total});
  }
  block_ = 0;
  used_ = 0;
}

std::size_t Arena::capacity() const {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace kvserve
