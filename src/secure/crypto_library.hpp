// SPDX-License-Identifier: Apache-2.0
// Shared parts of the code that calls libcrypto: a separate library context, owners of its objects,
// and its errors as our errors.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>

struct X509_extension_st;
struct stack_st_X509;
struct ssl_session_st;  // SSL_SESSION

namespace tendon::v0::detail {

/// The library context of this process. It has the default provider, whatever the program or a
/// configuration file of the machine has changed in libcrypto's own context.
[[nodiscard]] OSSL_LIB_CTX* crypto_library();

struct FreeCrypto {
  void operator()(BIO* object) const noexcept;
  void operator()(EVP_CIPHER* object) const noexcept;
  void operator()(EVP_KDF* object) const noexcept;
  void operator()(EVP_KDF_CTX* object) const noexcept;
  void operator()(EVP_PKEY* object) const noexcept;
  void operator()(SSL* object) const noexcept;
  void operator()(SSL_CTX* object) const noexcept;
  void operator()(ssl_session_st* object) const noexcept;
  void operator()(X509* object) const noexcept;
  void operator()(X509_extension_st* object) const noexcept;
  void operator()(X509_STORE* object) const noexcept;
  void operator()(X509_STORE_CTX* object) const noexcept;
  /// The stack does not own its certificates.
  void operator()(stack_st_X509* object) const noexcept;
};
/// An object of libcrypto with one owner.
template <class T>
using CryptoOwned = std::unique_ptr<T, FreeCrypto>;

/// libcrypto has one error queue per thread, which belongs to the program. Errors added within this
/// scope are removed at its end.
/// Only a handshake of TLS takes more: SSL_do_handshake() empties the queue before it begins.
///
/// Owns:    a mark in the queue of its thread.
/// Threads: that of its scope.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few loads.
class CryptoErrors {
 public:
  CryptoErrors();
  CryptoErrors(const CryptoErrors&) = delete;
  CryptoErrors& operator=(const CryptoErrors&) = delete;
  ~CryptoErrors();

  /// Returns `internal` for a failure of libcrypto at `what`, with libcrypto's reason.
  [[nodiscard]] Error failed(std::string_view where, std::string_view what) const;
  /// The reason of the last error, for people.
  [[nodiscard]] std::string reason() const;
};

}  // namespace tendon::v0::detail
