// What people want to know of a profile before they trust it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "kvserve/profile.h"
#include "pipeline/chain.h"
#include "pipeline/stage.h"

namespace kvserve {

// Selectors scale nothing and are not in the list.
struct StageFacts {
  std::uint16_t id = 0;
  ScaleSource k_scales = ScaleSource::kUnit;
  ScaleSource v_scales = ScaleSource::kUnit;
};

struct ProfileFacts {
  bool lossless = false;  // the whole chain gives back every bit
  bool needs_artefact = false;
  std::string_view needs_queries;  // the selector that needs the prompt's queries; empty: none
  std::string_view may_drop;       // the selector that may leave tokens out; empty: none does
  std::vector<StageFacts> stages;  // transforms, quantizer, codec
};

// Errors as Chain::Create.
[[nodiscard]] Result<ProfileFacts> FactsOf(const std::vector<StageSpec>& stages, DType dtype,
                                           ProfileOrigin origin);

// For receivers that need every token: kUnsupported when the profile may drop some, naming the
// selector and the way out.
[[nodiscard]] Status CheckKeepsTokens(const ProfileFacts& facts);

// For senders that have no queries: kUnsupported when the profile needs some, naming the selector.
[[nodiscard]] Status CheckNeedsNoQueries(const ProfileFacts& facts);

// Whether decoding gives back every bit; false for a stage that this build lacks.
[[nodiscard]] bool IsLossless(const std::vector<StageSpec>& stages);
// "lossless" or "lossy": a cache must not hand lossy KV to a request that asked for lossless.
[[nodiscard]] std::string_view QualityClassName(bool lossless);
// Of a profile by name, for logs and metrics; "unknown" when it does not parse.
[[nodiscard]] std::string_view QualityClassOf(std::string_view profile);

// "hadamard:unit uniform:frame rans:calibrated"; where K and V differ, "affine:calibrated/unit".
[[nodiscard]] std::string ScaleSourcesText(const ProfileFacts& facts);

// "unit", "frame", "profile" or "calibrated".
[[nodiscard]] std::string_view ScaleSourceName(ScaleSource source);

}  // namespace kvserve
