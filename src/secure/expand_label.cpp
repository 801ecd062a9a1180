// SPDX-License-Identifier: Apache-2.0
#include "secure/expand_label.hpp"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <array>
#include <memory>

#include "secure/crypto_library.hpp"
#include "secure/octets.hpp"

namespace tendon::v0::detail::secure {
namespace {

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const noexcept { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const noexcept { EVP_KDF_CTX_free(context); }
};

// OpenSSL only reads from input parameters, but their type has no const.
OSSL_PARAM input(const char* name, Bytes value) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(value.data()),
                                           value.size());
}

}  // namespace

Result<void> expand_label(std::string_view digest, Bytes secret, std::string_view label,
                          MutableBytes derived) {
  const CryptoErrors errors;
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(
      EVP_KDF_fetch(crypto_library(), "TLS13-KDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf == nullptr ? nullptr
                                                                     : EVP_KDF_CTX_new(kdf.get()));
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  const std::array parameters{
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>(digest.data()),
                                       digest.size()),
      input(OSSL_KDF_PARAM_KEY, secret),
      input(OSSL_KDF_PARAM_PREFIX, as_bytes("tls13 ")),
      input(OSSL_KDF_PARAM_LABEL, as_bytes(label)),
      OSSL_PARAM_construct_end(),
  };
  if (context != nullptr && EVP_KDF_derive(context.get(), as_octets(derived.data()), derived.size(),
                                           parameters.data()) == 1) {
    return {};
  }
  return Error{ErrorCode::internal, "secure.keys", "libcrypto derives no keys of TLS 1.3"};
}

}  // namespace tendon::v0::detail::secure
