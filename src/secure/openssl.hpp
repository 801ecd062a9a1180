// SPDX-License-Identifier: Apache-2.0
// Objects of OpenSSL with owners, and the library context that is ours alone.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace tendon::v0::detail::secure {

template <auto kFree>
struct FreedBy {
  template <class T>
  void operator()(T* object) const noexcept {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free>>;
using EvpKeyPtr = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using SslContextPtr = std::unique_ptr<SSL_CTX, FreedBy<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, FreedBy<SSL_free>>;
using SslSessionPtr = std::unique_ptr<SSL_SESSION, FreedBy<SSL_SESSION_free>>;
using X509Ptr = std::unique_ptr<X509, FreedBy<X509_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>>;

/// OpenSSL's state for Tendon: what the program's configuration of OpenSSL says does not reach it.
/// Lives as long as the process; null without memory.
[[nodiscard]] OSSL_LIB_CTX* library_context();

/// The errors of this thread's last calls, for a human; they are taken off its queue.
[[nodiscard]] std::string take_openssl_errors();

}  // namespace tendon::v0::detail::secure
