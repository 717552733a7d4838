// Faults of what is between the nodes: a hit counts only after every check, and a partial or wrong
// set is never decoded from.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "fault_proxy.h"
#include "net/messages.h"
#include "pair.h"

namespace kvserve::testing {
namespace {

bool IsChunk(const WireMessage& message, std::uint32_t index) {
  return message.header.type == MessageType::kChunk && message.header.index == index;
}

std::vector<WireMessage> One(WireMessage message) {
  std::vector<WireMessage> messages;
  messages.push_back(std::move(message));
  return messages;
}

// The pair with the proxy between them.
struct ProxiedPair {
  explicit ProxiedPair(PairOptions options = {}) : pair(std::move(options)) {
    pair.StartDecode(proxy.address());
  }

  // The request falls back for `expected`, gives the right tokens all the same, and says so.
  void ExpectRecompute(const char* expected, const std::string& profile = "none") {
    const auto request = Greedy(Prompt(100), 10, profile);
    const double fallbacks = pair.decode->metrics().fallbacks();
    const GenerateReport report = MustGenerate(*pair.decode, request);
    EXPECT_EQ(report.tokens, LocalTokens(request));
    EXPECT_EQ(report.source, KvSource::kRecomputed);
    EXPECT_EQ(report.recomputed_tokens, 99U);
    EXPECT_EQ(report.transfer.tokens, 0U);
    EXPECT_EQ(report.reason.rfind(std::string("recompute: ") + expected, 0), 0U) << report.reason;
    EXPECT_EQ(pair.decode->metrics().fallbacks(), fallbacks + 1);
    ExpectClean();
  }
  void ExpectTransfer() {
    const auto request = Greedy(Prompt(100));
    const GenerateReport report = MustGenerate(*pair.decode, request);
    EXPECT_EQ(report.source, KvSource::kTransferred) << report.reason;
    EXPECT_EQ(report.tokens, LocalTokens(request));
  }
  void ExpectClean() {
    EXPECT_EQ(pair.decode->buffers_in_use(), 0);
    EXPECT_EQ(pair.decode_worker.engine->open_sequences(), 0);
    EXPECT_TRUE(Eventually([&] {
      return pair.prefill_worker.engine->open_sequences() == 0 &&
             pair.prefill->buffers_in_use() == 0;
    }));
  }

