// Two imaginary engines, a sender in one and a receiver in the other, for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvserve/receiver.h"
#include "kvserve/sender.h"
#include "paged/testing/paged_sample.h"

namespace kvserve::testing {

struct TransferSetup {
  KvGeometry geometry;
  PagedLayout from_layout = PagedLayout::kVllmCpu;
  PagedLayout to_layout = PagedLayout::kNhd;
  std::uint32_t from_block = 16;
  std::uint32_t to_block = 16;
  std::uint32_t blocks = 64;  // of 16 tokens, on each side
  SenderOptions sender;
  ReceiverOptions receiver;
};

// Layers of [head 2, dim 16] in float16, and tokens of them small enough for many frames.
[[nodiscard]] TransferSetup SmallSetup(std::size_t layers = 3);

[[nodiscard]] std::vector<std::int32_t> SomeTokens(std::uint32_t count, std::int32_t first = 7);

// Polls until `condition` holds; false after a minute.
[[nodiscard]] bool Eventually(const std::function<bool()>& condition);

class TransferPair {
 public:
  explicit TransferPair(TransferSetup setup);

  // A request whose KV lies in both engines' blocks, different ones.
  struct Request {
    std::string ticket;
    std::vector<std::int32_t> tokens;
    std::vector<BlockTable> from_tables;
    std::vector<BlockTable> to_tables;
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(tokens.size()); }
  };
  [[nodiscard]] Request NewRequest(const std::string& ticket, std::uint32_t tokens,
                                   std::uint32_t window = 0);

  void Begin(const Request& request, const std::string& profile, const std::string& context = "");
  void Stage(const Request& request, TokenRange tokens);  // all layers
  void StageAll(const Request& request);
  [[nodiscard]] FetchRequest FetchOf(const Request& request, std::uint32_t first_token = 0) const;
  void Fetch(const FetchRequest& request);
  // The report of a fetch; reports of others are kept for their turn.
  [[nodiscard]] FetchReport Await(const std::string& id);
  [[nodiscard]] OfferReport AwaitOffer(const std::string& ticket);

  // What lies in the blocks of either side.
  [[nodiscard]] std::vector<std::byte> Sent(const Request& request, std::uint32_t first = 0);
  [[nodiscard]] std::vector<std::byte> Received(const Request& request, std::uint32_t first = 0);

  TransferSetup setup;
  SampleCache source;
  SampleCache target;
  std::unique_ptr<KvSender> sender;
  std::unique_ptr<KvReceiver> receiver;

 private:
  std::vector<FetchReport> fetch_reports_;
  std::vector<OfferReport> offer_reports_;
};

}  // namespace kvserve::testing
