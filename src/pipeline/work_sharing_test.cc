// Items that wait for others, when those are slow, fail or run out of memory: nothing hangs, the
// lowest fault is reported, and the next frame is whole.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/try.h"
#include "pipeline/fast_decoder.h"
#include "pipeline/fast_encoder.h"
#include "pipeline/profile_text.h"
#include "pipeline/symbol_pieces.h"
#include "pipeline/testing/chunk.h"
#include "pipeline/testing/row_stages.h"

namespace kvserve {
namespace {

using testing::Difference;
using testing::MakeChunk;
using testing::MakeGeometry;

// What goes wrong in the codec, and what it saw go wrong in its use.
struct Faults {
  enum class Step : std::uint8_t { kNone, kCount, kDecide, kCode, kRead };
  Step step = Step::kNone;
  std::size_t first = 0;  // index of the plane or piece, and all after it
  bool throws = false;
  std::atomic<int> misuses = 0;
};
Faults faults;

// The earlier, the slower: those that depend on it have to wait.
Status Meet(Faults::Step step, std::size_t index) {
  std::this_thread::sleep_for(std::chrono::microseconds(400 / (index + 1)));
  if (step != faults.step || index < faults.first) return {};
  if (faults.throws) throw std::bad_alloc();
  return MakeError(ErrorCode::kCorruptData, std::to_string(index));
}

// Two planes each; a plane alone in two halves where they have rows for it.
std::span<const SymbolPiece> Cut(std::span<const SymbolPlane> planes, Arena& arena) {
  const auto pieces = arena.Take<SymbolPiece>(planes.size());
  std::size_t count = 0;
  for (std::size_t p = 0; p < planes.size();) {
    if (p % 6 < 4 && p + 1 < planes.size()) {
      pieces[count++] = {p, 2, 0, 0};
      p += 2;
      continue;
    }
    pieces[count++] = {p, 1, 0, planes[p].tokens / 2};
    pieces[count++] = {p, 1, planes[p].tokens / 2, planes[p].tokens - planes[p].tokens / 2};
    ++p;
  }
  return pieces.first(count);
}

std::size_t SymbolsOf(const SymbolPiece& piece, std::span<const SymbolPlane> planes) {
  std::size_t symbols = 0;
  ForEachSegment(piece, planes, [&](std::size_t, std::size_t, std::size_t n) { symbols += n; });
  return symbols;
}

class StepWriter final : public SymbolWriter {
 public:
  StepWriter(std::span<const SymbolPlane> planes, std::span<std::byte> bytes, Arena& arena)
      : planes_(planes),
        bytes_(bytes),
        pieces_(Cut(planes, arena)),
        counted_(arena.Take<std::atomic<bool>>(planes.size())),
        begins_(arena.Take<std::size_t>(pieces_.size() + 1)) {
    std::uninitialized_value_construct(counted_.begin(), counted_.end());
    begins_[0] = 0;
  }

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  Status Count(std::size_t plane) override {
    KVSERVE_TRY(Meet(Faults::Step::kCount, plane));
    counted_[plane] = true;
    return {};
  }
  void Decide(std::size_t piece) override {
    if (deciding_.exchange(true) || piece != decided_) ++faults.misuses;
    for (std::size_t p = 0; p < pieces_[piece].first_plane + pieces_[piece].planes; ++p) {
      if (!counted_[p]) ++faults.misuses;
    }
    deciding_ = false;
    (void)Meet(Faults::Step::kDecide, piece);
    begins_[piece + 1] = begins_[piece] + SymbolsOf(pieces_[piece], planes_);
    decided_ = piece + 1;
  }
  void Code(std::size_t piece, Arena& /*scratch*/) override {
    if (piece >= decided_) ++faults.misuses;
    (void)Meet(Faults::Step::kCode, piece);
    std::byte* to = bytes_.data() + begins_[piece];
    ForEachSegment(pieces_[piece], planes_, [&](std::size_t p, std::size_t at, std::size_t n) {
      std::memcpy(to, planes_[p].symbols.data() + at, n);
      to += n;
    });
    ++coded_;
  }
  void Finish() override {
    if (coded_ != pieces_.size()) ++faults.misuses;
  }

