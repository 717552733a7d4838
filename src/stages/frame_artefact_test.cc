#include "stages/frame_artefact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/registry.h"

namespace kvserve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Fingerprint Filled(std::uint8_t byte) {
  Fingerprint fingerprint;
  fingerprint.bytes.fill(byte);
  return fingerprint;
}

// A codec that cannot work without an artefact.
class NeedyCodec : public Codec {
 public:
  Status Encode(const FrameContext& /*frame*/, std::span<const SymbolPlane> /*planes*/,
                ByteWriter& /*out*/) const override {
    return {};
  }
  Status Decode(const FrameContext& /*frame*/, ByteReader& /*in*/,
                std::span<SymbolPlane> /*planes*/) const override {
    return {};
  }
  [[nodiscard]] std::uint64_t MaxEncodedBytes(
      std::span<const SymbolPlane> /*planes*/) const override {
    return 0;
  }
  [[nodiscard]] bool needs_artefact() const override { return true; }
};

Chain MakeChain(std::uint16_t codec) {
  static constexpr StageInfo kInfo = {.id = 0x04F0, .name = "needy", .kind = StageKind::kCodec};
  std::vector<StageEntry> table(BuiltinStages().begin(), BuiltinStages().end());
  table.push_back(
      {.info = &kInfo, .make_codec = [](const Settings&) -> Result<std::unique_ptr<Codec>> {
         return std::make_unique<NeedyCodec>();
       }});
  return Chain::Create({{0x0301, 1, {}}, {codec, 1, {}}}, table, DType::kFloat16, Device::kHost,
                       ProfileOrigin::kFrame)
      .value();
}

Chain Needy() {
  return MakeChain(0x04F0);
}

Chain Content() {
  return MakeChain(0x0401);
}

CalibrationArtefact Artefact(CalibrationArtefact::Contents contents = {}) {
  return {std::move(contents), Filled(9)};
}

FrameHeader Header() {
  FrameHeader header;
  header.model_layers = 3;
  header.layers.push_back({1, {.kv_heads = 2, .k_dim = 64, .v_dim = 32}, {0, 5}});
  return header;
}

TEST(FrameArtefact, EncodersNeedTheOneOfTheirChain) {
  const auto artefact = Artefact();
  EXPECT_TRUE(CheckArtefactGiven(Content(), nullptr));
  EXPECT_TRUE(CheckArtefactGiven(Content(), &artefact));
  EXPECT_TRUE(CheckArtefactGiven(Needy(), &artefact));
  const auto status = CheckArtefactGiven(Needy(), nullptr);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "profile needs a calibration artefact, and none was given");
}

TEST(FrameArtefact, DecodersNeedTheOneOfTheFrame) {
  const auto artefact = Artefact();
  FrameHeader header = Header();
  EXPECT_TRUE(CheckArtefactNamed(header, Content(), nullptr));
  EXPECT_TRUE(CheckArtefactNamed(header, Content(), &artefact));
  EXPECT_EQ(CheckArtefactNamed(header, Needy(), &artefact).error().code, ErrorCode::kCorruptData);
  header.artefact = Filled(9);
  EXPECT_EQ(CheckArtefactNamed(header, Content(), &artefact).error().code, ErrorCode::kCorruptData);
  EXPECT_TRUE(CheckArtefactNamed(header, Needy(), &artefact));
  const Error none = CheckArtefactNamed(header, Needy(), nullptr).error();
  EXPECT_EQ(none.code, ErrorCode::kMismatch);
  EXPECT_THAT(none.message, HasSubstr(Filled(9).hex()));
  header.artefact = Filled(8);
  const Error other = CheckArtefactNamed(header, Needy(), &artefact).error();
  EXPECT_EQ(other.code, ErrorCode::kMismatch);
  EXPECT_THAT(other.message, AllOf(HasSubstr(Filled(8).hex()), HasSubstr(Filled(9).hex())));
}

// Also where no fingerprint tells: tables and scales of another type's values would be used.
TEST(FrameArtefact, EncodersNeedTheDTypeThatWasCalibratedOn) {
  FrameHeader header = Header();
  CalibrationArtefact::Contents contents;
  contents.geometry.layers.assign(3, {.kv_heads = 2, .k_dim = 64, .v_dim = 32});
  const KvGeometry geometry{DType::kBFloat16, contents.geometry.layers};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN}) {
    contents.geometry.dtype = dtype;
    header.dtype = dtype;
    EXPECT_TRUE(CheckArtefactServes(header, Artefact(contents)));
    header.dtype = DType::kFloat32;
    const Status other = CheckArtefactServes(header, Artefact(contents));
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(other.error().message,
                AllOf(HasSubstr("float32"), HasSubstr(std::string(DTypeName(dtype)))));
    EXPECT_TRUE(CheckArtefactFits(header, Artefact(contents)));  // decoders go by the name
    EXPECT_EQ(CheckArtefactServes(geometry, {}, Artefact(contents)).has_value(),
              dtype == DType::kBFloat16);
  }
}

TEST(FrameArtefact, ModelsAndShapesAgreeWhereBothAreKnown) {
  FrameHeader header = Header();
  EXPECT_TRUE(CheckArtefactFits(header, Artefact()));
  CalibrationArtefact::Contents contents;
  contents.model = Filled(1);
  EXPECT_TRUE(CheckArtefactFits(header, Artefact(contents)));
  header.model = Filled(2);
  EXPECT_TRUE(CheckArtefactFits(header, Artefact()));
  const Error model = CheckArtefactFits(header, Artefact(contents)).error();
  EXPECT_EQ(model.code, ErrorCode::kMismatch);
  EXPECT_THAT(model.message, AllOf(HasSubstr(Filled(1).hex()), HasSubstr(Filled(2).hex())));
  contents.model = Filled(2);
  contents.geometry.layers.assign(3, {.kv_heads = 2, .k_dim = 64, .v_dim = 32});
  EXPECT_TRUE(CheckArtefactFits(header, Artefact(contents)));
  contents.geometry.layers[0].k_dim = 8;  // not in the frame
  EXPECT_TRUE(CheckArtefactFits(header, Artefact(contents)));
  contents.geometry.layers[1].v_dim = 64;
  const Error shape = CheckArtefactFits(header, Artefact(contents)).error();
  EXPECT_EQ(shape.code, ErrorCode::kMismatch);
  EXPECT_THAT(shape.message, HasSubstr("layer 1"));
  contents.geometry.layers.resize(2);
  const Error layers = CheckArtefactFits(header, Artefact(contents)).error();
  EXPECT_EQ(layers.code, ErrorCode::kMismatch);
  EXPECT_THAT(layers.message, HasSubstr("2 layers where the model has 3"));
}

}  // namespace
}  // namespace kvserve
