// Encoders and decoders that have seen a shape take no memory for the frames that follow. A program
// of its own, since it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "kvserve/codec.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/chain.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"
#include "stages/testing/chains.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (counting) ++allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t));
}
void* operator new[](std::size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kvserve {
namespace {

template <typename Work>
std::size_t AllocationsOf(const Work& work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

TEST(SteadyState, TheCounterCounts) {
  static const void* volatile seen;  // or a compiler leaves the allocation out
  const auto allocate = [] {
    const std::vector<int> values(5);
    seen = values.data();
  };
  EXPECT_EQ(AllocationsOf(allocate), 1U);
  EXPECT_NE(seen, nullptr);
}

class SteadyState : public ::testing::TestWithParam<std::string> {};

// The frames of a long prompt: the same shapes, other tokens and values. The first frame, which has
// token 0, has shapes of its own.
TEST_P(SteadyState, TakesNoMemoryForFramesOfKnownShapes) {
  const Profile profile = ParseProfile(GetParam()).value();
  const KvGeometry geometry = testing::MakeGeometry(
      DType::kBFloat16, {{3, 64, 64}, {3, 64, 64}, {2, 128, 80, 50}, {1, 576, 0}});
  constexpr std::uint32_t kTokens = 100;
  std::vector<KvBuffer> chunks;
  for (std::uint32_t i = 0; i < 8; ++i) {
    chunks.push_back(testing::MakeChunk(geometry, {kTokens * i, kTokens * (i + 1)}, 0, i));
  }
  const auto artefact = testing::SampleArtefact(geometry);
  for (const std::uint32_t threads : {1U, 2U}) {
    const CodecOptions options{.threads = threads, .calibration = artefact};
    FrameEncoder encoder = FrameEncoder::Create(profile, options).value();
    FrameDecoder decoder = FrameDecoder::Create(options).value();
    std::vector<std::byte> frame;
    KvBuffer decoded;
    StageSeconds encode_seconds;
    StageSeconds decode_seconds;
    // What a window keeps of a frame depends on where the frame lies, so all of them are seen once.
    const bool selects = profile.stages.front().id < 0x0200;
    const std::size_t known = selects ? chunks.size() : 4;
    for (std::size_t i = 0; i < known + known; ++i) {
      const ConstKvView view = std::as_const(chunks[i % chunks.size()]).view();
      frame.clear();
      frame.reserve(2 * RawBytes(view) + 65536);  // growth of `out` is the caller's
      const std::size_t encoding = AllocationsOf([&] {
        if (!encoder.Encode(view, {.prompt_tokens = 800}, frame, &encode_seconds)) std::abort();
      });
      const std::size_t decoding = AllocationsOf([&] {
        if (!decoder.Decode(frame, {}, decoded, &decode_seconds)) std::abort();
      });
      if (i < known) continue;
      EXPECT_EQ(encoding, 0U) << "frame " << i << ", " << threads << " threads";
      EXPECT_EQ(decoding, 0U) << "frame " << i << ", " << threads << " threads";
    }
  }
}

// Every chain that the stage table can form but those with feedback, which the reference executor
// may code plane by plane, and calibrated ones.
std::vector<std::string> FastChains() {
  std::vector<std::string> chains = {
      "hadamard|uniform:k_levels=16,v_levels=8|rans",
      "affine:source=calibrated|uniform|rans",
      "hadamard|uniform|rans:tables=calibrated",
      "lossless|rans:tables=calibrated",
      "hadamard|mixed:low_share=0.4,scope=model,reconstruct=mean|rans",
      "window:recent=330,inside=4|mixed:low_share=0.4|rans",
      "window:recent=750,outside=0|hadamard|mixed|bitpack",
      "window:recent=330,inside=4|unrope|whiten|predict|steps|rans"};
  for (const std::string& text : testing::AllChains()) {
    const auto chain = Chain::Create(ParseProfile(text)->stages, BuiltinStages(), DType::kBFloat16,
                                     Device::kHost, ProfileOrigin::kCaller);
    if (!chain->needs_feedback()) chains.push_back(text);
  }
  return chains;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& chain) {
  std::string name;
  for (const char c : chain.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Profiles, SteadyState, ::testing::ValuesIn(FastChains()), TestName);

}  // namespace
}  // namespace kvserve
