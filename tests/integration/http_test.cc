// The HTTP face of a decode node, over real sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "pair.h"
#include "runtime/completion_server.h"

namespace kvserve::testing {
namespace {

using Json = nlohmann::json;

// A pair with its decode node on HTTP.
struct HttpPair {
  explicit HttpPair(PairOptions options = {}, const HttpOptions& http_options = {})
      : pair(std::move(options)), http(Serve(*pair.decode, http_options)) {}
  ~HttpPair() { pair.decode->Stop(); }

  static std::unique_ptr<HttpListener> Serve(DecodeNode& node, const HttpOptions& options) {
    auto http = std::move(HttpListener::Bind(options).value());
    AddNodeRoutes(*http, node.metrics());
    AddCompletionRoutes(*http, node);
    http->Start();
    return http;
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", http->address().port);
    client.set_read_timeout(60);
    return client;
  }
  std::pair<int, Json> Post(const Json& body, const char* path = "/v1/completions") const {
    const auto response = Client().Post(path, body.dump(), "application/json");
    if (!response) return {0, {}};
    return {response->status, Json::parse(response->body, nullptr, false)};
  }

  Pair pair;
  std::unique_ptr<HttpListener> http;
};

// Events of a streamed response, without "data: ".
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("data: ", 0) == 0) events.push_back(line.substr(6));
  }
  return events;
}

TEST(Http, ACompletionSaysWhatWasUsedAndWhy) {
  HttpPair served;
  const auto prompt = Prompt(100);
  const auto [status, body] = served.Post({{"prompt", prompt},
                                           {"max_tokens", 12},
                                           {"temperature", 0},
                                           {"return_token_ids", true},
                                           {"kvserve", {{"profile", "lossless"}}}});
  ASSERT_EQ(status, 200) << body;
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["token_ids"], Json(LocalTokens(Greedy(prompt))));
  EXPECT_EQ(body["prompt_token_ids"], Json(prompt));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 100);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  const Json& facts = body["kvserve"];
  EXPECT_EQ(facts["profile"], "lossless");
  EXPECT_EQ(facts["reason"], "pinned");
  EXPECT_EQ(facts["transferred_tokens"], 99);
  EXPECT_EQ(facts["recomputed_tokens"], 0);
  EXPECT_EQ(facts["chunks"], 7);
  EXPECT_DOUBLE_EQ(facts["compression_ratio"].get<double>(),
                   facts["raw_bytes"].get<double>() / facts["wire_bytes"].get<double>());
  for (const char* stage : {"prefill", "encode", "wire", "decode", "first_token", "rest"}) {
    EXPECT_GE(facts["stages_ms"][stage].get<double>(), 0.0) << stage;
  }
  EXPECT_GE(facts["jct_ms"].get<double>(), facts["ttft_ms"].get<double>());
}

TEST(Http, AStreamIsTheSameTextInWholeCharacters) {
  HttpPair served;
  Json request = {{"prompt", "hello world"},
                  {"max_tokens", 60},
                  {"temperature", 0},
                  {"return_token_ids", true}};
  const auto [status, whole] = served.Post(request);
  ASSERT_EQ(status, 200);
  request["stream"] = true;
  const auto response = served.Client().Post("/v1/completions", request.dump(), "application/json");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->get_header_value("Content-Type"), "text/event-stream");
  const auto events = Events(response->body);
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  std::vector<Token> tokens;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);  // fails on half a character
    text += event["choices"][0]["text"];
    for (const Json& token : event["choices"][0].value("token_ids", Json::array())) {
      tokens.push_back(token);
    }
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(Json(tokens), whole["token_ids"]);
  EXPECT_NE(text.find("\xC3\xA9"), std::string::npos);  // a character of two tokens
  const Json last = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(last["kvserve"]["transferred_tokens"], 10);
  EXPECT_EQ(last["usage"]["completion_tokens"], 60);
}

