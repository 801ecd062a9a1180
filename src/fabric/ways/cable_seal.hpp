// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "fabric/ways/cable_frame.hpp"

struct evp_cipher_ctx_st;

namespace tendon::v0::detail {

/// The key of a cable: each end has contributed one half.
using CableKey = std::array<std::byte, 32>;

/// The two ends, and so the two directions, of a cable.
enum class CableEnd : std::uint8_t { asker = 0, answerer = 1 };
[[nodiscard]] constexpr CableEnd other_end(CableEnd end) {
  return end == CableEnd::asker ? CableEnd::answerer : CableEnd::asker;
}

/// Tells the frames of one cable from those of strangers with AES-256-GCM over no plaintext (GMAC,
/// NIST SP 800-38D). Its nonce is the direction and the sequence, which no two frames share.
///
/// Owns:    the key, inside a context of libcrypto.
/// Threads: one at a time.
/// Errors:  internal, if libcrypto has no AES-256-GCM.
/// Blocks:  never.
/// Cost:    one pass over the frame.
class CableSeal {
 public:
  [[nodiscard]] static Result<CableSeal> make(const CableKey& key);

  [[nodiscard]] Result<CableTag> tag_of(CableEnd sender, std::uint64_t sequence, Bytes sealed);
  [[nodiscard]] bool is_right(CableEnd sender, const CableFrame& frame);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  explicit CableSeal(std::unique_ptr<evp_cipher_ctx_st, Free> context)
      : context_(std::move(context)) {}

  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace tendon::v0::detail
