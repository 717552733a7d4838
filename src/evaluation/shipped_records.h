// Records that are part of the program (data/evaluation), so that it can evaluate without data.
#pragma once

#include <string_view>
#include <vector>

#include "evaluation/record.h"

namespace kvserve {

[[nodiscard]] std::string_view ShippedRecordsText();
[[nodiscard]] Result<std::vector<Record>> ShippedRecords();

}  // namespace kvserve