TEST(Http, ChatStreamsDeltas) {
  HttpPair served;
  Json request = {
      {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 8}, {"temperature", 0}};
  const auto [status, whole] = served.Post(request, "/v1/chat/completions");
  ASSERT_EQ(status, 200) << whole;
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  request["stream"] = true;
  const auto response =
      served.Client().Post("/v1/chat/completions", request.dump(), "application/json");
  ASSERT_TRUE(response);
  std::string text;
  const auto events = Events(response->body);
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    text += Json::parse(events[i])["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(Json::parse(events.at(0))["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
}

TEST(Http, StopsAtAStopString) {
  HttpPair served;
  const Json request = {{"prompt", "hello"}, {"max_tokens", 40}, {"temperature", 0}};
  const auto [status, whole] = served.Post(request);
  ASSERT_EQ(status, 200);
  const std::string text = whole["choices"][0]["text"];
  Json stopped = request;
  stopped["stop"] = text.substr(10, 3);
  const auto [stopped_status, body] = served.Post(stopped);
  ASSERT_EQ(stopped_status, 200);
  EXPECT_EQ(body["choices"][0]["text"], text.substr(0, text.find(text.substr(10, 3))));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST(Http, ErrorsHaveTheirStatusAndShape) {
  HttpPair served;
  const auto expect = [&](int wanted, const Json& body, const char* path = "/v1/completions") {
    const auto [status, document] = served.Post(body, path);
    EXPECT_EQ(status, wanted) << body;
    EXPECT_TRUE(document["error"]["message"].is_string()) << document;
    EXPECT_EQ(document["error"]["code"], wanted);
  };
  expect(400, {{"prompt", ""}});
  expect(400, {{"prompt", "a"}, {"max_tokens", 100000}});
  expect(400, {{"prompt", "a"}, {"kvserve", {{"profile", "nonsense"}}}});
  expect(400, {{"prompt", "a"}, {"kvserve", {{"level", 3}}}});
  expect(400, {{"prompt", "a"}, {"stream", true}, {"max_tokens", 100000}});
  expect(404, {{"prompt", "a"}, {"model", "another"}});
  expect(404, Json::object(), "/v1/embeddings");
  expect(400, Json::array(), "/v1/chat/completions");
  const auto large =
      served.Client().Post("/v1/completions", std::string(5 << 20, 'x'), "text/plain");
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
}

// A body is bounded whether its length is stated, it comes in chunks, or it is compressed; and
// none is too large below that, whatever a client calls it.
TEST(Http, BodiesAreBoundedInEveryForm) {
  HttpPair served;
  const auto post = [&](std::size_t padding, const char* path, const char* type, bool chunks,
                        bool compressed) {
    const Json json = {
        {"prompt", "ab"}, {"max_tokens", 1}, {"metadata", std::string(padding, 'x')}};
    const std::string body = json.dump();
    auto client = served.Client();
    client.set_compress(compressed);
    const auto provide = [&](std::size_t offset, httplib::DataSink& sink) {
      const std::size_t part = std::min<std::size_t>(body.size() - offset, 1 << 16);
      sink.write(body.data() + offset, part);
      if (offset + part == body.size()) sink.done();
      return true;
    };
    const auto response = chunks ? client.Post(path, provide, type) : client.Post(path, body, type);
    return response ? response->status : 0;
  };
  for (const char* type : {"application/json", "application/x-www-form-urlencoded"}) {
    for (const bool chunks : {false, true}) {
      for (const bool compressed : {false, true}) {
        const auto label = ::testing::Message() << type << " " << chunks << compressed;
        EXPECT_EQ(post(20000, "/v1/completions", type, chunks, compressed), 200) << label;
        EXPECT_EQ(post(8 << 20, "/v1/completions", type, chunks, compressed), 413) << label;
        EXPECT_EQ(post(20000, "/v1/embeddings", type, chunks, compressed), 404) << label;
      }
    }
  }
}

TEST(Http, ModelsHealthAndMetrics) {
  HttpPair served;
  served.Post({{"prompt", Prompt(50)}, {"max_tokens", 2}});
  auto client = served.Client();
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(Json::parse(client.Get("/v1/models")->body)["data"][0]["id"], "fake-1");
  const std::string metrics = client.Get("/metrics")->body;
  for (const char* name :
       {"kvserve_requests_total{role=\"decode\",outcome=\"ok\"} 1", "kvserve_raw_bytes_total",
        "kvserve_wire_bytes_total", "kvserve_stage_seconds_bucket", "kvserve_ttft_seconds_count",
        "kvserve_jct_seconds_count", "kvserve_buffers_in_use", "kvserve_queue_depth",
        "kvserve_link_bytes_per_s", "# HELP kvserve_requests_total",
        "kvserve_transfers_total{role=\"decode\",quality_class=\"lossless\"} 1",
        "kvserve_profile_info{role=\"decode\",",
        "quality_class=\"lossless\",scale_sources=\"none:unit none:unit\""}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
}

// A client's socket, for what httplib would not send.
int Dial(const HttpListener& http) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(http.address().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

void Send(int socket, const std::string& bytes) {
  EXPECT_EQ(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

std::string RawPost(const Json& body) {
  const std::string text = body.dump();
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

TEST(Http, ADisconnectCancelsStreamedAndWholeAnswers) {
  for (const bool stream : {false, true}) {
    PairOptions options;
    std::atomic<int> decoded{0};
    options.decode_engine.on_decode = [&](std::uint32_t) -> Status {
      ++decoded;
      return {};
    };
    options.decode_engine.context_tokens = options.prefill_engine.context_tokens = 1 << 20;
    HttpPair served(options);
    const int socket = Dial(*served.http);
    Send(socket, RawPost({{"prompt", "abc"}, {"max_tokens", 1000000}, {"stream", stream}}));
    EXPECT_TRUE(Eventually([&] { return decoded > 3; }));
    Send(socket, "\r\n");  // nobody reads it before the answer is complete
    close(socket);
    EXPECT_TRUE(Eventually([&] { return served.pair.decode_worker.engine->open_sequences() == 0; }))
        << stream;
  }
}

// While the prompt is being computed, on the other node.
TEST(Http, ADisconnectStopsThePrefillNode) {
  PairOptions options;
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::atomic<int> chunks{0};
  options.prefill_engine.on_prefill = [&, released](std::span<const Token>,
                                                    std::uint32_t) -> Status {
    if (++chunks == 3) released.wait();
    return {};
  };
  HttpPair served(options);
  const int socket = Dial(*served.http);
  Send(socket, RawPost({{"prompt", Prompt(900)}, {"max_tokens", 1}}));
  EXPECT_TRUE(Eventually([&] { return chunks == 3; }));
  close(socket);
  EXPECT_TRUE(Eventually([&] { return served.pair.decode_worker.engine->open_sequences() == 0; }));
  // The decode node has given up and closed its connection; the prefill node has yet to see that.
  EXPECT_TRUE(Eventually([&] {
    return served.pair.decode->metrics().Expose().find("outcome=\"cancelled\"") !=
           std::string::npos;
  }));
  release.set_value();
  EXPECT_TRUE(Eventually([&] {
    return served.pair.prefill_worker.engine->open_sequences() == 0 &&
           served.pair.prefill->buffers_in_use() == 0;
  }));
  EXPECT_EQ(served.pair.decode->metrics().fallbacks(), 0);
  EXPECT_EQ(served.Post({{"prompt", Prompt(50)}, {"max_tokens", 1}}).first, 200);
}

TEST(Http, JunkIsClosedOrRefusedAndTheServerGoesOn) {
  HttpPair served;
  const std::string junk[] = {
      std::string("\x80\x04\x95", 3) + std::string(500, 'p'),
      std::string(20000, 'A'),
      "GET / HTTP/9.9\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      std::string(64, '\0') + "\r\n\r\n"};
  std::vector<int> sockets;
  for (int i = 0; i < 50; ++i) {
    sockets.push_back(Dial(*served.http));
    Send(sockets.back(), junk[static_cast<std::size_t>(i) % std::size(junk)]);
    if (i % 2 == 0) shutdown(sockets.back(), SHUT_WR);
  }
  for (const int socket : sockets) close(socket);
  EXPECT_TRUE(Eventually([&] {
    return served.Post({{"prompt", Prompt(50)}, {"max_tokens", 2}}).first == 200;
  }));
}

TEST(Http, BeyondLoopbackATokenIsAskedForEverywhereButHealth) {
  HttpOptions open;
  open.address = {"0.0.0.0", 0};
  const auto refused = HttpListener::Bind(open);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);

  const auto path =
      std::filesystem::temp_directory_path() / ("kvserve-http-token-" + std::to_string(getpid()));
  std::ofstream(path) << "s3cret\n";
  chmod(path.c_str(), 0600);
  const auto token = AuthToken::FromFile(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(token) << token.error().message;
  open.token = *token;
  HttpPair served({}, open);
  auto client = served.Client();
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/metrics")->status, 401);
  EXPECT_EQ(client.Post("/v1/completions", "{}", "application/json")->status, 401);
  for (const char* wrong :
       {"Bearer s3cre", "Bearer s3cret2", "s3cret", "Bearer ", "Basic s3cret"}) {
    EXPECT_EQ(client.Get("/metrics", {{"Authorization", wrong}})->status, 401) << wrong;
  }
  const auto allowed = client.Get("/metrics", {{"Authorization", "Bearer s3cret"}});
  EXPECT_EQ(allowed->status, 200);
  EXPECT_EQ(allowed->body.find("s3cret"), std::string::npos);
}

TEST(Http, APortInUseIsNamedWithTheReason) {
  const HttpPair served;
  HttpOptions options;
  options.address = served.http->address();
  const auto second = HttpListener::Bind(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find(options.address.text()), std::string::npos);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos) << second.error().message;
}

TEST(Http, RequestsBeyondTheLineGet503WithRetryAfter) {
  PairOptions options;
  options.decode_engine.sequences = options.decode.sequences = 1;
  options.decode.max_waiting = 0;
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  options.decode_engine.on_decode = [released](std::uint32_t) -> Status {
    released.wait();
    return {};
  };
  HttpPair served(options);
  auto running = std::async(std::launch::async, [&] {
    return served.Post({{"prompt", "ab"}, {"max_tokens", 1}});
  });
  EXPECT_TRUE(Eventually([&] { return served.pair.decode_worker.engine->open_sequences() == 1; }));
  for (const bool stream : {false, true}) {
    const Json body = {{"prompt", "ab"}, {"stream", stream}};
    const auto response = served.Client().Post("/v1/completions", body.dump(), "application/json");
    EXPECT_TRUE(response && response->status == 503);
    EXPECT_TRUE(response && response->has_header("Retry-After"));
  }
  release.set_value();
  EXPECT_EQ(running.get().first, 200);
}

TEST(Http, ConnectionsBeyondThreadsAndQueueGet503) {
  PairOptions options;
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  options.decode_engine.on_decode = [released](std::uint32_t) -> Status {
    released.wait();
    return {};
  };
  HttpOptions http;
  http.threads = http.queue = 1;
  HttpPair served(options, http);
  const auto post = [&] { return served.Post({{"prompt", "ab"}, {"max_tokens", 1}}).first; };
  auto running = std::async(std::launch::async, post);
  EXPECT_TRUE(Eventually([&] { return served.pair.decode_worker.engine->open_sequences() == 1; }));
  // The thread is taken; one of these two gets the queue's place, the other is refused.
  auto first = std::async(std::launch::async, post);
  auto second = std::async(std::launch::async, post);
  const auto ready = [](auto& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  EXPECT_TRUE(Eventually([&] { return ready(first) || ready(second); }));
  release.set_value();
  const int statuses[] = {running.get(), first.get(), second.get()};
  EXPECT_EQ(statuses[0], 200);
  EXPECT_EQ(statuses[1] + statuses[2], 200 + 503);
}

TEST(Http, AStoppingNodeEndsRequestsWithAnError) {
  PairOptions options;
  options.decode_engine.context_tokens = options.prefill_engine.context_tokens = 1 << 20;
  HttpPair served(options);
  auto running = std::async(std::launch::async, [&] {
    return served.Post({{"prompt", "ab"}, {"max_tokens", 1000000}});
  });
  EXPECT_TRUE(Eventually([&] { return served.pair.decode_worker.engine->decoded_tokens() > 3; }));
  served.pair.decode->Stop();
  const auto [status, body] = running.get();
  EXPECT_EQ(status, 503);
  EXPECT_EQ(body["error"]["message"], "the node is stopping");  // to a client that has not gone
}

}  // namespace
}  // namespace kvserve::testing