 private:
  std::span<const SymbolPlane> planes_;
  std::span<std::byte> bytes_;
  std::span<const SymbolPiece> pieces_;
  std::span<std::atomic<bool>> counted_;
  std::span<std::size_t> begins_;
  std::atomic<bool> deciding_ = false;
  std::atomic<std::size_t> decided_ = 0;
  std::atomic<std::size_t> coded_ = 0;
};

class StepReader final : public SymbolReader {
 public:
  StepReader(std::span<const SymbolPlane> planes, std::span<const std::byte> bytes, Arena& arena)
      : planes_(planes), bytes_(bytes), pieces_(Cut(planes, arena)) {}

  [[nodiscard]] std::span<const SymbolPiece> pieces() const override { return pieces_; }
  Status Read(std::size_t piece, std::span<std::uint8_t> symbols,
              Arena& /*scratch*/) const override {
    KVSERVE_TRY(Meet(Faults::Step::kRead, piece));
    std::size_t begin = 0;
    for (std::size_t i = 0; i < piece; ++i) begin += SymbolsOf(pieces_[i], planes_);
    std::memcpy(symbols.data(), bytes_.data() + begin, symbols.size());
    return {};
  }

 private:
  std::span<const SymbolPlane> planes_;
  std::span<const std::byte> bytes_;
  std::span<const SymbolPiece> pieces_;
};

class Steps final : public Codec {
 public:
  Status Encode(const FrameContext& frame, std::span<const SymbolPlane> planes,
                ByteWriter& out) const override {
    KVSERVE_ASSIGN(SymbolWriter* const writer, Begin(frame, planes, out));
    return WriteAll(frame, planes.size(), *writer);
  }
  Result<SymbolWriter*> Begin(const FrameContext& frame, std::span<const SymbolPlane> planes,
                              ByteWriter& out) const override {
    return frame.arena->New<StepWriter>(planes, out.Grow(MaxEncodedBytes(planes)), *frame.arena);
  }
  Status Decode(const FrameContext& frame, ByteReader& in,
                std::span<SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const SymbolReader* const reader, Open(frame, in, planes));
    std::size_t piece = 0;
    for (const SymbolPiece& cut : reader->pieces()) {
      std::vector<std::uint8_t> symbols(SymbolsOf(cut, planes));
      KVSERVE_TRY(reader->Read(piece++, symbols, *frame.arena));
      const std::uint8_t* from = symbols.data();
      ForEachSegment(cut, std::span<const SymbolPlane>(planes),
                     [&](std::size_t p, std::size_t at, std::size_t n) {
                       std::memcpy(planes[p].symbols.data() + at, from, n);
                       from += n;
                     });
    }
    return {};
  }
  Result<const SymbolReader*> Open(const FrameContext& frame, ByteReader& in,
                                   std::span<const SymbolPlane> planes) const override {
    KVSERVE_ASSIGN(const auto bytes, in.GetBytes(MaxEncodedBytes(planes)));
    return frame.arena->New<StepReader>(planes, bytes, *frame.arena);
  }
  [[nodiscard]] std::uint64_t MaxEncodedBytes(std::span<const SymbolPlane> planes) const override {
    std::uint64_t bytes = 0;
    for (const SymbolPlane& plane : planes) bytes += plane.count();
    return bytes;
  }
};

constexpr StageInfo kSteps{
    .id = 0x0412, .name = "steps", .kind = StageKind::kCodec, .lossless = true};

StageTable Table() {
  static const std::vector<StageEntry> table = [] {
    std::vector<StageEntry> all(testing::RowStages().begin(), testing::RowStages().end());
    all.push_back({.info = &kSteps, .make_codec = [](const Settings&) {
                     return Result<std::unique_ptr<Codec>>(std::make_unique<Steps>());
                   }});
    return all;
  }();
  return table;
}

class WorkSharing : public ::testing::TestWithParam<std::tuple<const char*, unsigned>> {
 protected:
  WorkSharing() : workers_(std::get<1>(GetParam())) {
    faults.step = Faults::Step::kNone;
    faults.misuses = 0;
    frame_.geometry = &geometry_;
    frame_.tokens = {0, 9};
    frame_.arena = &arena_;
    frame_.workers = &workers_;
    good_ = Encode().value();
  }
  ~WorkSharing() override { faults.step = Faults::Step::kNone; }

