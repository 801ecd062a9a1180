// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>

#include "core/thread.hpp"

namespace tendon::cli {

/// Computes the SHA-256 of a run of pieces on a thread of its own: hashing is slower than the
/// transfer, and must not delay it.
///
/// Owns:    shares of the pieces until they are hashed.
/// Threads: one thread pushes.
/// Errors:  its constructor throws resource_exhausted without a thread.
/// Blocks:  push() while kMaxWaiting pieces wait (they hold the peer's memory); finish().
/// Cost:    one thread; 1 to 2 GB/s.
class Hasher {
 public:
  Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  ~Hasher();

  /// `owner` keeps `bytes` alive.
  void push(std::shared_ptr<const void> owner, Bytes bytes);
  /// Returns the 64 hexadecimal digits after everything is hashed. To be called once.
  [[nodiscard]] std::string finish();

 private:
  static constexpr std::size_t kMaxWaiting = 4;
  struct Piece {
    std::shared_ptr<const void> owner;
    Bytes bytes;
  };
  void run();

  detail::Mutex mutex_;
  detail::CondVar changed_;
  std::deque<Piece> waiting_ TENDON_GUARDED_BY(mutex_);
  bool finished_ TENDON_GUARDED_BY(mutex_) = false;
  bool abandoned_ TENDON_GUARDED_BY(mutex_) = false;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest_;
  detail::Thread thread_;
};

}  // namespace tendon::cli
