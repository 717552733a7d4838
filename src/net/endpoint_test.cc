#include "net/endpoint.h"

#include <gtest/gtest.h>

namespace kvserve {
namespace {

TEST(Endpoint, ParsesTheThreeForms) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:7000").value(), (HostPort{"127.0.0.1", 7000}));
  EXPECT_EQ(ParseHostPort("[::1]:7000").value(), (HostPort{"::1", 7000}));
  EXPECT_EQ(ParseHostPort("node-3.example:0").value(), (HostPort{"node-3.example", 0}));
  EXPECT_EQ(ParseHostPort("127.0.0.1:65535").value().port, 65535);
}

TEST(Endpoint, TextParsesBack) {
  for (const HostPort& address :
       {HostPort{"127.0.0.1", 7}, HostPort{"::1", 65535}, HostPort{"a", 0}}) {
    EXPECT_EQ(ParseHostPort(address.text()).value(), address);
  }
}

TEST(Endpoint, RefusesEverythingElse) {
  for (const char* text : {"",           ":",          "7000",
                           "127.0.0.1",  ":7000",      "host:",
                           "host:x",     "host:-1",    "host:+1",
                           "host:65536", "host:7000 ", "host:99999999999999999999",
                           "::1:7000",   "[::1]",      "[::1]7000",
                           "[::1:7000",  "[]:1",       "[127.0.0.1]:1",
                           "ho st:1",    "host\n:1",   "http://host:1"}) {
    const auto parsed = ParseHostPort(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_NE(ParseHostPort("host:x").error().message.find("host:x"), std::string::npos);
}

TEST(Endpoint, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "localhost"}) {
    EXPECT_TRUE(IsLoopback({host, 1})) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "128.0.0.1",
                           "example.org", "127.0.0.1.example.org", "localhost.example.org", ""}) {
    EXPECT_FALSE(IsLoopback({host, 1})) << host;
  }
}

}  // namespace
}  // namespace kvserve
