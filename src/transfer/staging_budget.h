// A bound on the bytes that wait in a sender, shared out and given back.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace kvserve {

// Thread-safe. Outlives its shares.
class StagingBudget {
 public:
  explicit StagingBudget(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->used_bytes_ -= bytes_;
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // To fewer bytes, or more: what is there already is counted, whatever the bound.
    void Set(std::uint64_t bytes) {
      if (budget_ == nullptr) return;
      budget_->used_bytes_ += bytes - bytes_;
      bytes_ = bytes;
    }
    [[nodiscard]] bool holds() const { return budget_ != nullptr; }

   private:
    friend class StagingBudget;
    Share(StagingBudget& budget, std::uint64_t bytes) : budget_(&budget), bytes_(bytes) {}

    StagingBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  // Holds nothing when the bound would be passed.
  [[nodiscard]] Share Take(std::uint64_t bytes) {
    std::uint64_t used = used_bytes_;
    do {
      if (bytes > max_bytes_ || used > max_bytes_ - bytes) return {};
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
    return {*this, bytes};
  }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::uint64_t max_bytes() const { return max_bytes_; }

 private:
  const std::uint64_t max_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

}  // namespace kvserve
