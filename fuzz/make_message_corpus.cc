// make_message_corpus OUT: the committed seeds of the message fuzzer, one good payload per kind.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "net/fetch_messages.h"
#include "net/handshake.h"
#include "net/message.h"
#include "net/messages.h"
#include "net/refusal.h"

namespace kvserve {
namespace {

using Payload = std::vector<std::byte>;

Hello SampleHello() {
  Hello hello;
  hello.version = "0.1.0";
  hello.epoch = 77;
  hello.geometry.layers.assign(3, {.kv_heads = 2, .k_dim = 64, .v_dim = 64});
  hello.geometry.layers[1].window_tokens = 512;
  hello.stages = {{0x0201, 1}, {0x0302, 1}};
  return hello;
}

// In the order of message_fuzzer.cc's kinds; false when a sample is out of range.
bool Samples(std::vector<Payload>& samples) {
  samples.resize(12);
  const ChunkInfo info{.tokens = {256, 512}, .raw_bytes = 5898240, .prefill_s = 0.25};
  BeginChunk(samples[7]);
  samples[7].resize(samples[7].size() + 20, std::byte{0x4B});
  EncodeRefusal({ErrorCode::kMismatch, "protocol", "2", "1"}, samples[6]);
  const auto header = PackHeader({.type = MessageType::kChunk, .payload_bytes = 20});
  samples[8].assign(header.begin(), header.end());
  return Encode(PrefillRequest{.profile = "lossless", .tokens = {1, 2, 300}, .prompt_tokens = 3},
                samples[0]) &&
         Encode(PrefillStarted{.tokens = 3, .chunks = 1, .queue_s = 0.5}, samples[1]) &&
         Encode(TransferEnd{.chunks = 1, .tokens = 3, .profile = "lossless"}, samples[2]) &&
         Encode(Ping{.value = 5}, samples[3]) && EncodeHello(SampleHello(), samples[4]) &&
         Encode(Abort{.message = "the engine is busy"}, samples[5]) &&
         FinishChunk(info, samples[7]) &&
         Encode(FetchOrder{.ticket = "cmpl-1", .tokens = 300, .first_token = 128}, samples[9]) &&
         Encode(FetchStarted{256, 8, 6, "lossless"}, samples[10]) &&
         Encode(TicketRelease{"cmpl-1"}, samples[11]);
}

}  // namespace
}  // namespace kvserve

int main(int argc, char** argv) {
  std::vector<std::vector<std::byte>> samples;
  if (argc != 2 || !kvserve::Samples(samples)) {
    std::fprintf(stderr, "make_message_corpus OUT\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  for (std::size_t kind = 0; kind < samples.size(); ++kind) {
    std::ofstream file(std::filesystem::path(argv[1]) / ("kind-" + std::to_string(kind)),
                       std::ios::binary);
    file.put(static_cast<char>(kind));
    file.write(reinterpret_cast<const char*>(samples[kind].data()),
               static_cast<std::streamsize>(samples[kind].size()));
  }
  return 0;
}