  Pair pair;
  FaultProxy proxy{pair.prefill->address()};
};

TEST(TransitFault, AnHonestProxyChangesNothing) {
  ProxiedPair proxied;
  proxied.ExpectTransfer();
}

TEST(TransitFault, FlippedBitsAnywhereInAFrameAreSeen) {
  for (const char* profile : {"none", "lossless", "hadamard|uniform|bitpack"}) {
    ProxiedPair proxied;
    for (const double where : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      proxied.proxy.SetTamper([where](WireMessage message) {
        if (IsChunk(message, 3)) {
          const std::size_t frame = message.payload.size() - kChunkInfoBytes;
          const auto at = static_cast<std::size_t>(where * static_cast<double>(frame - 1));
          message.payload[kChunkInfoBytes + at] ^= std::byte{0x10};
        }
        return One(std::move(message));
      });
      const auto request = Greedy(Prompt(100), 10, profile);
      const auto report = MustGenerate(*proxied.pair.decode, request);
      EXPECT_EQ(report.source, KvSource::kRecomputed) << profile << " " << where;
      EXPECT_EQ(report.tokens, LocalTokens(request));
    }
    proxied.ExpectClean();
  }
}

TEST(TransitFault, SwappedChunksAreSeen) {
  ProxiedPair proxied;
  auto held = std::make_shared<std::optional<WireMessage>>();
  proxied.proxy.SetTamper([held](WireMessage message) {
    if (IsChunk(message, 2)) {
      *held = std::move(message);
      return std::vector<WireMessage>();
    }
    std::vector<WireMessage> out = One(std::move(message));
    if (IsChunk(out[0], 3)) out.push_back(std::move(**held));
    return out;
  });
  proxied.ExpectRecompute("mismatch");
}

// The chunk numbers and ranges are put right again, so that only the frames inside are swapped.
TEST(TransitFault, SwappedFramesUnderHonestNumbersAreSeen) {
  ProxiedPair proxied;
  auto held = std::make_shared<std::optional<WireMessage>>();
  proxied.proxy.SetTamper([held](WireMessage message) {
    if (IsChunk(message, 2)) {
      *held = std::move(message);
      return std::vector<WireMessage>();
    }
    if (!IsChunk(message, 3)) return One(std::move(message));
    WireMessage first = std::move(**held);
    for (std::size_t i = 0; i < kChunkInfoBytes; ++i) {
      std::swap(first.payload[i], message.payload[i]);
    }
    std::swap(first.header.index, message.header.index);
    std::vector<WireMessage> out = One(std::move(message));
    out.push_back(std::move(first));
    return out;
  });
  proxied.ExpectRecompute("mismatch");
}

// Frames of another prompt with the same length: every checksum and range is right, the key is not.
TEST(TransitFault, FramesOfAnotherPromptAreSeen) {
  ProxiedPair proxied;
  auto recorded = std::make_shared<std::optional<std::vector<std::byte>>>();
  proxied.proxy.SetTamper([recorded](WireMessage message) {
    if (IsChunk(message, 1)) {
      if (*recorded) {
        message.payload = **recorded;
      } else {
        *recorded = message.payload;
      }
    }
    return One(std::move(message));
  });
  MustGenerate(*proxied.pair.decode, Greedy(Prompt(100, 77)));
  proxied.ExpectRecompute("mismatch");
}

TEST(TransitFault, MissingRepeatedAndExtraChunksAreSeen) {
  ProxiedPair proxied;
  for (const std::uint32_t index : {0U, 3U, 6U}) {
    proxied.proxy.SetTamper([index](WireMessage message) {
      return IsChunk(message, index) ? std::vector<WireMessage>() : One(std::move(message));
    });
    proxied.ExpectRecompute("mismatch");
    proxied.proxy.SetTamper([index](WireMessage message) {
      std::vector<WireMessage> out = One(std::move(message));
      if (IsChunk(out[0], index)) out.push_back(out[0]);
      return out;
    });
    proxied.ExpectRecompute("mismatch");
  }
}

TEST(TransitFault, AnEndThatComesEarlyIsNoEnd) {
  ProxiedPair proxied;
  proxied.proxy.SetTamper([](WireMessage message) {
    if (!IsChunk(message, 4)) return One(std::move(message));
    TransferEnd end;
    end.chunks = 4;
    end.tokens = 64;
    end.profile = "none";
    message.header.type = MessageType::kTransferEnd;
    message.payload.clear();
    EXPECT_TRUE(Encode(end, message.payload));
    return One(std::move(message));
  });
  proxied.ExpectRecompute("mismatch");
}

// Messages of another transfer, or of the node before it was started again, mean nothing.
TEST(TransitFault, LateMessagesOfAnotherTransferAreDropped) {
  ProxiedPair proxied;
  proxied.proxy.SetTamper([](WireMessage message) {
    std::vector<WireMessage> out;
    if (IsChunk(message, 1)) {
      out.push_back(message);
      out[0].header.transfer_id += 1000;
      out.push_back(out[0]);
      out[1].header.type = MessageType::kAbort;
      out[1].payload.clear();
      EXPECT_TRUE(Encode(Abort{ErrorCode::kInternal, "late"}, out[1].payload));
    }
    out.push_back(std::move(message));
    return out;
  });
  proxied.ExpectTransfer();
  proxied.proxy.SetTamper([](WireMessage message) {
    if (IsChunk(message, 1)) ++message.header.epoch;
    return One(std::move(message));
  });
  proxied.ExpectRecompute("corrupt_data");
}

TEST(TransitFault, ACutAtAnyMessageFallsBack) {
  ProxiedPair proxied;
  for (const MessageType type :
       {MessageType::kPrefillStarted, MessageType::kChunk, MessageType::kTransferEnd}) {
    proxied.proxy.SetTamper([&proxied, type](WireMessage message) {
      if (message.header.type == type) {
        proxied.proxy.Cut();
        return std::vector<WireMessage>();
      }
      return One(std::move(message));
    });
    proxied.ExpectRecompute("unavailable");
  }
  proxied.proxy.SetTamper(nullptr);
  proxied.ExpectTransfer();
}

// A link that carries nothing and closes nothing: a bounded wait, then the prompt is computed here;
// with the link back, transfers go on.
TEST(TransitFault, AHalfOpenLinkFallsBackAndRecovers) {
  PairOptions options;
  options.decode.stall_s = 2.0;  // a busy machine may hold up an honest chunk
  ProxiedPair proxied(options);
  proxied.ExpectTransfer();
  proxied.proxy.SetTamper([&proxied](WireMessage message) {
    if (IsChunk(message, 2)) proxied.proxy.Freeze(true);
    return One(std::move(message));
  });
  const auto request = Greedy(Prompt(100));
  const auto report = MustGenerate(*proxied.pair.decode, request);
  EXPECT_EQ(report.source, KvSource::kRecomputed);
  EXPECT_EQ(report.reason.rfind("recompute: deadline_exceeded", 0), 0U) << report.reason;
  EXPECT_EQ(report.tokens, LocalTokens(request));
  proxied.proxy.SetTamper(nullptr);
  proxied.proxy.Freeze(false);
  proxied.ExpectTransfer();
  proxied.ExpectClean();
}

// A dead peer is not hammered: while it refuses, the number of attempts stays far below the number
// of requests, and one of the first after it is back succeeds.
TEST(TransitFault, ADeadPeerIsTriedWithBackOff) {
  PairOptions options;
  options.decode.first_backoff_s = 0.2;
  ProxiedPair proxied(options);
  proxied.ExpectTransfer();
  proxied.pair.StopPrefill();
  const int before = proxied.proxy.accepted();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(MustGenerate(*proxied.pair.decode, Greedy(Prompt(20), 1)).source,
              KvSource::kRecomputed);
  }
  EXPECT_LE(proxied.proxy.accepted() - before, 8);
  proxied.pair.StartPrefill();
  EXPECT_TRUE(Eventually([&] {
    return MustGenerate(*proxied.pair.decode, Greedy(Prompt(20), 1)).source ==
           KvSource::kTransferred;
  }));
}

}  // namespace
}  // namespace kvserve::testing
