// Factories of the toy stages; toy_stages.h describes them.
#pragma once

#include <memory>

#include "pipeline/stage.h"

namespace kvserve::testing {

[[nodiscard]] std::unique_ptr<Selector> MakeToyWeigh();
[[nodiscard]] std::unique_ptr<Transform> MakeToyScale(const Settings& settings);
[[nodiscard]] std::unique_ptr<Transform> MakeToyPredict();
[[nodiscard]] std::unique_ptr<Quantizer> MakeToyCopy();
[[nodiscard]] std::unique_ptr<Quantizer> MakeToyClasses(const Settings& settings);
[[nodiscard]] std::unique_ptr<Codec> MakeToyRaw();
[[nodiscard]] std::unique_ptr<Codec> MakeToyContext(const Settings& settings);

}  // namespace kvserve::testing
