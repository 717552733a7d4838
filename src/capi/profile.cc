// Profiles and calibration artefacts.
#include "capi/capi.h"
#include "kvserve/stages.h"

extern "C" {

using namespace kvserve;
using namespace kvserve::capi;

kvserve_status kvserve_profile_parse(const char* text, kvserve_profile** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a text and a place for the profile", text, out); !status) return status;
    auto profile = ParseProfile(text);
    if (!profile) return tl::unexpected(profile.error());
    *out = std::make_unique<kvserve_profile>(kvserve_profile{std::move(*profile)}).release();
    return {};
  });
}

void kvserve_profile_destroy(kvserve_profile* profile) {
  delete profile;
}

const char* kvserve_profile_name(const kvserve_profile* profile) {
  return profile == nullptr ? "" : profile->profile.name.c_str();
}

int kvserve_profile_is_lossless(const kvserve_profile* profile) {
  return profile != nullptr && ProfileIsLossless(profile->profile) ? 1 : 0;
}

int kvserve_profile_needs_calibration(const kvserve_profile* profile) {
  return profile != nullptr && ProfileNeedsCalibration(profile->profile) ? 1 : 0;
}

const char* kvserve_profile_may_drop(const kvserve_profile* profile) {
  // Names of stages are literals.
  return profile == nullptr || ProfileMayDrop(profile->profile).empty()
             ? ""
             : ProfileMayDrop(profile->profile).data();
}

kvserve_status kvserve_calibration_load(const char* path, kvserve_calibration** out) {
  return Run([&]() -> Status {
    if (auto status = Need("a path and a place for the artefact", path, out); !status) {
      return status;
    }
    auto artefact = LoadCalibration(path);
    if (!artefact) return tl::unexpected(artefact.error());
    *out =
        std::make_unique<kvserve_calibration>(kvserve_calibration{std::move(*artefact)}).release();
    return {};
  });
}

void kvserve_calibration_destroy(kvserve_calibration* calibration) {
  delete calibration;
}

}  // extern "C"
