// SPDX-License-Identifier: Apache-2.0
#include "secure/crypto_library.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <new>
#include <string>

#include "core/process_wide.hpp"

namespace tendon::v0::detail {
namespace {

struct LibraryOfProcess {
  LibraryOfProcess() {
    if (context == nullptr) throw std::bad_alloc();
  }
  OSSL_LIB_CTX* context = OSSL_LIB_CTX_new();
};

// Per process, because it has locks, which a thread of the parent may hold at a fork.
constinit PerProcess<LibraryOfProcess> library_of_process;

}  // namespace

OSSL_LIB_CTX* crypto_library() { return library_of_process.get().context; }

void FreeCrypto::operator()(BIO* object) const noexcept { BIO_free(object); }
void FreeCrypto::operator()(EVP_CIPHER* object) const noexcept { EVP_CIPHER_free(object); }
void FreeCrypto::operator()(EVP_KDF* object) const noexcept { EVP_KDF_free(object); }
void FreeCrypto::operator()(EVP_KDF_CTX* object) const noexcept { EVP_KDF_CTX_free(object); }
void FreeCrypto::operator()(EVP_PKEY* object) const noexcept { EVP_PKEY_free(object); }
void FreeCrypto::operator()(SSL* object) const noexcept { SSL_free(object); }
void FreeCrypto::operator()(SSL_CTX* object) const noexcept { SSL_CTX_free(object); }
void FreeCrypto::operator()(ssl_session_st* object) const noexcept { SSL_SESSION_free(object); }
void FreeCrypto::operator()(X509* object) const noexcept { X509_free(object); }
void FreeCrypto::operator()(X509_EXTENSION* object) const noexcept { X509_EXTENSION_free(object); }
void FreeCrypto::operator()(X509_STORE* object) const noexcept { X509_STORE_free(object); }
void FreeCrypto::operator()(X509_STORE_CTX* object) const noexcept { X509_STORE_CTX_free(object); }
void FreeCrypto::operator()(stack_st_X509* object) const noexcept { sk_X509_free(object); }

CryptoErrors::CryptoErrors() { ERR_set_mark(); }
CryptoErrors::~CryptoErrors() { ERR_pop_to_mark(); }

std::string CryptoErrors::reason() const {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason != nullptr ? reason : "it gives no reason";
}

Error CryptoErrors::failed(std::string_view where, std::string_view what) const {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return Error{ErrorCode::internal, where,
               "libcrypto failed to " + std::string(what) + ": " +
                   (reason != nullptr ? reason : "it gives no reason")};
}

}  // namespace tendon::v0::detail
