// SPDX-License-Identifier: Apache-2.0
#include "secure/evp_sealer.hpp"

#include <openssl/evp.h>

#include "secure/crypto_library.hpp"
#include "secure/octets.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr int kOpens = 0;
constexpr int kSeals = 1;

class EvpSealer final : public Sealer {
 public:
  struct Free {
    // This also wipes the key.
    void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;

  explicit EvpSealer(Context context) : context_(std::move(context)) {}

  bool seal(const Nonce& nonce, Bytes header, std::span<const Bytes> pieces,
            MutableBytes sealed) override {
    if (!begin(kSeals, nonce, header)) return false;
    for (const Bytes piece : pieces) {
      if (!pass(piece, sealed.first(piece.size()))) return false;
      sealed = sealed.subspan(piece.size());
    }
    return end(sealed) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, sealed.data()) == 1;
  }

  bool open(const Nonce& nonce, Bytes header, MutableBytes sealed, MutableBytes front) override {
    const MutableBytes tag = sealed.last(kTagBytes);
    const MutableBytes rest = sealed.first(sealed.size() - kTagBytes).subspan(front.size());
    return begin(kOpens, nonce, header) && pass(sealed.first(front.size()), front) &&
           pass(rest, rest) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
           end(tag);
  }

 private:
  // Sets only the nonce: the key stays from one record to the next.
  bool begin(int direction, const Nonce& nonce, Bytes header) {
    int size = 0;
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, as_octets(nonce.data()),
                             direction) == 1 &&
           EVP_CipherUpdate(context_.get(), nullptr, &size, as_octets(header.data()),
                            static_cast<int>(header.size())) == 1;
  }
  bool pass(Bytes from, MutableBytes to) {
    int size = 0;
    return from.empty() ||
           EVP_CipherUpdate(context_.get(), as_octets(to.data()), &size, as_octets(from.data()),
                            static_cast<int>(from.size())) == 1;
  }
  // A counter mode has no last block to write. When opening, the tag is compared here.
  bool end(MutableBytes unwritten) {
    int size = 0;
    return EVP_CipherFinal_ex(context_.get(), as_octets(unwritten.data()), &size) == 1;
  }

  Context context_;
};

}  // namespace

Result<std::unique_ptr<Sealer>> make_evp_sealer(const AeadKey& key) {
  const CryptoErrors errors;
  EvpSealer::Context context(EVP_CIPHER_CTX_new());
  const CryptoOwned<EVP_CIPHER> cipher(EVP_CIPHER_fetch(crypto_library(), "AES-256-GCM", nullptr));
  if (context == nullptr || cipher == nullptr ||
      EVP_CipherInit_ex(context.get(), cipher.get(), nullptr, as_octets(key.bytes().data()),
                        nullptr, kSeals) != 1) {
    return Error{ErrorCode::internal, "secure.sealer", "libcrypto has no AES-256-GCM"};
  }
  return std::make_unique<EvpSealer>(std::move(context));
}

}  // namespace tendon::v0::detail::secure
