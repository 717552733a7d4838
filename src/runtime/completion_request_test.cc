#include "runtime/completion_request.h"

#include <gtest/gtest.h>

#include "engine/testing/fake_engine.h"

namespace kvserve {
namespace {

Result<CompletionRequest> Parse(std::string_view body, Endpoint endpoint = Endpoint::kCompletions) {
  static const testing::FakeEngine engine({});
  return ParseCompletionRequest(endpoint, body, engine);
}

TEST(CompletionRequest, ReadsEveryField) {
  const auto request = Parse(
      R"({"model":"m","prompt":"ab","max_tokens":3,"temperature":0.5,"top_p":0.25,"seed":9,
          "stop":["x","yy"],"stream":true,"return_token_ids":true,"ignore_eos":true,
          "kvserve":{"profile":"none"},"n":1,"echo":false,"user":"u","suffix":null})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->generate.prompt, (std::vector<Token>{'a', 'b'}));
  EXPECT_EQ(request->generate.max_tokens, 3U);
  EXPECT_FLOAT_EQ(request->generate.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(request->generate.sampling.top_p, 0.25F);
  EXPECT_EQ(request->generate.sampling.seed, 9U);
  EXPECT_EQ(request->generate.stops, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(request->generate.profile, "none");
  EXPECT_TRUE(request->generate.ignore_end);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->return_token_ids);
}

TEST(CompletionRequest, TakesPromptsInAllForms) {
  for (const char* body : {R"({"prompt":"ab"})", R"({"prompt":["ab"]})", R"({"prompt":[97,98]})",
                           R"({"prompt":[[97,98]]})"}) {
    const auto request = Parse(body);
    ASSERT_TRUE(request) << body;
    EXPECT_EQ(request->generate.prompt, (std::vector<Token>{97, 98})) << body;
    EXPECT_EQ(request->generate.max_tokens, 16U);
  }
  const auto chat = Parse(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
          "max_completion_tokens":4})",
      Endpoint::kChat);
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->generate.prompt.size(), std::string("user:hi\n").size());
  EXPECT_EQ(chat->generate.max_tokens, 4U);
}

TEST(CompletionRequest, NamesTheFieldItRefuses) {
  const struct {
    const char* body;
    const char* field;
  } cases[] = {
      {R"({"prompt":""})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":[1e99]})", "prompt"},
      {R"({"prompt":["a","b"]})", "prompt"},
      {R"({"prompt":{"a":1}})", "prompt"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":18446744073709551616})", "max_tokens"},
      {R"({"prompt":"a","max_tokens":"4"})", "max_tokens"},
      {R"({"prompt":"a","temperature":-1})", "temperature"},
      {R"({"prompt":"a","top_p":1.5})", "top_p"},
      {R"({"prompt":"a","seed":1.5})", "seed"},
      {R"({"prompt":"a","stop":[""]})", "stop"},
      {R"({"prompt":"a","stream":1})", "stream"},
      {R"({"prompt":"a","n":2})", "n"},
      {R"({"prompt":"a","logprobs":5})", "logprobs"},
      {R"({"prompt":"a","whatever":1})", "whatever"},
      {R"({"prompt":"a","messages":[]})", "messages"},
      {R"({"prompt":"a","kvserve":{"profil":"none"}})", "kvserve.profil"},
      {R"({"prompt":"a","kvserve":{"profile":1}})", "kvserve.profile"},
      {R"([])", "body"},
      {R"({"prompt":"a")", "body"},
      {"\xFF\xFE", "body"},
  };
  for (const auto& test : cases) {
    const auto request = Parse(test.body);
    ASSERT_FALSE(request) << test.body;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument) << test.body;
    EXPECT_NE(request.error().message.find(test.field), std::string::npos)
        << request.error().message;
  }
}

TEST(CompletionRequest, RefusesDeepNestingBeforeParsingIt) {
  std::string body = R"({"prompt":"a","metadata":)" + std::string(1000000, '[');
  const auto request = Parse(body);
  ASSERT_FALSE(request);
  EXPECT_NE(request.error().message.find("32"), std::string::npos);
  // Brackets within strings are text.
  EXPECT_TRUE(Parse(R"({"prompt":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[[[["})"));
}

// Whether a prompt of tokens fits is the node's to say; what cannot fit is refused here, unread.
TEST(CompletionRequest, ATextThatCannotFitIsNotTokenized) {
  const testing::FakeEngine engine({.context_tokens = 16});
  const std::string longest(std::size_t{16} * 128 - 1, 'x');
  for (const bool chat : {false, true}) {
    const auto parse = [&](const std::string& text) {
      return chat ? ParseCompletionRequest(
                        Endpoint::kChat,
                        R"({"messages":[{"role":"user","content":")" + text + R"("}]})", engine)
                  : ParseCompletionRequest(Endpoint::kCompletions,
                                           R"({"prompt":")" + text + R"("})", engine);
    };
    const auto request = parse(longest + "x");
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(request.error().message.find("does not fit a context of 16 tokens"),
              std::string::npos)
        << request.error().message;
    EXPECT_EQ(parse(longest).has_value(), !chat);  // a template adds to the text
    EXPECT_TRUE(parse("short"));
  }
}

}  // namespace
}  // namespace kvserve
