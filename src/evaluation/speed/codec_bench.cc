#include "evaluation/speed/codec_bench.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/try.h"
#include "kernels/isa/isa.h"

namespace kvserve {
namespace {

constexpr std::array<std::uint32_t, 4> kFrames = {64, 128, 256, kMaxTokens};
constexpr std::array<std::uint32_t, 2> kThreads = {1, 2};

// Puts back the instruction set that was in force.
class IsaScope {
 public:
  IsaScope() : before_(ActiveIsa()) {}
  ~IsaScope() { static_cast<void>(SetIsa(before_)); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  std::string before_;
};

tl::unexpected<Error> Named(const CodecCase& work, const Error& error) {
  return MakeError(error.code, work.name + ": " + error.message);
}

bool Unsupported(const Error& error) {
  return error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kInvalidArgument ||
         error.code == ErrorCode::kMismatch;
}

Status RunCase(const KvSet& data, const CodecCase& work, const CodecAnswer& answer,
               const BenchOptions& options, const std::vector<std::string>& isas,
               const std::function<void(const CodecRow&)>& row) {
  const auto chunks = data.Chunks(work.frame_tokens);
  for (const std::string& isa : isas) {
    KVSERVE_TRY(SetIsa(isa));
    for (const std::uint32_t threads : work.threads) {
      CodecRow result;
      KVSERVE_ASSIGN(result.speed, MeasureCodec(chunks, work.profile, answer,
                                                {threads, options.seconds, data.prompt_tokens(),
                                                 options.calibration}));
      result.name = work.name;
      result.profile = work.profile.name;
      result.data = data.name();
      result.dtype = data.request().geometry->dtype;
      result.isa = isa;
      result.threads = threads;
      result.frame_tokens = work.frame_tokens;
      result.whole_request = work.frame_tokens == data.request().tokens.size();
      result.error = answer.error;
      row(result);
    }
  }
  return {};
}

// The request as its longest frame.
std::vector<CodecCase> WithoutRepeats(const KvSet& data, std::span<const CodecCase> cases) {
  std::vector<CodecCase> kept;
  std::set<std::pair<std::string, std::uint32_t>> seen;
  for (CodecCase work : cases) {
    work.frame_tokens = std::min(work.frame_tokens, data.request().tokens.size());
    if (seen.emplace(work.profile.name, work.frame_tokens).second) kept.push_back(std::move(work));
  }
  return kept;
}

}  // namespace

std::vector<std::string> DefaultProfiles() {
  constexpr std::array kNames = {"none",
                                 "none|lz4",
                                 "none|zstd",
                                 "lossless",
                                 "uniform|none",
                                 "uniform|rans",
                                 "uniform|bitpack",
                                 kHeadlineProfile,
                                 "hadamard|uniform|bitpack",
                                 "affine|uniform|rans",
                                 "delta|uniform|rans",
                                 "fp8",
                                 "fp8|rans"};
  std::vector<std::string> names;
  for (const char* name : kNames) {
    if (ParseProfile(name)) names.emplace_back(name);
  }
  return names;
}

std::vector<CodecCase> DefaultCases(bool calibrated) {
  std::vector<CodecCase> cases;
  std::vector<std::string> names = DefaultProfiles();
  if (calibrated && ParseProfile(kCalibratedProfile)) names.emplace_back(kCalibratedProfile);
  for (const std::string& name : names) {
    const auto profile = ParseProfile(name);
    const bool detailed = name == kHeadlineProfile || name == "lossless";
    for (const std::uint32_t frame_tokens : kFrames) {
      if (!detailed && frame_tokens != 256) continue;
      cases.push_back({name, *profile, frame_tokens, {kThreads.begin(), kThreads.end()}});
    }
  }
  return cases;
}

Result<std::vector<CodecCase>> CrossCases(std::span<const std::string> profiles,
                                          std::span<const std::uint32_t> frame_tokens,
                                          std::span<const std::uint32_t> threads) {
  std::vector<CodecCase> cases;
  for (const std::string& name : profiles) {
    KVSERVE_ASSIGN(const Profile profile, ParseProfile(name));
    for (const std::uint32_t tokens : frame_tokens) {
      cases.push_back({name, profile, tokens, {threads.begin(), threads.end()}});
    }
  }
  return cases;
}

Status CheckIsas(std::span<const std::string> isas) {
  const IsaScope restore;
  for (const std::string& name : isas) KVSERVE_TRY(SetIsa(name));
  return {};
}

Status RunCodecBench(const KvSet& data, std::span<const CodecCase> cases,
                     const BenchOptions& options, const std::function<void(const CodecRow&)>& row) {
  const IsaScope restore;
  const std::string isa(ActiveIsa());
  const std::vector<std::string> isas =
      options.isas.empty() ? std::vector<std::string>{isa} : options.isas;
  KVSERVE_TRY(CheckIsas(isas));
  for (const CodecCase& work : WithoutRepeats(data, cases)) {
    KVSERVE_TRY(SetIsa(isas.front()));
    const auto first = data.Chunks(work.frame_tokens).front();
    const auto answer =
        ReferenceAnswer(first, work.profile, data.prompt_tokens(), options.calibration.get());
    if (!answer) {
      if (options.skip_unsupported && Unsupported(answer.error())) continue;
      return Named(work, answer.error());
    }
    if (const auto status = RunCase(data, work, *answer, options, isas, row); !status) {
      return Named(work, status.error());
    }
  }
  return {};
}

}  // namespace kvserve
