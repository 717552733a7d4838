#include "transfer/node_hello.h"

#include "base/try.h"
#include "stages/registry.h"

namespace kvserve {

Result<Hello> MakeHello(const Fingerprint& model, const KvGeometry& geometry, NodeRole role) {
  Hello hello;
  hello.role = role;
  KVSERVE_ASSIGN(hello.epoch, NewEpoch());
  hello.model = model;
  hello.geometry = geometry;
  for (const StageEntry& entry : BuiltinStages()) {
    hello.stages.push_back({entry.info->id, entry.info->version});
  }
  return hello;
}

}  // namespace kvserve
