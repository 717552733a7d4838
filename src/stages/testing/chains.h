// Every chain that the stage table can form, for tests over all of them.
#pragma once

#include <string>
#include <vector>

#include "kvserve/profile.h"
#include "pipeline/stage.h"

namespace kvserve::testing {

// Short forms at default settings: every quantizer with every codec, real ones also with each
// transform (and one codec: what a transform does cannot be seen by a codec).
[[nodiscard]] std::vector<std::string> AllChains();

// Short forms with one setting of one stage changed: each choice, both ends of each range, K and V
// together and apart. The rest of the chain is the shortest in which the stage can be used.
[[nodiscard]] std::vector<std::string> AllSettings();

[[nodiscard]] bool IsLossless(const Profile& profile);

}  // namespace kvserve::testing
