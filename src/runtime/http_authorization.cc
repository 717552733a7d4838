#include "runtime/http_authorization.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

namespace kvserve {

bool IsAuthorized(const AuthToken& token, std::string_view header) {
  constexpr std::string_view kScheme = "Bearer ";
  if (header.size() <= kScheme.size() || header.substr(0, kScheme.size()) != kScheme) return false;
  const std::string_view presented = header.substr(kScheme.size());
  // Anything both sides can sign; fresh, so that digests of two requests cannot be compared.
  Mac nonce;
  if (!FillRandom(nonce)) return false;
  const auto expected = token.Sign(nonce);
  if (!expected) return false;
  Mac actual{};
  unsigned int length = 0;
  const auto* signed_bytes =
      HMAC(EVP_sha256(), presented.data(), static_cast<int>(presented.size()),
           reinterpret_cast<const unsigned char*>(nonce.data()), nonce.size(),
           reinterpret_cast<unsigned char*>(actual.data()), &length);
  return signed_bytes != nullptr && length == actual.size() && EqualMacs(*expected, actual);
}

}  // namespace kvserve
