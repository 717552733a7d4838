#include "kernels/quantize/escapes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/try.h"

namespace kvserve {
namespace {

constexpr std::size_t kMinBytes = 1 + sizeof(float);

}  // namespace

void EscapeList::Add(Escape escape, Arena& arena) {
  if (last_ == nullptr || last_->count == kBlock) {
    Block* block = arena.New<Block>();
    (last_ == nullptr ? first_ : last_->next) = block;
    last_ = block;
  }
  last_->escapes[last_->count++] = escape;
  ++count_;
}

void EscapeList::Append(const EscapeList& later) {
  if (later.first_ == nullptr) return;
  (last_ == nullptr ? first_ : last_->next) = later.first_;
  last_ = later.last_;
  count_ += later.count_;
}

void EscapeList::Write(ByteWriter& out) const {
  out.PutVarint(count_);
  std::uint64_t next = 0;
  for (const Block* block = first_; block != nullptr; block = block->next) {
    for (std::size_t i = 0; i < block->count; ++i) {
      out.PutVarint(block->escapes[i].index - next);
      out.Put(block->escapes[i].value);
      next = block->escapes[i].index + 1;
    }
  }
}

Result<std::span<const Escape>> ReadEscapes(std::uint64_t values, Arena& arena, ByteReader& in) {
  KVSERVE_ASSIGN(const auto count, in.GetVarint());
  if (count > in.remaining() / kMinBytes) {
    return MakeError(ErrorCode::kCorruptData, std::to_string(count) + " escapes do not fit in " +
                                                  std::to_string(in.remaining()) + " bytes");
  }
  const auto escapes = arena.Take<Escape>(count);
  std::uint64_t next = 0;
  for (Escape& escape : escapes) {
    KVSERVE_ASSIGN(const auto gap, in.GetVarint());
    if (gap >= values - next) {
      return MakeError(ErrorCode::kCorruptData, "an escape is beyond its plane");
    }
    escape.index = next + gap;
    KVSERVE_ASSIGN(escape.value, in.Get<float>());
    if (!std::isfinite(escape.value)) {
      return MakeError(ErrorCode::kCorruptData, "an escape is not finite");
    }
    next = escape.index + 1;
  }
  return escapes;
}

void ApplyEscapes(std::span<const Escape> escapes, std::uint64_t first, std::span<float> values) {
  auto escape =
      std::lower_bound(escapes.begin(), escapes.end(), first,
                       [](const Escape& one, std::uint64_t index) { return one.index < index; });
  for (; escape != escapes.end() && escape->index - first < values.size(); ++escape) {
    values[escape->index - first] = escape->value;
  }
}

}  // namespace kvserve
