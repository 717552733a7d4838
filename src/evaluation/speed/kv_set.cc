#include "evaluation/speed/kv_set.h"

#include <algorithm>
#include <utility>

#include "base/plane_bytes.h"
#include "base/token_slice.h"
#include "base/try.h"

namespace kvserve {
namespace {

void CopyPlane(const ConstPlaneView& from, const PlaneView& to) {
  if (from.data == nullptr || to.data == nullptr) return;
  GatherBytes(from, {to.data, static_cast<std::size_t>(to.values() * DTypeBytes(to.dtype))});
}

}  // namespace

Status CopyKv(const ConstKvView& from, KvBuffer& to) {
  std::vector<KvBuffer::LayerTokens> layers;
  for (const auto& layer : from.layers) layers.push_back({layer.layer, layer.tokens});
  KVSERVE_TRY(to.Resize(*from.geometry, from.tokens, layers));
  const KvView view = to.view();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CopyPlane(from.layers[i].k, view.layers[i].k);
    CopyPlane(from.layers[i].v, view.layers[i].v);
  }
  return {};
}

Result<KvSet> KvSet::Create(std::string name, KvBuffer request, std::uint32_t prompt_tokens,
                            std::uint64_t lap_bytes) {
  const std::uint64_t raw_bytes = RawBytes(std::as_const(request).view());
  if (raw_bytes == 0) return MakeError(ErrorCode::kBadInput, name + " holds no tokens");
  const auto copies = std::max<std::uint64_t>(1, (lap_bytes + raw_bytes - 1) / raw_bytes);
  KvSet set;
  set.name_ = std::move(name);
  set.prompt_tokens_ = prompt_tokens;
  set.copies_.reserve(copies);
  set.copies_.push_back(std::move(request));
  while (set.copies_.size() < copies) {
    KvBuffer copy;
    KVSERVE_TRY(CopyKv(std::as_const(set.copies_.front()).view(), copy));
    set.copies_.push_back(std::move(copy));
  }
  return set;
}

std::vector<ConstKvView> KvSet::Chunks(std::uint32_t frame_tokens) const {
  std::vector<ConstKvView> chunks;
  for (const KvBuffer& copy : copies_) {
    const TokenRange all = copy.tokens();
    for (std::uint32_t begin = all.begin; begin < all.end;) {
      const std::uint32_t end = begin + std::min(frame_tokens, all.end - begin);
      ConstKvView chunk = SliceTokens(copy.view(), {begin, end});
      if (RawBytes(chunk) != 0) chunks.push_back(std::move(chunk));
      begin = end;
    }
  }
  return chunks;
}

}  // namespace kvserve
