// What every codec of the table promises: its size bound, that it shrinks, and exact consumption.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/byte_io.h"
#include "library/testing/sample_artefact.h"
#include "pipeline/settings.h"
#include "pipeline/testing/chunk.h"
#include "stages/registry.h"

namespace kvserve {
namespace {

// Planes with their own symbol storage.
class Planes {
 public:
  void Add(std::uint32_t tokens, std::uint32_t columns, std::uint32_t alphabet, bool skewed) {
    auto& symbols = storage_.emplace_back(std::size_t{tokens} * columns);
    for (auto& symbol : symbols) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      const auto high = static_cast<std::uint32_t>(state_ >> 33);
      const bool usual = skewed && high % 16 != 0;
      symbol = static_cast<std::uint8_t>(usual ? alphabet / 2 : (high >> 8) % alphabet);
    }
    SymbolPlane plane;
    plane.layer = static_cast<std::uint32_t>(planes_.size() / 2);
    plane.kind = planes_.size() % 2 == 0 ? PlaneKind::kKey : PlaneKind::kValue;
    plane.tokens = tokens;
    plane.columns = columns;
    plane.alphabet = alphabet;
    planes_.push_back(plane);
  }
  // Valid until the next Add.
  std::span<SymbolPlane> view() {
    for (std::size_t p = 0; p < planes_.size(); ++p) planes_[p].symbols = storage_[p];
    return planes_;
  }
  [[nodiscard]] std::vector<std::vector<std::uint8_t>>& storage() { return storage_; }

 private:
  std::uint64_t state_ = 1;
  std::vector<SymbolPlane> planes_;
  std::vector<std::vector<std::uint8_t>> storage_;
};

std::unique_ptr<Codec> MakeCodec(const StageEntry& entry) {
  const auto settings =
      CheckedSettings(*entry.info, DefaultValues(*entry.info), ErrorCode::kInternal);
  return entry.make_codec(settings.value()).value();
}

class EveryCodec : public ::testing::TestWithParam<StageEntry> {
 protected:
  std::vector<std::byte> Encode(Planes& planes) {
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    arena_.Reset();
    const auto status = codec_->Encode(frame_, planes.view(), writer);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    EXPECT_LE(bytes.size(), codec_->MaxEncodedBytes(planes.view()));
    return bytes;
  }
  // What is left over after decoding into `planes`, or the error.
  Result<std::size_t> Decode(std::span<const std::byte> bytes, Planes& planes) {
    ByteReader reader(bytes);
    arena_.Reset();
    if (auto status = codec_->Decode(frame_, reader, planes.view()); !status) {
      return tl::unexpected(status.error());
    }
    return reader.remaining();
  }
  void ExpectRoundTrip(Planes& planes, const std::string& what) {
    const auto bytes = Encode(planes);
    Planes decoded = planes;
    for (auto& symbols : decoded.storage()) std::fill(symbols.begin(), symbols.end(), 0xEE);
    const auto left = Decode(bytes, decoded);
    ASSERT_TRUE(left.has_value()) << what << ": " << left.error().message;
    EXPECT_EQ(*left, 0U) << what;
    EXPECT_EQ(decoded.storage(), planes.storage()) << what;
  }

  std::unique_ptr<Codec> codec_ = MakeCodec(GetParam());
  Arena arena_;
  Workers workers_;
  std::shared_ptr<const CalibrationArtefact> artefact_ =
      testing::SampleArtefact(testing::MakeGeometry(DType::kFloat16, {{1, 96, 64}, {3, 64, 64}}));
  FrameContext frame_{.artefact = codec_->needs_artefact() ? artefact_.get() : nullptr,
                      .arena = &arena_,
                      .workers = &workers_};
};

TEST_P(EveryCodec, RoundTripsEveryAlphabetWithinItsBound) {
  for (const std::uint32_t alphabet : {1U, 2U, 3U, 8U, 16U, 17U, 200U, 255U, 256U}) {
    for (const bool skewed : {false, true}) {
      for (const std::uint32_t tokens : {0U, 1U, 2U, 7U, 64U}) {
        Planes planes;
        planes.Add(tokens, 96, alphabet, skewed);
        planes.Add(tokens, 1, alphabet, skewed);
        ExpectRoundTrip(planes, std::to_string(alphabet) + " symbols, " + std::to_string(tokens));
      }
    }
  }
}

TEST_P(EveryCodec, RoundTripsPlanesThatDiffer) {
  Planes planes;
  ExpectRoundTrip(planes, "no planes");
  planes.Add(0, 0, 256, false);
  ExpectRoundTrip(planes, "an empty plane");
  planes.Add(33, 576, 16, false);
  planes.Add(0, 64, 8, false);
  planes.Add(5, 3, 256, true);
  planes.Add(1, 1, 1, false);
  ExpectRoundTrip(planes, "mixed");
}

TEST_P(EveryCodec, ShrinksWhatIsPredictable) {
  Planes planes;
  planes.Add(256, 192, 16, true);
  const std::size_t bytes = Encode(planes).size();
  if (GetParam().info->name == "none") {
    EXPECT_EQ(bytes, 256U * 192U);
  } else {
    EXPECT_LT(bytes, 256U * 192U * 6 / 10);
  }
}

TEST_P(EveryCodec, RefusesSymbolsOutsideTheAlphabet) {
  Planes planes;
  planes.Add(64, 96, 256, false);
  const auto bytes = Encode(planes);
  Planes narrow;
  narrow.Add(64, 96, 200, false);
  const auto left = Decode(bytes, narrow);
  ASSERT_FALSE(left.has_value());
  EXPECT_EQ(left.error().code, ErrorCode::kCorruptData);
}

TEST_P(EveryCodec, NoticesBytesThatAreMissingOrLeftOver) {
  Planes planes;
  planes.Add(40, 96, 16, true);
  planes.Add(40, 64, 200, false);
  const auto bytes = Encode(planes);
  Planes out = planes;
  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 8) {
    const auto left = Decode(std::span(bytes).first(length), out);
    ASSERT_FALSE(left.has_value()) << length;
    EXPECT_EQ(left.error().code, ErrorCode::kCorruptData);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  const auto left = Decode(longer, out);
  EXPECT_TRUE(!left || *left > 0);
}

std::vector<StageEntry> Codecs() {
  std::vector<StageEntry> codecs;
  for (const StageEntry& entry : BuiltinStages()) {
    if (entry.info->kind == StageKind::kCodec) codecs.push_back(entry);
  }
  return codecs;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryCodec, ::testing::ValuesIn(Codecs()),
                         [](const auto& entry) { return std::string(entry.param.info->name); });

}  // namespace
}  // namespace kvserve
