// A preset whose name is also a stage's is that stage at its defaults, so that a text means the
// same either way.
#include "stages/presets.h"

#include <algorithm>
#include <string>

#include "base/try.h"
#include "pipeline/profile_options.h"
#include "pipeline/profile_text.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

constexpr PresetDescription kPresets[] = {
    {"published", "hadamard|mixed:levels=16,grids=float16|rans",
     "KVServe (SIGCOMM 2026): K per head and channel over the request, V per token, Hadamard",
     "token 0 is raw; low_share (MixHQ) is 0 until set; tables are per frame and layer"},
    {"published-unified", "mixed:k_levels=12,k_low_levels=6,low_share=0.8,grids=float16|rans",
     "KVServe (SIGCOMM 2026), one profile for all workloads: MixHQ with 80 % of heads at low "
     "levels",
     "token 0 is raw; the configuration is the default of the public artifact"},
    {"cachegen",
     "mixed:levels=16,k_first_layers=10,v_first_layers=2,first_levels=32,axis=token,"
     "raw_first=false,grids=float16|rans",
     "CacheGen (SIGCOMM 2024) as LMCache ships it: finer first layers, a range per token",
     "ranges are not symmetric; one table per layer in place of one per channel"},
    {"kivi2",
     "uniform:levels=4,v_axis=group,v_group=32,raw_first=false,k_group_tokens=32,grids=float16"
     "|bitpack",
     "KIVI (ICML 2024): 2 bits, K per channel of 32 tokens, V per token in groups of 32 channels",
     "no residual window of the last tokens in full precision"},
    {"kivi4",
     "uniform:levels=16,v_axis=group,v_group=32,raw_first=false,k_group_tokens=32,grids=float16"
     "|bitpack",
     "KIVI (ICML 2024) at 4 bits", "as kivi2"},
    {"quarot4",
     "hadamard|uniform:levels=16,axis=group,group=128,raw_first=false,grids=float16|bitpack",
     "QuaRot (NeurIPS 2024): rotated heads, 4 bits, asymmetric per token and head",
     "the rotation is undone at the receiver, not folded into weights; ranges are not clipped"},
    {"turboquant3", "hadamard|lloydmax:levels=8,raw_first=false|bitpack",
     "TurboQuant (2025): random rotation, norm and a Lloyd-Max codebook of 3 bits per coordinate",
     "signed Hadamard for the rotation, norms corrected, no sign bits of the residual"},
    {"turboquant4", "hadamard|lloydmax:levels=16,raw_first=false|bitpack",
     "TurboQuant (2025) at 4 bits", "as turboquant3"},
    {"fp8", "fp8", "8-bit floats E4M3 as KV cache type of serving engines (2023)",
     "power-of-two scales of the frame, K per channel and V per token, in place of one per layer"},
    {"nvfp4", "fp4:raw_first=false|bitpack",
     "NVFP4 (NVIDIA, 2025): E2M1 elements, an E4M3 scale per 16 of them, one float32 per tensor",
     "negative zero has no code; ties go down"},
    {"streamingllm", "window:recent=508,outside=0|mixed:levels=256|rans",
     "StreamingLLM (ICLR 2024): 4 sinks and a window of the last tokens, the others dropped",
     "kept tokens have 8 bits; they keep their positions; tokens after the prompt are all kept"},
    {"h2o", "attention:sinks=0,recent=128,outside=0,observed=0,pool=1|mixed:levels=256|rans",
     "H2O (NeurIPS 2023): recent tokens and those with the most attention mass, half of all",
     "one choice for all heads and layers, once, after the prompt; kept tokens have 8 bits"},
    {"snapkv", "attention:sinks=0,outside=0|mixed:levels=256|rans",
     "SnapKV (NeurIPS 2024): tokens that the last 32 queries look at, pooled over 7, half of all",
     "one choice for all heads and layers; kept tokens have 8 bits"},
    {"kivi-quarot", "hadamard|uniform:levels=16,v_axis=group,group_tokens=64|rans",
     "KIVI's grouping and QuaRot's rotation (both 2024), rANS in place of packing",
     "K per channel of 64 tokens, V per token in groups of 64 channels; token 0 is raw"},
    {"published-unroped", "unrope|affine|hadamard|uniform:k_levels=12,axis=token|rans",
     "KVServe (SIGCOMM 2026) with RoPE undone and means taken out before the transform (2026)",
     "K and V per token, 12 and 8 levels; zero and step in one or two bytes; token 0 is raw"},
    {"klt-expected", "expected|unrope|klt:scope=joint|mixed:levels=32,axis=tensor|rans",
     "KVTC's transform over all heads with the weights of expected attention (both 2025)",
     "one step for all components, finer by weight; one table per token class; token 0 is raw"},
    {"calibrated",
     "window:sinks=0,recent=32,outside=1,inside=4|expected:keys=seen,mean=offline,recency=1|unrope|"
     "whiten|predict|steps|contexts",
     "calibrated transform coding of 2026: a KLT in the metric of what errors cost the model, "
     "prediction across layers, steps by expected attention, tables by context",
     "one step for everything; the last 32 tokens of the prompt twice finer; token 0 nearly exact"},
};

}  // namespace

std::span<const PresetDescription> Presets() {
  return kPresets;
}

const PresetDescription* FindPreset(std::string_view name) {
  const auto preset = std::find_if(std::begin(kPresets), std::end(kPresets),
                                   [&](const auto& row) { return row.name == name; });
  return preset == std::end(kPresets) ? nullptr : preset;
}

bool NamesPreset(std::string_view text) {
  return text.find('|') == std::string_view::npos &&
         FindPreset(text.substr(0, text.find(':'))) != nullptr;
}

Result<Profile> ParsePreset(std::string_view text) {
  const std::size_t colon = text.find(':');
  const PresetDescription& preset = *FindPreset(text.substr(0, colon));
  KVSERVE_ASSIGN(const Profile usual, ParseProfileText(preset.profile, BuiltinStages()));
  Profile profile{std::string(preset.name), usual.stages};
  if (colon == std::string_view::npos) return profile;
  KVSERVE_TRY(SetChainOptions(text.substr(colon + 1), BuiltinStages(), profile.stages));
  const std::string options = ChainOptionsText(profile.stages, usual.stages, BuiltinStages());
  if (!options.empty()) profile.name += ":" + options;
  return profile;
}

std::string PresetNames() {
  std::string text;
  for (const PresetDescription& preset : kPresets) {
    if (!text.empty()) text += ", ";
    text += preset.name;
  }
  return text;
}

}  // namespace kvserve
