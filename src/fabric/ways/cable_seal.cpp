// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/cable_seal.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstring>

#include "secure/octets.hpp"

namespace tendon::v0::detail {
namespace {

// Holds 4 bytes of the direction, then the sequence.
using Nonce96 = std::array<std::byte, 12>;
Nonce96 nonce_of(CableEnd sender, std::uint64_t sequence) {
  Nonce96 nonce{static_cast<std::byte>(sender)};
  std::memcpy(nonce.data() + 4, &sequence, sizeof sequence);
  return nonce;
}

}  // namespace

void CableSeal::Free::operator()(evp_cipher_ctx_st* context) const noexcept {
  EVP_CIPHER_CTX_free(context);
}

Result<CableSeal> CableSeal::make(const CableKey& key) {
  std::unique_ptr<evp_cipher_ctx_st, Free> context(EVP_CIPHER_CTX_new());
  if (context == nullptr || EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr,
                                               as_octets(key.data()), nullptr) != 1) {
    return Error{ErrorCode::internal, "fabric.cable", "libcrypto has no AES-256-GCM"};
  }
  return CableSeal(std::move(context));
}

Result<CableTag> CableSeal::tag_of(CableEnd sender, std::uint64_t sequence, Bytes sealed) {
  const Nonce96 nonce = nonce_of(sender, sequence);
  CableTag tag{};
  int size = 0;
  const bool done =
      EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, as_octets(nonce.data())) == 1 &&
      EVP_EncryptUpdate(context_.get(), nullptr, &size, as_octets(sealed.data()),
                        static_cast<int>(sealed.size())) == 1 &&
      EVP_EncryptFinal_ex(context_.get(), nullptr, &size) == 1 &&
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()),
                          tag.data()) == 1;
  if (done) return tag;
  return Error{ErrorCode::internal, "fabric.cable", "libcrypto failed to seal a frame"};
}

bool CableSeal::is_right(CableEnd sender, const CableFrame& frame) {
  const auto expected = tag_of(sender, frame.header.sequence, frame.sealed);
  return expected && CRYPTO_memcmp(expected->data(), frame.tag.data(), frame.tag.size()) == 0;
}

}  // namespace tendon::v0::detail
