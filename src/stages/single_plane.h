// Settings of V against a model that has none.
#pragma once

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/profile.h"

namespace kvserve {

// Of a model whose layers are all single-plane (MLA): kInvalidArgument names a V setting that is
// neither that of K nor the default, since whoever chose it expects it to do something.
[[nodiscard]] Status CheckSplitSettings(const Profile& profile, const KvGeometry& geometry);

}  // namespace kvserve