  static void Break(Faults::Step step, std::size_t first, bool throws) {
    faults.step = step;
    faults.first = first;
    faults.throws = throws;
  }
  Result<CodedSections> Encode() {
    CodedSections coded;
    const Status status = encoder_.Encode(chain_, chunk_.view(), frame_, coded);
    if (!status) return tl::unexpected(status.error());
    return coded;
  }
  Status Decode() {
    KvBuffer out = MakeChunk(geometry_, {0, 9}, 0, 5);
    const KvView view = out.view();
    KVSERVE_TRY(decoder_.Decode(chain_, {good_.classes, good_.side, good_.symbols}, frame_, view,
                                [&] { return &view; }));
    KvBuffer expected = MakeChunk(geometry_, {0, 9}, 0, 6);
    FrameContext alone = frame_;
    Arena arena;
    Workers one;
    alone.arena = &arena;
    alone.workers = &one;
    EXPECT_TRUE(
        DecodePlanes(chain_, {good_.classes, good_.side, good_.symbols}, alone, expected.view()));
    EXPECT_EQ(Difference(std::as_const(expected).view(), std::as_const(out).view()), "");
    return {};
  }
  // The frame after a failure.
  void ExpectWhole() {
    faults.step = Faults::Step::kNone;
    const auto coded = Encode();
    ASSERT_TRUE(coded.has_value()) << coded.error().message;
    EXPECT_EQ(coded->symbols, good_.symbols);
    EXPECT_EQ(coded->side, good_.side);
    EXPECT_TRUE(Decode());
    EXPECT_EQ(faults.misuses, 0);
  }

  const KvGeometry geometry_ = MakeGeometry(
      DType::kFloat16, {{1, 8, 8}, {2, 8, 4}, {1, 4, 0}, {1, 8, 8}, {1, 16, 8}, {1, 8, 8}});
  const KvBuffer chunk_ = MakeChunk(geometry_, {0, 9});
  const Chain chain_ =
      Chain::Create(ParseProfileText(std::get<0>(GetParam()), Table()).value().stages, Table(),
                    DType::kFloat16, Device::kHost, ProfileOrigin::kCaller)
          .value();
  Workers workers_;
  Arena arena_;
  FastEncoder encoder_;
  FastDecoder decoder_;
  FrameContext frame_;
  CodedSections good_;
};

TEST_P(WorkSharing, GivesTheBytesOfTheReference) {
  CodedSections expected;
  FrameContext frame = frame_;
  Arena arena;
  frame.arena = &arena;
  ASSERT_TRUE(EncodePlanes(chain_, chunk_.view(), frame, expected));
  EXPECT_EQ(good_.symbols, expected.symbols);
  EXPECT_EQ(good_.side, expected.side);
  ExpectWhole();
}

TEST_P(WorkSharing, AnyPlaneMayFail) {
  for (std::size_t plane = 0; plane < 11; ++plane) {
    for (const bool throws : {false, true}) {
      SCOPED_TRACE(plane);
      Break(Faults::Step::kCount, plane, throws);
      const auto coded = Encode();
      ASSERT_FALSE(coded.has_value());
      EXPECT_EQ(coded.error().code,
                throws ? ErrorCode::kResourceExhausted : ErrorCode::kCorruptData);
      EXPECT_TRUE(throws || coded.error().message.ends_with(std::to_string(plane)));
      EXPECT_EQ(faults.misuses, 0);
    }
  }
  ExpectWhole();
}

TEST_P(WorkSharing, AnyPieceMayFindNoMemory) {
  for (const auto step : {Faults::Step::kDecide, Faults::Step::kCode}) {
    for (std::size_t piece = 0; piece < 7; ++piece) {
      Break(step, piece, true);
      const auto coded = Encode();
      ASSERT_FALSE(coded.has_value()) << piece;
      EXPECT_EQ(coded.error().code, ErrorCode::kResourceExhausted);
      EXPECT_EQ(faults.misuses, 0);
    }
  }
  ExpectWhole();
}

TEST_P(WorkSharing, AnyPieceMayNotBeRead) {
  for (std::size_t piece = 0; piece < 7; ++piece) {
    for (const bool throws : {false, true}) {
      Break(Faults::Step::kRead, piece, throws);
      const Status status = Decode();
      ASSERT_FALSE(status) << piece;
      EXPECT_EQ(status.error().code,
                throws ? ErrorCode::kResourceExhausted : ErrorCode::kCorruptData);
      EXPECT_TRUE(throws || status.error().message.ends_with(std::to_string(piece)));
    }
  }
  ExpectWhole();
}

INSTANTIATE_TEST_SUITE_P(Threads, WorkSharing,
                         ::testing::Combine(::testing::Values("turn|ranges:lead=1|steps",
                                                              "scale|classes|steps"),
                                            ::testing::Values(1U, 2U, 3U, 5U, 40U)));

}  // namespace
}  // namespace kvserve
