// SPDX-License-Identifier: Apache-2.0
// What the code that calls libcrypto has in common: a library context of our own, owners of its
// objects, and its errors in our words.
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

/// The library context of this process. It has the default provider, whatever the program, or a
/// configuration file of the machine, has done to that of libcrypto.
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
  /// The certificates in it are of others.
  void operator()(stack_st_X509* object) const noexcept;
};
/// An object of libcrypto with one owner.
template <class T>
using CryptoOwned = std::unique_ptr<T, FreeCrypto>;

/// libcrypto has a queue of errors for each thread, which belongs to the program: what is added to
/// it within this scope leaves with it.
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

  /// libcrypto failed at `what`: internal, with the reason that it gives.
  [[nodiscard]] Error failed(std::string_view where, std::string_view what) const;
  /// The reason of the last error, for a human.
  [[nodiscard]] std::string reason() const;
};

}  // namespace tendon::v0::detail
