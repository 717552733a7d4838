#include "transfer/testing/transfer_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace kvserve::testing {

TransferSetup SmallSetup(std::size_t layers) {
  TransferSetup setup;
  setup.geometry =
      Geometry(DType::kFloat16,
               std::vector<LayerGeometry>(layers, {.kv_heads = 2, .k_dim = 16, .v_dim = 16}));
  setup.sender.frame_tokens = 32;
  return setup;
}

std::vector<std::int32_t> SomeTokens(std::uint32_t count, std::int32_t first) {
  std::vector<std::int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

bool Eventually(const std::function<bool()>& condition) {
  const Deadline deadline = After(60.0);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TransferPair::TransferPair(TransferSetup given)
    : setup(std::move(given)),
      source(setup.geometry, setup.from_layout, setup.from_block,
             std::max(4U, setup.blocks * 16 / setup.from_block), 1),
      target(setup.geometry, setup.to_layout, setup.to_block,
             std::max(4U, setup.blocks * 16 / setup.to_block), 2) {
  source.FillNormal(3);
  sender = KvSender::Start(source.cache(), setup.sender).value();
  receiver = KvReceiver::Start(target.cache(), setup.receiver).value();
}

TransferPair::Request TransferPair::NewRequest(const std::string& ticket, std::uint32_t tokens,
                                               std::uint32_t window) {
  return {ticket, SomeTokens(tokens), source.NewTables(tokens, window),
          target.NewTables(tokens, window)};
}

void TransferPair::Begin(const Request& request, const std::string& profile,
                         const std::string& context) {
  const Status begun = sender->Begin(request.ticket, {profile, request.tokens, context});
  EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
}

void TransferPair::Stage(const Request& request, TokenRange tokens) {
  const Status staged = sender->Stage(request.ticket, request.from_tables, tokens, 0,
                                      static_cast<std::uint32_t>(setup.geometry.layers.size()));
  EXPECT_TRUE(staged.has_value()) << (staged ? "" : staged.error().message);
}

void TransferPair::StageAll(const Request& request) {
  Stage(request, {0, request.size()});
}

FetchRequest TransferPair::FetchOf(const Request& request, std::uint32_t first_token) const {
  FetchRequest fetch;
  fetch.id = request.ticket;
  fetch.address = sender->address();
  fetch.ticket = request.ticket;
  fetch.tokens = request.tokens;
  fetch.wanted = {first_token, request.size()};
  fetch.tables = request.to_tables;
  return fetch;
}

void TransferPair::Fetch(const FetchRequest& request) {
  const Status begun = receiver->Fetch(request);
  EXPECT_TRUE(begun.has_value()) << (begun ? "" : begun.error().message);
}

FetchReport TransferPair::Await(const std::string& id) {
  FetchReport found;
  EXPECT_TRUE(Eventually([&] {
    std::ranges::move(receiver->TakeReports(), std::back_inserter(fetch_reports_));
    const auto report = std::ranges::find(fetch_reports_, id, &FetchReport::id);
    if (report == fetch_reports_.end()) return false;
    found = std::move(*report);
    fetch_reports_.erase(report);
    return true;
  })) << id;
  return found;
}

OfferReport TransferPair::AwaitOffer(const std::string& ticket) {
  OfferReport found;
  EXPECT_TRUE(Eventually([&] {
    std::ranges::move(sender->TakeReports(), std::back_inserter(offer_reports_));
    const auto report = std::ranges::find(offer_reports_, ticket, &OfferReport::ticket);
    if (report == offer_reports_.end()) return false;
    found = std::move(*report);
    offer_reports_.erase(report);
    return true;
  })) << ticket;
  return found;
}

std::vector<std::byte> TransferPair::Sent(const Request& request, std::uint32_t first) {
  return ReadTokens(source.cache(), request.from_tables, {first, request.size()}, request.size());
}

std::vector<std::byte> TransferPair::Received(const Request& request, std::uint32_t first) {
  return ReadTokens(target.cache(), request.to_tables, {first, request.size()}, request.size());
}

}  // namespace kvserve::testing
