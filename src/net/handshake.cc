// Both sides run the same steps (greet, prove, compare); the client goes first in each of them.
#include "net/handshake.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/byte_io.h"
#include "base/try.h"
#include "net/refusal.h"

namespace kvserve {
namespace {

enum class Side : std::uint8_t { kClient, kServer };

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kGreetingBytes = 2 + 1 + kNonceBytes;
// 4096 layers of 21 bytes, 4096 stages of 3 bytes and the rest.
constexpr std::size_t kMaxHelloBytes = 100 * 1024;
constexpr double kRefusalSeconds = 1.0;

using Bytes = std::vector<std::byte>;

struct Greeting {
  std::uint16_t protocol = 0;
  bool has_token = false;
};

class Handshake {
 public:
  Handshake(Side side, Connection& connection, const Hello& local, const AuthToken& token,
            Deadline deadline)
      : side_(side),
        connection_(connection),
        local_(local),
        token_(token),
        deadline_(std::min(deadline, After(kHandshakeSeconds))) {}

  Result<Agreement> Run();

 private:
  Status ExchangeGreetings();
  Status ExchangeProofs();
  Result<Hello> ExchangeHellos();

  Status SendGreeting();
  Status ReceiveGreeting();
  Status SendProof();
  Status ReceiveProof();
  Result<Bytes> ReceiveType(MessageType wanted, std::size_t max_payload);
  Result<Mac> ProofOf(Side side) const;
  tl::unexpected<Error> Refuse(const Refusal& refusal);

