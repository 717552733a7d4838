// How a node of this build introduces itself.
#pragma once

#include "kvserve/geometry.h"
#include "net/handshake.h"

namespace kvserve {

// With an epoch of its own and the stages of this build.
[[nodiscard]] Result<Hello> MakeHello(const Fingerprint& model, const KvGeometry& geometry,
                                      NodeRole role);

}  // namespace kvserve
