// A receiver believes nothing of what comes: every fault is an error in the report.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "transfer/testing/fake_sender.h"

namespace kvserve::testing {
namespace {

class HostileSender : public ::testing::Test {
 protected:
  HostileSender() : pair_(SmallSetup()), request_(pair_.NewRequest("a", 100)) {}

  // What a receiver reports of frames that were changed on their way.
  FetchReport Report(const std::function<void(HonestFrames&)>& change,
                     const std::string& profile = "lossless") {
    HonestFrames frames = MakeFrames(pair_, request_, profile);
    change(frames);
    return ReportOf([&](Connection& connection, std::uint64_t transfer_id) {
      SendFrames(connection, transfer_id, frames);
      AwaitEnd(connection);
    });
  }
  FetchReport ReportOf(const FakeSender::Script& script) {
    const FakeSender sender(pair_, script);
    auto fetch = pair_.FetchOf(request_);
    fetch.address = sender.address();
    pair_.Fetch(fetch);
    FetchReport report = pair_.Await("a");
    pair_.receiver = KvReceiver::Start(pair_.target.cache(), pair_.setup.receiver).value();
    return report;
  }
  void ExpectError(ErrorCode code, const std::function<void(HonestFrames&)>& change) {
    const FetchReport report = Report(change);
    ASSERT_TRUE(report.error.has_value());
    EXPECT_EQ(report.error->code, code) << report.error->message;
    EXPECT_EQ(report.tokens, 0U);
  }

  TransferPair pair_;
  TransferPair::Request request_;
};

TEST_F(HostileSender, UnchangedFramesAreTaken) {
  const FetchReport report = Report([](HonestFrames&) {});
  EXPECT_FALSE(report.error.has_value()) << report.error->message;
  EXPECT_TRUE(pair_.Sent(request_) == pair_.Received(request_));
}

TEST_F(HostileSender, EveryFrameComesOnceOrNoneIsUsed) {
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.indices[1] = 0; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.indices[1] = 4; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.indices[1] = UINT32_MAX; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { std::swap(f.indices[0], f.indices[2]); });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.payloads.pop_back(); });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) {
    const std::size_t last = f.payloads.back().size() - kChunkInfoBytes;
    f.payloads.pop_back();
    f.end.chunks -= 1;  // the totals agree with what came
    f.end.frame_bytes -= last;
    f.end.raw_bytes -= std::uint64_t{4} * 3 * 2 * 2 * 16 * 2;
  });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.end.tokens -= 1; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.end.frame_bytes += 1; });
}

TEST_F(HostileSender, TheAnnouncementMustFit) {
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.started.frames = 5; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.started.frame_tokens = 16; });
  ExpectError(ErrorCode::kMismatch, [](HonestFrames& f) { f.started.layers_per_frame = 4; });
  ExpectError(ErrorCode::kInvalidArgument, [](HonestFrames& f) { f.started.profile = "what"; });
  ExpectError(ErrorCode::kUnsupported,
              [](HonestFrames& f) { f.started.profile = "window:outside=0|mixed|rans"; });
  // Announced as lossless, coded otherwise.
  const FetchReport report = Report([](HonestFrames& f) { f.started.profile = "lossless"; },
                                    "hadamard|uniform:k_levels=16,v_levels=16|rans");
  ASSERT_TRUE(report.error.has_value());
  EXPECT_EQ(report.error->code, ErrorCode::kMismatch);
}

TEST_F(HostileSender, AFallbackIsAnnouncedAndServesNoLosslessProfile) {
  const auto report = [&](const char* profile, const char* fallback) {
    return Report(
        [&](HonestFrames& f) {
          f.started.profile = profile;
          f.started.fallback = fallback;
        },
        "hadamard|uniform:k_levels=16,v_levels=16|rans");
  };
  const FetchReport announced = report("uniform|rans", "hadamard|uniform|rans");
  ASSERT_FALSE(announced.error.has_value()) << announced.error->message;
  EXPECT_EQ(announced.drift_fallbacks, announced.frames);
  for (const auto& [profile, fallback] : {std::pair{"uniform|rans", ""},
                                          {"uniform|rans", "hadamard|uniform|zstd"},
                                          {"lossless", "hadamard|uniform|rans"}}) {
    const FetchReport refused = report(profile, fallback);
    ASSERT_TRUE(refused.error.has_value()) << profile << " " << fallback;
    EXPECT_EQ(refused.error->code, ErrorCode::kMismatch) << profile << " " << fallback;
  }
  ExpectError(ErrorCode::kUnsupported,
              [](HonestFrames& f) { f.started.fallback = "window:outside=0|mixed|rans"; });
}

