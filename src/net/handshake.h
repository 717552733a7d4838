// What two nodes tell each other first: protocol version, proof of the token, then who they are.
//
//   client                                   server
//   kGreeting {protocol, token?, nonce}   ->
//                                         <- kGreeting, or kRefusal (protocol, authentication)
//   kProof {HMAC over both greetings}     ->                     (only with a token)
//                                         <- kProof, or kRefusal
//   kHello {version, features, model, ..} ->
//                                         <- kHello, or kRefusal (names the field and both values)
//
// Until the proof is verified at most 1 KiB is read from a peer. The token protects who may talk,
// not what is said afterwards: no encryption, no keyed checksum of later messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "frame/frame.h"
#include "kvserve/error.h"
#include "kvserve/geometry.h"
#include "net/connection.h"
#include "net/token.h"

namespace kvserve {

inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::uint64_t kProtocolFeatures = 0;  // feature bits this build understands
inline constexpr double kHandshakeSeconds = 5.0;

// Values are on the wire. A prefill node talks to decode nodes; a store to anybody.
enum class NodeRole : std::uint8_t { kPrefill = 1, kDecode = 2, kStore = 3 };

// A stage a node can decode and encode.
struct StageVersion {
  std::uint16_t id = 0;
  std::uint8_t version = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the comparison with 0 for a pointer.
  friend auto operator<=>(const StageVersion&, const StageVersion&) = default;
};

// What a node says of itself. The defaults are this build's; tests and other releases differ.
struct Hello {
  std::uint16_t protocol = kProtocolVersion;
  std::string version = KVSERVE_VERSION;       // 1..64 printable characters
  std::uint64_t features = kProtocolFeatures;  // understood
  std::uint64_t required_features = 0;         // the peer must understand these
  std::uint16_t frame_version = kFrameVersion;
  NodeRole role = NodeRole::kDecode;
  std::uint64_t epoch = 0;           // NewEpoch(), once per process
  Fingerprint model;                 // not compared when one side is a store
  KvGeometry geometry;               // likewise
  std::vector<StageVersion> stages;  // at most 4096, any order, ids unique
};

// What both sides agreed on.
struct Agreement {
  Hello peer;
  std::uint64_t features = 0;        // understood by both
  std::vector<StageVersion> stages;  // same id and version on both sides, ascending
};

// Random and not 0.
[[nodiscard]] Result<std::uint64_t> NewEpoch();

// Run the handshake on a fresh connection; it then carries both epochs. The earlier of `deadline`
// and kHandshakeSeconds applies. Errors: kMismatch (protocol, role, model, geometry, dtype, frame
// version: "protocol 2 here, 1 there"), kUnsupported (required feature), kPermissionDenied (token
// missing, not wanted or wrong), and those of Connection. When this side refuses, the peer is told
// the reason before the error returns; when the peer refuses, its code and values are returned,
// seen from here, with "(refused by the peer)".
[[nodiscard]] Result<Agreement> ClientHandshake(Connection& connection, const Hello& local,
                                                const AuthToken& token, Deadline deadline);
[[nodiscard]] Result<Agreement> ServerHandshake(Connection& connection, const Hello& local,
                                                const AuthToken& token, Deadline deadline);

// The comparison alone, from `local`'s side. The peer's role, model etc. as in the errors above.
[[nodiscard]] Result<Agreement> Negotiate(const Hello& local, const Hello& peer);

// The bytes of a kHello message. Decoding fails with kCorruptData on any byte too many or too few.
[[nodiscard]] Status EncodeHello(const Hello& hello, std::vector<std::byte>& out);
[[nodiscard]] Result<Hello> DecodeHello(std::span<const std::byte> bytes);

}  // namespace kvserve
