#include "runtime/http_listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

namespace kvserve {
namespace {

// A server with one route, "/ten", and a client that says what httplib's would not.
class HttpListenerTest : public ::testing::Test {
 protected:
  void Serve(HttpOptions options = {}) {
    options.address = {"127.0.0.1", 0};
    auto http = HttpListener::Bind(options);
    ASSERT_TRUE(http) << http.error().message;
    http_ = std::move(*http);
    http_->routes().Get("/ten", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("0123456789", "text/plain");
    });
    http_->Start();
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(http_->address().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~HttpListenerTest() override {
    if (socket_ >= 0) close(socket_);
  }

  bool Send(std::string_view bytes) const {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // What comes until the server closes.
  [[nodiscard]] std::string Rest() const {
    std::string text;
    char part[4096];
    for (ssize_t got = 0; (got = recv(socket_, part, sizeof(part), 0)) > 0;) {
      text.append(part, static_cast<std::size_t>(got));
    }
    return text;
  }

  std::unique_ptr<HttpListener> http_;
  int socket_ = -1;
};

TEST_F(HttpListenerTest, HeadersWithoutEndAreRefused) {
  Serve();
  ASSERT_TRUE(Send("GET /ten HTTP/1.1\r\nHost: a\r\n"));
  const std::string line = "X-Filler: " + std::string(4000, 'x') + "\r\n";
  int lines = 0;
  while (lines < 100'000 && Send(line)) ++lines;  // 400 MB
  EXPECT_LT(lines, 100'000);
}

TEST_F(HttpListenerTest, HeadersThatDripAreCutOff) {
  HttpOptions options;
  options.head_s = 0.1;
  Serve(options);
  // Each line comes well within the time for one read.
  ASSERT_TRUE(Send("GET /ten HTTP/1.1\r\n"));
  char byte = 0;
  while (recv(socket_, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    if (!Send("X-Filler: x\r\n")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  SUCCEED();  // a server that waits on would have kept us in the loop
}

TEST_F(HttpListenerTest, RangesAreNotServed) {
  Serve();
  ASSERT_TRUE(Send("GET /ten HTTP/1.1\r\nRange: bytes=0-,0-,0-,0-\r\nConnection: close\r\n\r\n"));
  const std::string answer = Rest();
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 200") << answer;
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), "0123456789");
}

TEST_F(HttpListenerTest, RequestsSentTogetherAreAllAnswered) {
  Serve();
  ASSERT_TRUE(
      Send("GET /ten HTTP/1.1\r\n\r\nGET /ten HTTP/1.1\r\n\r\n"
           "GET /ten HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string answers = Rest();
  int count = 0;
  for (std::size_t at = 0; (at = answers.find("0123456789", at)) != std::string::npos; ++at)
    ++count;
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace kvserve