TEST_F(HostileSender, FramesOfOtherTokensContextsOrShapesAreRefused) {
  auto other = request_;
  other.tokens[0] += 1;
  const HonestFrames other_tokens = MakeFrames(pair_, other, "lossless");
  ExpectError(ErrorCode::kMismatch,
              [&](HonestFrames& f) { f.payloads[3] = other_tokens.payloads[3]; });
  const HonestFrames other_context = MakeFrames(pair_, request_, "lossless", "adapter");
  ExpectError(ErrorCode::kMismatch,
              [&](HonestFrames& f) { f.payloads[0] = other_context.payloads[0]; });
  pair_.setup.sender.layers_per_frame = 1;
  const HonestFrames one_layer = MakeFrames(pair_, request_, "lossless");
  pair_.setup.sender.layers_per_frame = 0;
  ExpectError(ErrorCode::kMismatch, [&](HonestFrames& f) {
    f.payloads[0] = one_layer.payloads[0];
    const std::uint64_t raw_bytes = std::uint64_t{32} * 3 * 2 * 2 * 16 * 2;
    std::memcpy(f.payloads[0].data() + 8, &raw_bytes, sizeof(raw_bytes));
  });
}

TEST_F(HostileSender, DamagedFramesAreCorrupt) {
  ExpectError(ErrorCode::kCorruptData,
              [](HonestFrames& f) { f.payloads[1][f.payloads[1].size() - 3] ^= std::byte{1}; });
  // The totals agree with what comes.
  ExpectError(ErrorCode::kCorruptData, [](HonestFrames& f) {
    f.payloads[1].resize(f.payloads[1].size() - 3);
    f.end.frame_bytes -= 3;
  });
  ExpectError(ErrorCode::kCorruptData, [](HonestFrames& f) {
    f.payloads[1].push_back({});
    f.end.frame_bytes += 1;
  });
  ExpectError(ErrorCode::kCorruptData, [](HonestFrames& f) { f.payloads[1].resize(10); });
  ExpectError(ErrorCode::kCorruptData,
              [](HonestFrames& f) { f.payloads[1].resize(std::size_t{8} << 20); });
}

TEST_F(HostileSender, MessagesOutOfOrderAreCorrupt) {
  const HonestFrames frames = MakeFrames(pair_, request_, "lossless");
  const auto expect_corrupt = [&](const FakeSender::Script& script) {
    const FetchReport report = ReportOf(script);
    ASSERT_TRUE(report.error.has_value());
    EXPECT_EQ(report.error->code, ErrorCode::kCorruptData) << report.error->message;
  };
  expect_corrupt([&](Connection& connection, std::uint64_t id) {
    (void)connection.Send(MessageType::kChunk, id, 0, std::vector<std::byte>(100), After(60.0));
    AwaitEnd(connection);
  });
  expect_corrupt([&](Connection& connection, std::uint64_t id) {
    SendPayload(connection, MessageType::kFetchStarted, id, frames.started);
    SendFrames(connection, id, frames);
    AwaitEnd(connection);
  });
  expect_corrupt([&](Connection& connection, std::uint64_t id) {
    SendPayload(connection, MessageType::kRelease, id, TicketRelease{"a"});
    AwaitEnd(connection);
  });
}

// Late data of an earlier transfer on the connection is dropped, not taken.
TEST_F(HostileSender, OtherTransfersAreDropped) {
  const HonestFrames frames = MakeFrames(pair_, request_, "lossless");
  auto other = request_;
  other.tokens[0] += 1;
  const HonestFrames late = MakeFrames(pair_, other, "lossless");
  const FetchReport report = ReportOf([&](Connection& connection, std::uint64_t id) {
    SendPayload(connection, MessageType::kFetchStarted, id + 1, late.started);
    SendPayload(connection, MessageType::kFetchStarted, id, frames.started);
    for (const auto& [from, transfer_id] : {std::pair{&late, id + 1}, {&frames, id}}) {
      for (std::size_t i = 0; i < from->payloads.size(); ++i) {
        (void)connection.Send(MessageType::kChunk, transfer_id, from->indices[i], from->payloads[i],
                              After(60.0));
      }
      SendPayload(connection, MessageType::kTransferEnd, transfer_id, from->end);
    }
    AwaitEnd(connection);
  });
  EXPECT_FALSE(report.error.has_value()) << report.error->message;
}

}  // namespace
}  // namespace kvserve::testing
