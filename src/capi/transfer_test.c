/* Sender and receiver through the C ABI, over loopback. */
#include <kvserve/kvserve.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { kBlocks = 4, kSlots = 16, kHeads = 2, kDim = 8, kTokens = 40 };

/* [2, block, slot, head, dim] on both sides. */
static uint16_t sent[2][kBlocks][kSlots][kHeads][kDim];
static uint16_t taken[2][kBlocks][kSlots][kHeads][kDim];

static kvserve_paged_cache* Cache(void* memory) {
  const kvserve_layer shape = {kHeads, kDim, kDim, 0, KVSERVE_ROPE_NONE, 0.0F};
  kvserve_geometry* geometry = NULL;
  kvserve_paged_layer layer;
  kvserve_paged_cache* cache = NULL;
  CHECK_OK(kvserve_geometry_create(KVSERVE_BFLOAT16, &shape, 1, &geometry));
  CHECK_OK(kvserve_lay_out_layer(KVSERVE_NHD, memory, &shape, KVSERVE_BFLOAT16, kBlocks, kSlots,
                                 &layer));
  CHECK_OK(kvserve_paged_cache_create(geometry, kSlots, kBlocks, &layer, 1, &cache));
  kvserve_geometry_destroy(geometry);
  return cache;
}

/* Waits for a report; the limit is for a library that hangs. */
static int TakeFetch(kvserve_receiver* receiver, kvserve_fetch_report* report) {
  const time_t end = time(NULL) + 30;
  int found = 0;
  while (!found && time(NULL) < end) {
    memset(report, 0, sizeof *report);
    report->struct_size = sizeof *report;
    CHECK_OK(kvserve_receiver_take_report(receiver, report, &found));
  }
  return found;
}

static int TakeOffer(kvserve_sender* sender, kvserve_offer_report* report) {
  const time_t end = time(NULL) + 30;
  int found = 0;
  while (!found && time(NULL) < end) {
    memset(report, 0, sizeof *report);
    report->struct_size = sizeof *report;
    CHECK_OK(kvserve_sender_take_report(sender, report, &found));
  }
  return found;
}

static const uint32_t kFrom[] = {3, 1, 0};
static const uint32_t kTo[] = {0, 2, 3};
static const kvserve_block_table kSourceBlocks = {kFrom, 3};
static const kvserve_block_table kTargetBlocks = {kTo, 3};
static int32_t tokens[kTokens];

static kvserve_offer Offer(const char* profile) {
  kvserve_offer offer;
  memset(&offer, 0, sizeof offer);
  offer.struct_size = sizeof offer;
  offer.profile = profile;
  offer.tokens = tokens;
  offer.token_count = kTokens;
  return offer;
}

static kvserve_fetch_request Request(const kvserve_sender* sender, const char* ticket) {
  kvserve_fetch_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.id = "fetch";
  request.address = kvserve_sender_address(sender);
  request.ticket = ticket;
  request.tokens = tokens;
  request.token_count = kTokens;
  request.tables = &kTargetBlocks;
  request.table_count = 1;
  return request;
}

static void TestDelivered(kvserve_sender* sender, kvserve_receiver* receiver) {
  const kvserve_offer offer = Offer("lossless");
  const kvserve_fetch_request request = Request(sender, "ticket");
  kvserve_fetch_report fetched;
  kvserve_offer_report offered;
  CHECK_OK(kvserve_sender_begin(sender, "ticket", &offer));
  CHECK(kvserve_sender_begin(sender, "ticket", &offer) == KVSERVE_INVALID_ARGUMENT);
  CHECK(kvserve_sender_open_tickets(sender) == 1);
  CHECK_OK(kvserve_sender_stage(sender, "ticket", &kSourceBlocks, 1, 0, kTokens, 0, 1));
  CHECK_OK(kvserve_sender_wait_read(sender));
  CHECK_OK(kvserve_receiver_fetch(receiver, &request));
  CHECK(TakeFetch(receiver, &fetched) == 1);
  CHECK(strcmp(fetched.id, "fetch") == 0 && strcmp(fetched.ticket, "ticket") == 0);
  CHECK(fetched.error == KVSERVE_OK && strcmp(fetched.error_message, "") == 0);
  CHECK(fetched.tokens == kTokens && fetched.raw_bytes == kTokens * kHeads * kDim * 2 * 2);
  for (int plane = 0; plane < 2; ++plane) {
    for (int t = 0; t < kTokens; ++t) {
      CHECK(memcmp(taken[plane][kTo[t / kSlots]][t % kSlots],
                   sent[plane][kFrom[t / kSlots]][t % kSlots], kHeads * kDim * 2) == 0);
    }
  }
  CHECK(TakeOffer(sender, &offered) == 1);
  CHECK(strcmp(offered.ticket, "ticket") == 0 && offered.outcome == KVSERVE_DELIVERED);
  CHECK(offered.error == KVSERVE_OK && offered.tokens == kTokens);
  CHECK(offered.drift_fallbacks == 0 && strcmp(offered.drift_cause, "") == 0);
  CHECK(fetched.drift_fallbacks == 0 && strcmp(offered.drift_reason, "") == 0);
  CHECK(kvserve_receiver_running(receiver) == 0 && kvserve_sender_open_tickets(sender) == 0);
}

