#include "net/handshake.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "net/refusal.h"
#include "net/testing/loopback.h"

namespace kvserve {
namespace {

using testing::Background;
using testing::Junk;
using testing::MakeListener;
using testing::MakePair;
using testing::Patience;
using testing::RawPeer;
using testing::WireMessage;

Hello Node(NodeRole role, std::uint64_t epoch) {
  Hello hello;
  hello.role = role;
  hello.epoch = epoch;
  hello.model.bytes[0] = 1;
  hello.geometry.layers = {{3, 64, 64, 0, RopeStyle::kInterleaved, 100000.0F}};
  hello.stages = {{1, 1}, {2, 1}};
  return hello;
}

AuthToken Token(std::string_view secret) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("kvserve-handshake-token-" + std::to_string(::getpid()));
  std::ofstream(path) << secret;
  ::chmod(path.c_str(), 0600);
  auto token = AuthToken::FromFile(path.string()).value();
  std::filesystem::remove(path);
  return token;
}

struct Outcome {
  Result<Agreement> client;
  Result<Agreement> server;
};

Outcome Shake(testing::ConnectionPair& pair, const Hello& client, const Hello& server,
              const AuthToken& client_token = {}, const AuthToken& server_token = {}) {
  Outcome outcome{MakeError(ErrorCode::kInternal, "not run"),
                  MakeError(ErrorCode::kInternal, "not run")};
  Background serving([&] {
    outcome.server = ServerHandshake(*pair.server, server, server_token, Patience());
    if (!outcome.server) pair.server.reset();  // as a node would
  });
  outcome.client = ClientHandshake(*pair.client, client, client_token, Patience());
  if (!outcome.client) pair.client.reset();
  serving.Join();
  return outcome;
}

Outcome Shake(const Hello& client, const Hello& server, const AuthToken& client_token = {},
              const AuthToken& server_token = {}) {
  auto pair = MakePair();
  return Shake(pair, client, server, client_token, server_token);
}

TEST(Handshake, AgreesAndCarriesBothEpochsAfterwards) {
  auto pair = MakePair();
  const auto [client, server] =
      Shake(pair, Node(NodeRole::kDecode, 10), Node(NodeRole::kPrefill, 20));
  ASSERT_TRUE(client.has_value()) << client.error().message;
  ASSERT_TRUE(server.has_value()) << server.error().message;
  EXPECT_EQ(client->peer.epoch, 20U);
  EXPECT_EQ(server->peer.epoch, 10U);
  EXPECT_EQ(client->peer.role, NodeRole::kPrefill);
  EXPECT_EQ(client->stages, server->stages);
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(pair.server->Receive(Patience(), 0).value().epoch, 10U);
}

TEST(Handshake, ProtocolsRefuseEachOtherWithBothVersions) {
  Hello old_node = Node(NodeRole::kDecode, 1);
  Hello new_node = Node(NodeRole::kPrefill, 2);
  new_node.protocol = 2;
  const auto [client, server] = Shake(old_node, new_node);
  EXPECT_EQ(server.error().code, ErrorCode::kMismatch);
  EXPECT_NE(server.error().message.find("protocol 2 here, 1 there"), std::string::npos);
  EXPECT_EQ(client.error().code, ErrorCode::kMismatch);
  EXPECT_NE(client.error().message.find("protocol 1 here, 2 there"), std::string::npos);
}

// Of another version only the header and the first field of the greeting are known.
TEST(Handshake, GreetingOfALaterProtocolMayBeLonger) {
  const auto listener = MakeListener();
  RawPeer raw(listener->port());
  const auto ours = listener->Accept(Patience()).value();
  std::vector<std::byte> greeting(200);
  greeting[0] = std::byte{3};
  raw.Write(WireMessage(MessageType::kGreeting, greeting));
  raw.FinishWriting();
  const auto agreement = ServerHandshake(*ours, Node(NodeRole::kPrefill, 1), {}, Patience());
  EXPECT_NE(agreement.error().message.find("protocol 1 here, 3 there"), std::string::npos);
  const auto reply = raw.ReadAll();
  ASSERT_GT(reply.size(), kMessageHeaderBytes);
  const auto refusal = DecodeRefusal(std::span(reply).subspan(kMessageHeaderBytes)).value();
  EXPECT_EQ(refusal.field, "protocol");
}

TEST(Handshake, EveryConflictReachesBothSides) {
  const std::function<void(Hello&)> changes[] = {
      [](Hello& h) { h.model.bytes[0] = 2; },
      [](Hello& h) { h.geometry.dtype = DType::kFloat32; },
      [](Hello& h) { h.geometry.layers[0].k_dim = 128; },
      [](Hello& h) { h.frame_version = 2; },
      [](Hello& h) { h.required_features = 1; },
      [](Hello& h) { h.role = NodeRole::kDecode; },
  };
  for (const auto& change : changes) {
    Hello other = Node(NodeRole::kPrefill, 2);
    change(other);
    const auto [client, server] = Shake(Node(NodeRole::kDecode, 1), other);
    ASSERT_FALSE(client.has_value());
    ASSERT_FALSE(server.has_value());
    EXPECT_EQ(client.error().code, server.error().code);
    EXPECT_NE(client.error().message.find("refused by the peer"), std::string::npos)
        << client.error().message;
  }
}

TEST(Handshake, MissingStagesAreNotARefusal) {
  Hello server = Node(NodeRole::kPrefill, 2);
  server.stages = {{2, 1}, {3, 1}};
  const auto [client_end, server_end] = Shake(Node(NodeRole::kDecode, 1), server);
  EXPECT_EQ(client_end.value().stages, (std::vector<StageVersion>{{2, 1}}));
  EXPECT_EQ(server_end.value().stages, (std::vector<StageVersion>{{2, 1}}));
}

TEST(Handshake, TokenMatrix) {
  const Hello c = Node(NodeRole::kDecode, 1);
  const Hello s = Node(NodeRole::kPrefill, 2);
  const AuthToken none;
  const AuthToken a = Token("correct-horse-battery");
  const AuthToken b = Token("staple-something-else");
  EXPECT_TRUE(Shake(c, s, none, none).client.has_value());
  const auto good = Shake(c, s, a, a);
  EXPECT_TRUE(good.client.has_value());
  EXPECT_TRUE(good.server.has_value());
  const auto expect_refused = [](const Outcome& outcome, const std::string& server_says) {
    ASSERT_FALSE(outcome.client.has_value());
    ASSERT_FALSE(outcome.server.has_value());
    EXPECT_EQ(outcome.client.error().code, ErrorCode::kPermissionDenied);
    EXPECT_EQ(outcome.server.error().code, ErrorCode::kPermissionDenied);
    EXPECT_NE(outcome.server.error().message.find(server_says), std::string::npos)
        << outcome.server.error().message;
    for (const auto* message : {&outcome.client.error().message, &outcome.server.error().message}) {
      EXPECT_EQ(message->find("horse"), std::string::npos);
      EXPECT_EQ(message->find("staple"), std::string::npos);
    }
  };
  expect_refused(Shake(c, s, none, a), "token required here, missing there");
  expect_refused(Shake(c, s, a, none), "token not configured here, configured there");
  expect_refused(Shake(c, s, a, b), "different tokens");
}

// A server that answers without a token must not get the client to go on without proof.
TEST(Handshake, ClientWithATokenInsistsOnProof) {
  const auto listener = MakeListener();
  const auto client = Connect(listener->address(), Patience()).value();
  const auto fake = listener->Accept(Patience()).value();
  Background serving([&] {
    ASSERT_TRUE(fake->Receive(Patience(), 1000).has_value());
    std::vector<std::byte> greeting(35);
    greeting[0] = std::byte{kProtocolVersion};
    ASSERT_TRUE(fake->Send(MessageType::kGreeting, 0, 0, greeting, Patience()).has_value());
    const auto next = fake->Receive(Patience(), 1000);
    EXPECT_EQ(next.value().type, MessageType::kRefusal);
    fake->Finish(Patience());
  });
  const auto agreement =
      ClientHandshake(*client, Node(NodeRole::kDecode, 1), Token("secret"), Patience());
  EXPECT_EQ(agreement.error().code, ErrorCode::kPermissionDenied);
}

// What a client with the token says to a server, overheard.
struct Recorded {
  std::vector<std::byte> greeting;
  std::vector<std::byte> proof;
};

Recorded Overhear(const AuthToken& token) {
  const auto real = MakePair();
  const auto proxied = MakePair();
  Background serving([&] {
    EXPECT_FALSE(
        ServerHandshake(*real.server, Node(NodeRole::kPrefill, 2), token, Patience()).has_value());
  });
  Background asking([&] {
    EXPECT_FALSE(ClientHandshake(*proxied.client, Node(NodeRole::kDecode, 1), token, Patience())
                     .has_value());
  });
  Recorded recorded;
  const auto relay = [](Connection& from, Connection& to) {
    const Message message = from.Receive(Patience(), 1000).value();
    EXPECT_TRUE(to.Send(message.type, 0, 0, message.payload, Patience()).has_value());
    return message.payload;
  };
  recorded.greeting = relay(*proxied.server, *real.client);
  relay(*real.client, *proxied.server);
  recorded.proof = relay(*proxied.server, *real.client);
  EXPECT_EQ(real.client->Receive(Patience(), 1000).value().type, MessageType::kProof);
  real.client->Cancel();
  proxied.server->Cancel();
  return recorded;
}

TEST(Handshake, ReplayedProofFails) {
  const AuthToken token = Token("secret");
  const Recorded recorded = Overhear(token);
  const auto pair = MakePair();
  Result<Agreement> agreement = MakeError(ErrorCode::kInternal, "not run");
  Background serving([&] {
    agreement = ServerHandshake(*pair.server, Node(NodeRole::kPrefill, 2), token, Patience());
  });
  Connection& attacker = *pair.client;
  ASSERT_TRUE(
      attacker.Send(MessageType::kGreeting, 0, 0, recorded.greeting, Patience()).has_value());
  EXPECT_EQ(attacker.Receive(Patience(), 1000).value().type, MessageType::kGreeting);
  ASSERT_TRUE(attacker.Send(MessageType::kProof, 0, 0, recorded.proof, Patience()).has_value());
  EXPECT_EQ(attacker.Receive(Patience(), 1000).value().type, MessageType::kRefusal);
  attacker.Cancel();
  serving.Join();
  EXPECT_EQ(agreement.error().code, ErrorCode::kPermissionDenied);
}

// A server without the token that hands the client's own words back to it.
TEST(Handshake, ReflectedProofFails) {
  const auto pair = MakePair();
  Background echoing([&] {
    for (;;) {
      const auto message = pair.server->Receive(Patience(), 1000);
      if (!message || message->type == MessageType::kRefusal) break;
      if (!pair.server->Send(message->type, 0, 0, message->payload, Patience())) break;
    }
    pair.server->Cancel();
  });
  const auto agreement =
      ClientHandshake(*pair.client, Node(NodeRole::kDecode, 1), Token("secret"), Patience());
  EXPECT_EQ(agreement.error().code, ErrorCode::kPermissionDenied);
}

// Relays both directions and keeps a copy of what went over the wire.
std::vector<std::byte> Eavesdrop(const AuthToken& token) {
  const auto real = MakeListener();
  const auto proxy = MakeListener();
  std::vector<std::byte> seen;
  const auto client = Connect(proxy->address(), Patience()).value();
  const auto facing_client = proxy->Accept(Patience()).value();
  const auto facing_server = Connect(real->address(), Patience()).value();
  const auto server = real->Accept(Patience()).value();
  Background serving([&] {
    EXPECT_TRUE(
        ServerHandshake(*server, Node(NodeRole::kPrefill, 2), token, Patience()).has_value());
  });
  Background asking([&] {
    EXPECT_TRUE(
        ClientHandshake(*client, Node(NodeRole::kDecode, 1), token, Patience()).has_value());
  });
  for (int round = 0; round < 3; ++round) {  // greeting, proof, hello
    for (Connection* from : {facing_client.get(), facing_server.get()}) {
      Connection* to = from == facing_client.get() ? facing_server.get() : facing_client.get();
      const Message message = from->Receive(Patience(), 1 << 20).value();
      seen.insert(seen.end(), message.payload.begin(), message.payload.end());
      to->SetEpochs(message.epoch, 0);
      EXPECT_TRUE(to->Send(message.type, 0, 0, message.payload, Patience()).has_value());
    }
  }
  return seen;
}

TEST(Handshake, TokenNeverGoesOverTheWire) {
  const std::string_view secret = "correct-horse-battery";
  const auto seen = Eavesdrop(Token(secret));
  const std::string text(reinterpret_cast<const char*>(seen.data()), seen.size());
  EXPECT_GT(text.size(), 200U);
  EXPECT_EQ(text.find(secret), std::string::npos);
  EXPECT_EQ(text.find(secret.substr(0, 6)), std::string::npos);
}

TEST(Handshake, ReadsLittleBeforeTheProof) {
  for (const bool after_greeting : {false, true}) {
    const auto listener = MakeListener();
    RawPeer raw(listener->port());
    const auto ours = listener->Accept(Patience()).value();
    std::vector<std::byte> greeting(35);
    greeting[0] = std::byte{kProtocolVersion};
    greeting[2] = std::byte{1};
    if (after_greeting) raw.Write(WireMessage(MessageType::kGreeting, greeting));
    raw.Write(WireMessage(MessageType::kProof, std::vector<std::byte>(100'000)));
    const auto agreement =
        ServerHandshake(*ours, Node(NodeRole::kPrefill, 1), Token("secret"), Patience());
    EXPECT_EQ(agreement.error().code, ErrorCode::kCorruptData);
    EXPECT_LE(ours->stats().received_bytes, 1024U);
  }
}

TEST(Handshake, SilentPeerEndsAtTheDeadline) {
  const auto pair = MakePair();
  EXPECT_EQ(
      ServerHandshake(*pair.server, Node(NodeRole::kPrefill, 1), {}, After(0.05)).error().code,
      ErrorCode::kDeadlineExceeded);
  const auto other = MakePair();
  EXPECT_EQ(
      ClientHandshake(*other.client, Node(NodeRole::kDecode, 1), {}, After(0.05)).error().code,
      ErrorCode::kDeadlineExceeded);
}

// A byte now and then keeps no thread longer than the handshake's deadline.
TEST(Handshake, DripFeedingPeerEndsAtTheDeadline) {
  const auto listener = MakeListener();
  RawPeer raw(listener->port());
  const auto ours = listener->Accept(Patience()).value();
  std::atomic<bool> ended{false};
  Background dripping([&] {
    const auto greeting = WireMessage(MessageType::kGreeting, std::vector<std::byte>(35));
    for (std::size_t at = 0; at < greeting.size() && !ended; ++at) {
      raw.Write(std::span(greeting).subspan(at, 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the drip
    }
  });
  EXPECT_EQ(ServerHandshake(*ours, Node(NodeRole::kPrefill, 1), {}, After(0.1)).error().code,
            ErrorCode::kDeadlineExceeded);
  ended = true;
}

TEST(Handshake, ItsOwnDeadlineAppliesWithoutOneOfTheCaller) {
  const auto pair = MakePair();
  const auto started = Clock::now();
  EXPECT_EQ(
      ServerHandshake(*pair.server, Node(NodeRole::kPrefill, 1), {}, Deadline::max()).error().code,
      ErrorCode::kDeadlineExceeded);
  EXPECT_LT(SecondsSince(started), 6 * kHandshakeSeconds);
}

TEST(Handshake, PeerThatLeavesIsUnavailable) {
  auto pair = MakePair();
  pair.client.reset();
  EXPECT_EQ(ServerHandshake(*pair.server, Node(NodeRole::kPrefill, 1), {}, Patience()).error().code,
            ErrorCode::kUnavailable);
}

TEST(Handshake, MessagesOutOfOrderAreCorrupt) {
  const auto pair = MakePair();
  ASSERT_TRUE(pair.client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(ServerHandshake(*pair.server, Node(NodeRole::kPrefill, 1), {}, Patience()).error().code,
            ErrorCode::kCorruptData);
}

// Fifty strangers, some of them silent for ever, beside one good client.
TEST(Handshake, JunkConnectionsDoNotDisturbAGoodOne) {
  const auto listener = MakeListener();
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (std::size_t i = 0; i < 50; ++i) {
    strangers.push_back(std::make_unique<RawPeer>(listener->port()));
    const auto kinds = Junk();
    strangers.back()->Write(kinds[i % kinds.size()]);
  }
  std::vector<std::unique_ptr<Background>> handshakes;
  std::atomic<int> accepted{0};
  Background accepting([&] {
    for (;;) {
      auto connection = listener->Accept(Patience());
      if (!connection) break;
      handshakes.push_back(std::make_unique<Background>(
          [&accepted, peer = std::shared_ptr<Connection>(std::move(*connection))] {
            if (!ServerHandshake(*peer, Node(NodeRole::kPrefill, 2), {}, After(2))) return;
            ++accepted;
            const auto ping = peer->Receive(Patience(), 0);
            if (!ping) return;
            EXPECT_TRUE(peer->Send(MessageType::kPong, 1, 0, {}, Patience()).has_value());
          }));
    }
  });
  const auto client = Connect(listener->address(), Patience()).value();
  const auto agreement = ClientHandshake(*client, Node(NodeRole::kDecode, 1), {}, Patience());
  EXPECT_TRUE(agreement.has_value()) << agreement.error().message;
  EXPECT_TRUE(client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_EQ(client->Receive(Patience(), 0).value().type, MessageType::kPong);
  listener->Close();
  accepting.Join();
  handshakes.clear();
  EXPECT_EQ(accepted, 1);
}

TEST(Handshake, EpochsAreRandom) {
  const auto a = NewEpoch().value();
  EXPECT_NE(a, 0U);
  EXPECT_NE(a, NewEpoch().value());
}

}  // namespace
}  // namespace kvserve