  const Side side_;
  Connection& connection_;
  const Hello& local_;
  const AuthToken& token_;
  const Deadline deadline_;
  Bytes hello_;  // `local`, encoded
  Bytes client_greeting_;
  Bytes server_greeting_;
};

Result<Agreement> Handshake::Run() {
  KVSERVE_TRY(EncodeHello(local_, hello_));  // a node that cannot introduce itself does not begin
  KVSERVE_TRY(ExchangeGreetings());
  if (!token_.empty()) KVSERVE_TRY(ExchangeProofs());
  KVSERVE_ASSIGN(const Hello peer, ExchangeHellos());
  KVSERVE_ASSIGN(auto agreement, Negotiate(local_, peer));
  connection_.SetEpochs(local_.epoch, peer.epoch);
  return agreement;
}

// The peer hears why before the connection ends; whether it still listens is its own affair.
tl::unexpected<Error> Handshake::Refuse(const Refusal& refusal) {
  Bytes payload;
  EncodeRefusal(refusal, payload);
  const Deadline deadline = std::min(deadline_, After(kRefusalSeconds));
  if (connection_.Send(MessageType::kRefusal, 0, 0, payload, deadline))
    connection_.Finish(deadline);
  return tl::unexpected<Error>(SenderError(refusal));
}

Result<Bytes> Handshake::ReceiveType(MessageType wanted, std::size_t max_payload) {
  KVSERVE_ASSIGN(Message message,
                 connection_.Receive(deadline_, std::max(max_payload, kMaxRefusalBytes)));
  if (message.type == MessageType::kRefusal) {
    KVSERVE_ASSIGN(const Refusal refusal, DecodeRefusal(message.payload));
    return tl::unexpected<Error>(ReceiverError(refusal));
  }
  if (message.type != wanted) {
    return MakeError(ErrorCode::kCorruptData,
                     "handshake: message type " +
                         std::to_string(static_cast<unsigned>(message.type)) + " instead of " +
                         std::to_string(static_cast<unsigned>(wanted)));
  }
  return std::move(message.payload);
}

// ---- greetings ---------------------------------------------------------------------------------

Status Handshake::ExchangeGreetings() {
  if (side_ == Side::kClient) KVSERVE_TRY(SendGreeting());
  KVSERVE_TRY(ReceiveGreeting());
  if (side_ == Side::kServer) KVSERVE_TRY(SendGreeting());
  return {};
}

Status Handshake::SendGreeting() {
  Bytes& greeting = side_ == Side::kClient ? client_greeting_ : server_greeting_;
  ByteWriter writer(greeting);
  writer.Put(local_.protocol);
  writer.Put(static_cast<std::uint8_t>(token_.empty() ? 0 : 1));
  KVSERVE_TRY(FillRandom(writer.Grow(kNonceBytes)));
  return connection_.Send(MessageType::kGreeting, 0, 0, greeting, deadline_);
}

Status Handshake::ReceiveGreeting() {
  Bytes& greeting = side_ == Side::kClient ? server_greeting_ : client_greeting_;
  KVSERVE_ASSIGN(greeting, ReceiveType(MessageType::kGreeting, kGreetingBytes));
  ByteReader reader(greeting);
  // Only the protocol's place is the same in every version: compare it before reading on.
  KVSERVE_ASSIGN(const auto protocol, reader.Get<std::uint16_t>());
  if (protocol != local_.protocol) {
    return Refuse({ErrorCode::kMismatch, "protocol", std::to_string(local_.protocol),
                   std::to_string(protocol)});
  }
  KVSERVE_ASSIGN(const auto has_token, reader.Get<std::uint8_t>());
  if (has_token > 1 || reader.remaining() != kNonceBytes) {
    return MakeError(ErrorCode::kCorruptData, "handshake: malformed greeting");
  }
  if (token_.empty() && has_token == 1) {
    return Refuse({ErrorCode::kPermissionDenied, "token", "not configured", "configured"});
  }
  if (!token_.empty() && has_token == 0) {
    return Refuse({ErrorCode::kPermissionDenied, "token", "required", "missing"});
  }
  return {};
}

// ---- proofs ------------------------------------------------------------------------------------

// The client proves itself first, so that a stranger learns nothing that depends on the token.
Status Handshake::ExchangeProofs() {
  if (side_ == Side::kClient) KVSERVE_TRY(SendProof());
  KVSERVE_TRY(ReceiveProof());
  if (side_ == Side::kServer) KVSERVE_TRY(SendProof());
  return {};
}

// Both nonces are in the greetings; the label keeps one side's proof from serving as the other's.
Result<Mac> Handshake::ProofOf(Side side) const {
  const std::string_view label =
      side == Side::kClient ? "kvserve client proof" : "kvserve server proof";
  Bytes transcript;
  ByteWriter writer(transcript);
  writer.PutBytes(std::as_bytes(std::span(label.data(), label.size())));
  writer.PutBytes(client_greeting_);
  writer.PutBytes(server_greeting_);
  return token_.Sign(transcript);
}

Status Handshake::SendProof() {
  KVSERVE_ASSIGN(const Mac proof, ProofOf(side_));
  return connection_.Send(MessageType::kProof, 0, 0, proof, deadline_);
}

Status Handshake::ReceiveProof() {
  KVSERVE_ASSIGN(const Mac expected,
                 ProofOf(side_ == Side::kClient ? Side::kServer : Side::kClient));
  KVSERVE_ASSIGN(const Bytes bytes, ReceiveType(MessageType::kProof, expected.size()));
  Mac proof{};
  if (bytes.size() == proof.size()) std::memcpy(proof.data(), bytes.data(), proof.size());
  if (bytes.size() != proof.size() || !EqualMacs(proof, expected)) {
    return Refuse({ErrorCode::kPermissionDenied, "the two sides hold different tokens", "", ""});
  }
  return {};
}

// ---- hellos ------------------------------------------------------------------------------------

Result<Hello> Handshake::ExchangeHellos() {
  if (side_ == Side::kClient) {
    KVSERVE_TRY(connection_.Send(MessageType::kHello, 0, 0, hello_, deadline_));
  }
  KVSERVE_ASSIGN(const Bytes bytes, ReceiveType(MessageType::kHello, kMaxHelloBytes));
  KVSERVE_ASSIGN(Hello peer, DecodeHello(bytes));
  if (const auto conflict = FindConflict(local_, peer)) return Refuse(*conflict);
  if (side_ == Side::kServer) {
    KVSERVE_TRY(connection_.Send(MessageType::kHello, 0, 0, hello_, deadline_));
  }
  return peer;
}

}  // namespace

Result<std::uint64_t> NewEpoch() {
  std::uint64_t epoch = 0;
  while (epoch == 0) KVSERVE_TRY(FillRandom(std::as_writable_bytes(std::span(&epoch, 1))));
  return epoch;
}

Result<Agreement> ClientHandshake(Connection& connection, const Hello& local,
                                  const AuthToken& token, Deadline deadline) {
  return Handshake(Side::kClient, connection, local, token, deadline).Run();
}

Result<Agreement> ServerHandshake(Connection& connection, const Hello& local,
                                  const AuthToken& token, Deadline deadline) {
  return Handshake(Side::kServer, connection, local, token, deadline).Run();
}

}  // namespace kvserve