/* What nobody offers any more is an error in the report, not a fault of the call. */
static void TestWithdrawn(kvserve_sender* sender, kvserve_receiver* receiver) {
  const kvserve_offer offer = Offer("none");
  const kvserve_fetch_request request = Request(sender, "other");
  kvserve_fetch_report fetched;
  kvserve_offer_report offered;
  CHECK_OK(kvserve_sender_begin(sender, "other", &offer));
  CHECK_OK(kvserve_sender_withdraw(sender, "other", KVSERVE_CANCELLED, "changed my mind"));
  CHECK(kvserve_sender_withdraw(sender, "other", 0, "") == KVSERVE_INVALID_ARGUMENT);
  CHECK(TakeOffer(sender, &offered) == 1);
  CHECK(offered.outcome == KVSERVE_WITHDRAWN && offered.error == KVSERVE_CANCELLED);
  CHECK(strstr(offered.error_message, "changed my mind") != NULL);
  CHECK_OK(kvserve_receiver_fetch(receiver, &request));
  CHECK_OK(kvserve_receiver_cancel(receiver, "fetch"));
  CHECK(TakeFetch(receiver, &fetched) == 1);
  CHECK(fetched.error != KVSERVE_OK);
}

int main(void) {
  kvserve_sender_options options;
  kvserve_sender* sender = NULL;
  kvserve_sender* refused = NULL;
  kvserve_receiver* receiver = NULL;
  kvserve_profile* profile = NULL;
  kvserve_paged_cache* source = Cache(sent);
  kvserve_paged_cache* target = Cache(taken);
  for (size_t i = 0; i < sizeof sent / 2; ++i) {
    (&sent[0][0][0][0][0])[i] = (uint16_t)(0x3f00 + i * 13 % 251);
  }
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.frame_tokens = 16;
  CHECK_OK(kvserve_sender_start(source, &options, &sender));
  CHECK_OK(kvserve_receiver_start(target, NULL, &receiver));
  CHECK(strncmp(kvserve_sender_address(sender), "127.0.0.1:", 10) == 0);
  for (int i = 0; i < kTokens; ++i) tokens[i] = 7 * i;
  if (sender != NULL && receiver != NULL) {
    TestDelivered(sender, receiver);
    TestWithdrawn(sender, receiver);
  }
  CHECK_OK(kvserve_profile_parse("hadamard|uniform|rans", &profile));
  options.fallback = profile;
  if (sender != NULL) kvserve_sender_destroy(sender);
  sender = NULL;
  CHECK_OK(kvserve_sender_start(source, &options, &sender));
  kvserve_profile_destroy(profile);
  if (sender != NULL && receiver != NULL) TestDelivered(sender, receiver);
  CHECK_OK(kvserve_profile_parse("affine:source=calibrated|uniform|rans", &profile));
  options.fallback = profile;
  CHECK(kvserve_sender_start(source, &options, &refused) == KVSERVE_INVALID_ARGUMENT);
  CHECK(refused == NULL && strstr(kvserve_last_error(), "fallback") != NULL);
  kvserve_profile_destroy(profile);
  options.fallback = NULL;
  options.listen = "nowhere";
  CHECK(kvserve_sender_start(source, &options, NULL) == KVSERVE_INVALID_ARGUMENT);

  kvserve_receiver_destroy(receiver);
  kvserve_sender_destroy(sender);
  kvserve_paged_cache_destroy(target);
  kvserve_paged_cache_destroy(source);
  return CheckResult();
}
