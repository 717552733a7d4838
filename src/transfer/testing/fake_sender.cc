#include "transfer/testing/fake_sender.h"

#include <utility>

#include "kvserve/codec.h"
#include "net/handshake.h"
#include "transfer/frame_grid.h"
#include "transfer/node_hello.h"
#include "transfer/prefix_seed.h"

namespace kvserve::testing {

HonestFrames MakeFrames(TransferPair& pair, const TransferPair::Request& request,
                        const std::string& profile, const std::string& context) {
  const KvGeometry& geometry = pair.setup.geometry;
  const auto grid = FrameGrid::Create(geometry, request.size(), pair.setup.sender.frame_tokens,
                                      pair.setup.sender.layers_per_frame)
                        .value();
  const Fingerprint seed = PrefixSeed({}, context);
  HonestFrames frames;
  frames.started = {grid.frame_tokens(), grid.layers_per_frame(), grid.CountWanted(0), profile};
  for (std::uint32_t i = 0; i < grid.frames(); ++i) {
    if (!grid.IsWanted(i, 0)) continue;
    const TokenRange tokens = grid.At(i).tokens;
    KvBuffer kv;
    (void)kv.Resize(geometry, tokens, grid.Held(i));
    (void)GatherTokens(pair.source.cache(), request.from_tables, tokens, kv.view());
    const ConstKvView view = std::as_const(kv).view();
    const EncodeOptions options{
        {}, PrefixKey(seed, std::span(request.tokens).first(tokens.end)), request.size()};
    std::vector<std::byte> payload;
    BeginChunk(payload);
    (void)EncodeFrame(view, ParseProfile(profile).value(), options, payload);
    (void)FinishChunk({tokens, RawBytes(view)}, payload);
    ++frames.end.chunks;
    frames.end.raw_bytes += RawBytes(view);
    frames.end.frame_bytes += payload.size() - kChunkInfoBytes;
    frames.indices.push_back(i);
    frames.payloads.push_back(std::move(payload));
  }
  frames.end.tokens = request.size();
  frames.end.profile = profile;
  return frames;
}

FakeSender::FakeSender(const TransferPair& pair, Script script)
    : geometry_(pair.setup.geometry),
      script_(std::move(script)),
      listener_(std::move(Listener::Bind({}, AuthToken())).value()),
      thread_([this] { Run(); }) {}

FakeSender::~FakeSender() {
  listener_->Close();
  thread_.join();
}

void FakeSender::Run() {
  const Hello hello = MakeHello({}, geometry_, NodeRole::kPrefill).value();
  for (;;) {
    auto connection = listener_->Accept(After(600.0));
    if (!connection) return;
    if (!ServerHandshake(**connection, hello, AuthToken(), After(60.0))) continue;
    auto message = (*connection)->Receive(After(60.0), kMaxFetchBytes);
    if (message && message->type == MessageType::kFetch)
      script_(**connection, message->transfer_id);
  }
}

void SendFrames(Connection& connection, std::uint64_t transfer_id, const HonestFrames& frames) {
  SendPayload(connection, MessageType::kFetchStarted, transfer_id, frames.started);
  for (std::size_t i = 0; i < frames.payloads.size(); ++i) {
    (void)connection.Send(MessageType::kChunk, transfer_id, frames.indices[i], frames.payloads[i],
                          After(60.0));
  }
  SendPayload(connection, MessageType::kTransferEnd, transfer_id, frames.end);
}

void AwaitEnd(Connection& connection) {
  while (connection.Receive(After(60.0), kMaxControlBytes)) {
  }
}

}  // namespace kvserve::testing
