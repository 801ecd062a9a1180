// SPDX-License-Identifier: Apache-2.0
#include "cli/hasher.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <tendon/core/result.hpp>
#include <utility>

#include "session/nonce128.hpp"

namespace tendon::cli {
namespace {

/// The interval at which a hash checks whether it is still wanted.
constexpr std::size_t kStepBytes = std::size_t{1} << 20;

void require(bool succeeded) {
  if (!succeeded)
    throw Exception(Error{ErrorCode::internal, "cli.hasher", "OpenSSL has no SHA-256 to give"});
}

}  // namespace

Hasher::Hasher() : digest_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  require(digest_ && EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr) == 1);
  thread_ =
      detail::Thread::start({.name = "tendon-hash", .where = "cli.hasher", .task = "that hashes"},
                            [this] { run(); })
          .value();
}

Hasher::~Hasher() {
  if (!thread_.joinable()) return;
  {
    const detail::Lock lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Hasher::push(std::shared_ptr<const void> owner, Bytes bytes) {
  if (bytes.empty()) return;
  const detail::Lock lock(mutex_);
  while (waiting_.size() >= kMaxWaiting) changed_.wait(mutex_);
  waiting_.push_back({std::move(owner), bytes});
  changed_.notify_all();
}

std::string Hasher::finish() {
  {
    const detail::Lock lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  thread_.join();
  std::array<std::byte, 32> hash{};
  unsigned length = 0;
  require(EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(hash.data()),
                             &length) == 1);
  return detail::to_hex(hash);
}

void Hasher::run() {
  while (true) {
    Piece piece;
    {
      const detail::Lock lock(mutex_);
      while (waiting_.empty() && !finished_ && !abandoned_) changed_.wait(mutex_);
      if (abandoned_ || waiting_.empty()) return;
      piece = std::move(waiting_.front());
    }
    for (Bytes rest = piece.bytes; !rest.empty();) {
      const Bytes step = rest.first(std::min(rest.size(), kStepBytes));
      rest = rest.subspan(step.size());
      EVP_DigestUpdate(digest_.get(), step.data(), step.size());
      const detail::Lock lock(mutex_);
      if (abandoned_) return;
    }
    piece = {};
    // A piece counts as waiting until it is hashed, because it holds memory while it is hashed.
    const detail::Lock lock(mutex_);
    waiting_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace tendon::cli
