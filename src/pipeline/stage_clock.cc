#include "pipeline/stage_clock.h"

#include <algorithm>
#include <string>

namespace kvserve {

void StageClock::Start(bool running) {
  running_ = running;
  if (!running) return;
  for (auto& slot : nanoseconds_) slot.store(0, std::memory_order_relaxed);
}

void StageClock::Report(const Chain& chain, StageSeconds& seconds) const {
  const auto add = [&](std::string_view name, std::size_t slot) {
    const auto taken = nanoseconds_[std::min(slot, kSlots - 1)].load(std::memory_order_relaxed);
    AddSeconds(name, 1e-9 * static_cast<double>(taken), seconds);
  };
  if (!chain.native()) add("convert", ClockSlot::kConvert);
  add(chain.quantizer().info->name, ClockSlot::kQuantizer);
  add(chain.codec().info->name, ClockSlot::kCodec);
  std::size_t slot = ClockSlot::kFirstTransform;
  for (const auto& transform : chain.transforms()) add(transform.info->name, slot++);
  for (const auto& selector : chain.selectors()) add(selector.info->name, slot++);
}

void AddSeconds(std::string_view name, double value, StageSeconds& seconds) {
  for (auto& [known, total] : seconds) {
    if (known != name) continue;
    total += value;
    return;
  }
  seconds[std::string(name)] = value;
}

}  // namespace kvserve
