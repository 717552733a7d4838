// How much of a retrieval head each KV head is.
#include <string>

#include "library/sections/section.h"
#include "library/sections/section_floats.h"

namespace kvserve {
namespace {

using Contents = CalibrationArtefact::Contents;

bool Present(const Contents& contents) {
  return std::any_of(contents.head_scores.begin(), contents.head_scores.end(),
                     [](const std::vector<float>& layer) { return !layer.empty(); });
}

void Write(const Contents& contents, ByteWriter& out) {
  for (const std::vector<float>& layer : contents.head_scores) {
    out.Put(static_cast<std::uint8_t>(layer.empty() ? 0 : 1));
    out.PutBytes(std::as_bytes(std::span(layer)));
  }
}

Status Read(ByteReader& in, Contents& contents) {
  contents.head_scores.resize(contents.geometry.layers.size());
  for (std::size_t i = 0; i < contents.head_scores.size(); ++i) {
    KVSERVE_ASSIGN(const bool present, ReadPresent(in));
    if (!present) continue;
    KVSERVE_TRY(ReadFloats(in, contents.geometry.layers[i].kv_heads, contents.head_scores[i]));
  }
  return {};
}

Status Check(const Contents& contents) {
  const auto& layers = contents.geometry.layers;
  if (contents.head_scores.size() != layers.size() || !Present(contents)) {
    return Wrong("there is no layer, or not one for each of the model's");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& scores = contents.head_scores[i];
    const std::string where = "layer " + std::to_string(i) + ": ";
    if (!scores.empty() && scores.size() != layers[i].kv_heads) {
      return Wrong(where + std::to_string(scores.size()) + " scores for " +
                   std::to_string(layers[i].kv_heads) + " KV heads");
    }
    for (std::size_t head = 0; head < scores.size(); ++head) {
      if (scores[head] >= 0 && scores[head] <= 1) continue;
      return Wrong(where + "score of head " + std::to_string(head) + " is outside 0..1");
    }
  }
  return {};
}

}  // namespace

const CalibrationSection& HeadScoresSection() {
  static const CalibrationSection section = {.kind = 6,
                                             .name = "head_scores",
                                             .present = Present,
                                             .write = Write,
                                             .read = Read,
                                             .check = Check};
  return section;
}

}  // namespace kvserve
