#include "net/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace kvserve {
namespace {

class TokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "kvserve-token-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(std::string_view content, mode_t mode = 0600) {
    std::string path = folder_ + "/token";
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string folder_;
};

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Hex(const Mac& mac) {
  std::string text;
  for (const std::byte byte : mac) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", std::to_integer<unsigned>(byte));
    text += two;
  }
  return text;
}

// RFC 4231, test case 2.
TEST_F(TokenFile, SignsWithHmacSha256) {
  const auto token = AuthToken::FromFile(Write("Jefe\n")).value();
  EXPECT_EQ(Hex(token.Sign(AsBytes("what do ya want for nothing?")).value()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_F(TokenFile, LineEndsAtTheEndDoNotCount) {
  const auto sign = [&](std::string_view content) {
    return Hex(AuthToken::FromFile(Write(content)).value().Sign(AsBytes("x")).value());
  };
  EXPECT_EQ(sign("secret"), sign("secret\n"));
  EXPECT_EQ(sign("secret"), sign("secret\r\n"));
  EXPECT_NE(sign("secret"), sign("secret "));
  EXPECT_NE(sign("secret"), sign("\nsecret"));
}

TEST_F(TokenFile, EmptyFilesAreRefused) {
  for (const char* content : {"", "\n", "\r\n\n"}) {
    const auto token = AuthToken::FromFile(Write(content));
    ASSERT_FALSE(token.has_value());
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(TokenFile, FilesOpenToOthersAreRefusedWithoutShowingTheToken) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0666}) {
    const auto token = AuthToken::FromFile(Write("s3cr3t-value", mode));
    ASSERT_FALSE(token.has_value()) << mode;
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(token.error().message.find("chmod 600"), std::string::npos);
    EXPECT_EQ(token.error().message.find("s3cr3t"), std::string::npos);
  }
  EXPECT_TRUE(AuthToken::FromFile(Write("s3cr3t-value", 0400)).has_value());
}

TEST_F(TokenFile, OddFilesAreRefused) {
  EXPECT_FALSE(AuthToken::FromFile(folder_ + "/missing").has_value());
  EXPECT_FALSE(AuthToken::FromFile(folder_).has_value());
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(AuthToken::FromFile(pipe).has_value());  // and does not wait for a writer
  EXPECT_TRUE(AuthToken::FromFile(Write(std::string(4096, 'x'))).has_value());
  const auto longer = AuthToken::FromFile(Write(std::string(4097, 'x')));
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().message.find("xxx"), std::string::npos);
}

TEST_F(TokenFile, NoTokenCannotSign) {
  EXPECT_TRUE(AuthToken().empty());
  EXPECT_FALSE(AuthToken().Sign(AsBytes("x")).has_value());
  const auto token = AuthToken::FromFile(Write("x")).value();
  EXPECT_FALSE(token.empty());
  const AuthToken copy = token;  // NOLINT(performance-*): copying is what is tested
  EXPECT_TRUE(EqualMacs(copy.Sign(AsBytes("m")).value(), token.Sign(AsBytes("m")).value()));
  EXPECT_FALSE(EqualMacs(copy.Sign(AsBytes("m")).value(), token.Sign(AsBytes("n")).value()));
}

TEST_F(TokenFile, IsEqualToItsOwnTextOnly) {
  const auto token = AuthToken::FromFile(Write("s3cr3t\n")).value();
  EXPECT_TRUE(token.Is("s3cr3t"));
  for (const char* other : {"", "s3cr3", "s3cr3t\n", "s3cr3t2", "S3cr3t"}) {
    EXPECT_FALSE(token.Is(other)) << other;
  }
  EXPECT_FALSE(AuthToken().Is(""));
}

TEST(Random, DiffersEachTime) {
  std::array<std::byte, 16> a{};
  std::array<std::byte, 16> b{};
  ASSERT_TRUE(FillRandom(a).has_value());
  ASSERT_TRUE(FillRandom(b).has_value());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace kvserve
