#include "net/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvserve {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;

tl::unexpected<Error> BadFile(const std::string& path, const std::string& why) {
  return MakeError(ErrorCode::kInvalidArgument, "token file '" + path + "' " + why);
}

class File {
 public:
  // Non-blocking, so that a named pipe without a writer does not hold us up.
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

Result<Mac> Hmac(const void* key, std::size_t key_bytes, std::span<const std::byte> message) {
  Mac mac;
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  const auto* done = ::HMAC(::EVP_sha256(), key, static_cast<int>(key_bytes), bytes, message.size(),
                            reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (done == nullptr || size != mac.size()) {
    return MakeError(ErrorCode::kInternal, "HMAC-SHA256 failed");
  }
  return mac;
}

}  // namespace

class AuthToken::Secret {
 public:
  Secret() = default;
  ~Secret() { OPENSSL_cleanse(bytes, sizeof(bytes)); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  unsigned char bytes[kMaxTokenBytes + 1] = {};
  std::size_t size = 0;
};

Result<AuthToken> AuthToken::FromFile(const std::string& path) {
  const File file(path);
  struct stat info {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &info) != 0) {
    return BadFile(path, std::string("cannot be opened: ") + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return BadFile(path, "is not a regular file");
  if ((info.st_mode & 077) != 0) {
    return BadFile(path, "is open to group or others; right would be chmod 600");
  }
  auto secret = std::make_shared<Secret>();
  while (secret->size < sizeof(secret->bytes)) {
    const ssize_t count = ::read(file.descriptor(), secret->bytes + secret->size,
                                 sizeof(secret->bytes) - secret->size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return BadFile(path, std::string("cannot be read: ") + std::strerror(errno));
    if (count == 0) break;
    secret->size += static_cast<std::size_t>(count);
  }
  if (secret->size > kMaxTokenBytes) {
    return BadFile(path, "is longer than " + std::to_string(kMaxTokenBytes) + " bytes");
  }
  while (secret->size > 0 &&
         (secret->bytes[secret->size - 1] == '\n' || secret->bytes[secret->size - 1] == '\r')) {
    --secret->size;
  }
  if (secret->size == 0) return BadFile(path, "holds no token");
  AuthToken token;
  token.secret_ = std::move(secret);
  return token;
}

Result<Mac> AuthToken::Sign(std::span<const std::byte> message) const {
  if (secret_ == nullptr) return MakeError(ErrorCode::kInternal, "no token to sign with");
  return Hmac(secret_->bytes, secret_->size, message);
}

bool AuthToken::Is(std::string_view text) const {
  Mac nonce;  // a fresh message, so that the digests of two texts cannot be compared
  if (!FillRandom(nonce)) return false;
  const auto expected = Sign(nonce);
  const auto actual = Hmac(text.data(), text.size(), nonce);
  return expected && actual && EqualMacs(*expected, *actual);
}

bool EqualMacs(const Mac& a, const Mac& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status FillRandom(std::span<std::byte> out) {
  auto* bytes = reinterpret_cast<unsigned char*>(out.data());
  if (::RAND_bytes(bytes, static_cast<int>(out.size())) != 1) {
    return MakeError(ErrorCode::kInternal, "the system's random generator failed");
  }
  return {};
}

}  // namespace kvserve
