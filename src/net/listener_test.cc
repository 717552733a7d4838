#include "net/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "net/testing/loopback.h"

namespace kvserve {
namespace {

using testing::Background;
using testing::MakeListener;
using testing::Patience;
using testing::RawPeer;

AuthToken SomeToken() {
  const auto path = std::filesystem::temp_directory_path() /
                    ("kvserve-listener-token-" + std::to_string(::getpid()));
  std::ofstream(path) << "a token";
  ::chmod(path.c_str(), 0600);
  auto token = AuthToken::FromFile(path.string()).value();
  std::filesystem::remove(path);
  return token;
}

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A port that was free a moment ago.
HostPort ClosedPort() {
  return MakeListener()->address();
}

TEST(Listener, DefaultAddressIsLoopback) {
  const auto listener = Listener::Bind(HostPort{}, AuthToken()).value();
  EXPECT_TRUE(IsLoopback(listener->address()));
  EXPECT_NE(listener->port(), 0);
  const auto client = Connect(listener->address(), Patience()).value();
  const auto server = listener->Accept(Patience()).value();
  EXPECT_EQ(server->peer_address().rfind("127.0.0.1:", 0), 0U);
  EXPECT_EQ(client->peer_address(), listener->address().text());
}

TEST(Listener, BeyondLoopbackNeedsAToken) {
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1", "some-name.invalid"}) {
    const auto refused = Listener::Bind({host, 0}, AuthToken());
    ASSERT_FALSE(refused.has_value()) << host;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << host;
    EXPECT_NE(refused.error().message.find(host), std::string::npos);
    EXPECT_NE(refused.error().message.find("token"), std::string::npos);
  }
  EXPECT_TRUE(Listener::Bind({"0.0.0.0", 0}, SomeToken()).has_value());
}

TEST(Listener, Ipv6LoopbackWorksWhereTheSystemHasIt) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int plain = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool has_ipv6 =
      ::bind(plain, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(plain);
  if (!has_ipv6) GTEST_SKIP() << "this system has no IPv6 loopback";
  const auto listener = Listener::Bind({"::1", 0}, AuthToken());
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  const auto client = Connect((*listener)->address(), Patience());
  ASSERT_TRUE(client.has_value()) << client.error().message;
  EXPECT_EQ((*listener)->Accept(Patience()).value()->peer_address().rfind("[::1]:", 0), 0U);
}

TEST(Listener, NamesAreResolved) {
  const auto listener = Listener::Bind({"localhost", 0}, AuthToken());
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  EXPECT_TRUE(Connect({"localhost", (*listener)->port()}, Patience()).has_value());
}

TEST(Listener, PortInUseIsUnavailableAndNamed) {
  const auto first = MakeListener();
  const auto second = Listener::Bind(first->address(), AuthToken());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find(first->address().text()), std::string::npos);
}

TEST(Listener, AcceptEndsAtItsDeadlineWithoutSpinning) {
  const auto listener = MakeListener();
  const double before = ThreadCpuSeconds();
  EXPECT_EQ(listener->Accept(After(0.3)).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(ThreadCpuSeconds() - before, 0.15);
}

TEST(Listener, CloseWakesAccept) {
  const auto listener = MakeListener();
  const Background closer([&] { listener->Close(); });
  EXPECT_EQ(listener->Accept(Patience()).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(listener->Accept(Patience()).error().code, ErrorCode::kCancelled);
}

TEST(Listener, ConnectionsOutliveTheListener) {
  auto listener = MakeListener();
  const auto client = Connect(listener->address(), Patience()).value();
  const auto server = listener->Accept(Patience()).value();
  listener.reset();
  ASSERT_TRUE(client->Send(MessageType::kPing, 1, 0, {}, Patience()).has_value());
  EXPECT_TRUE(server->Receive(Patience(), 0).has_value());
}

TEST(Listener, ResetsInTheQueueAreSkipped) {
  const auto listener = MakeListener();
  for (int i = 0; i < 8; ++i) RawPeer(listener->port()).Reset();
  const auto client = Connect(listener->address(), Patience()).value();
  ASSERT_TRUE(client->Send(MessageType::kPing, 9, 0, {}, Patience()).has_value());
  for (;;) {
    const auto server = listener->Accept(Patience());
    ASSERT_TRUE(server.has_value()) << server.error().message;
    const auto message = (*server)->Receive(Patience(), 0);
    if (!message) continue;
    EXPECT_EQ(message->transfer_id, 9U);
    break;
  }
}

TEST(Listener, RunsOutOfDescriptorsAndRecovers) {
  const auto listener = MakeListener();
  const RawPeer waiting(listener->port());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<int> hoard;
  for (int copy = ::dup(0); copy >= 0; copy = ::dup(0)) hoard.push_back(copy);
  EXPECT_EQ(listener->Accept(Patience()).error().code, ErrorCode::kResourceExhausted);
  for (const int copy : hoard) ::close(copy);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(listener->Accept(Patience()).has_value());
}

TEST(Connect, RefusedIsUnavailableAndNamed) {
  const HostPort address = ClosedPort();
  const auto connection = Connect(address, Patience());
  ASSERT_FALSE(connection.has_value());
  EXPECT_EQ(connection.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(connection.error().message.find(address.text()), std::string::npos);
}

TEST(Connect, FullQueueEndsAtTheDeadline) {
  // A listener that never accepts, with a queue of one: later SYNs are dropped, as by a firewall.
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(descriptor, 0), 0);
  ASSERT_EQ(::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const HostPort target{"127.0.0.1", ntohs(address.sin_port)};
  std::vector<std::unique_ptr<Connection>> queued;
  Result<std::unique_ptr<Connection>> last = Connect(target, After(0.2));
  for (int i = 0; i < 8 && last; ++i) {
    queued.push_back(std::move(*last));
    last = Connect(target, After(0.2));
  }
  ASSERT_FALSE(last.has_value());
  EXPECT_EQ(last.error().code, ErrorCode::kDeadlineExceeded);

  CancelSignal cancel;
  const Background canceller([&] { cancel.Cancel(); });
  EXPECT_EQ(Connect(target, Patience(), &cancel).error().code, ErrorCode::kCancelled);
  ::close(descriptor);
}

}  // namespace
}  // namespace kvserve
