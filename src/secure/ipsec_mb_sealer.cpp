// SPDX-License-Identifier: Apache-2.0
#include "secure/ipsec_mb_sealer.hpp"

#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <new>
#include <optional>
#include <type_traits>

#include "core/process_wide.hpp"
#include "secure/octets.hpp"
#include "secure/secret_memory.hpp"

namespace tendon::v0::detail::secure {
namespace {

// Up to this size, one call on one copy is faster than a call per piece; beyond it, the copy costs
// more (benchmarks/sealer_benchmark.cpp).
constexpr std::size_t kCopiedBytes = 1024;

// The functions for this processor. They have no state except their arguments.
struct GcmFunctions {
  aes_gcm_pre_t expand_key = nullptr;
  aes_gcm_enc_dec_t seal = nullptr;
  aes_gcm_enc_dec_t open = nullptr;
  aes_gcm_init_t begin = nullptr;
  aes_gcm_enc_dec_update_t seal_piece = nullptr;
  aes_gcm_enc_dec_update_t open_piece = nullptr;
  aes_gcm_enc_dec_finalize_t end_sealing = nullptr;
  aes_gcm_enc_dec_finalize_t end_opening = nullptr;
};

std::optional<GcmFunctions> find_functions() {
  struct Free {
    void operator()(IMB_MGR* manager) const noexcept { free_mb_mgr(manager); }
  };
  // The struct that is read below may differ in another version.
  if (imb_get_version() != IMB_VERSION_NUM) return std::nullopt;
  const std::unique_ptr<IMB_MGR, Free> manager(alloc_mb_mgr(0));
  if (manager == nullptr) return std::nullopt;
  IMB_ARCH chosen = IMB_ARCH_NONE;
  init_mb_mgr_auto(manager.get(), &chosen);
  // Without AES-NI it uses tables, and another process can observe their use in the cache.
  if (imb_get_errno(manager.get()) != 0 || chosen < IMB_ARCH_SSE) return std::nullopt;
  return GcmFunctions{.expand_key = manager->gcm256_pre,
                      .seal = manager->gcm256_enc,
                      .open = manager->gcm256_dec,
                      .begin = manager->gcm256_init,
                      .seal_piece = manager->gcm256_enc_update,
                      .open_piece = manager->gcm256_dec_update,
                      .end_sealing = manager->gcm256_enc_finalize,
                      .end_opening = manager->gcm256_dec_finalize};
}

class IpsecMbSealer final : public Sealer {
 public:
  IpsecMbSealer(const GcmFunctions& gcm, const AeadKey& key)
      : gcm_(gcm), memory_(sizeof(Expanded)) {
    auto* const expanded = new (memory_.writable().data()) Expanded;
    gcm_.expand_key(key.bytes().data(), &expanded->key);
    key_ = &expanded->key;
    state_ = &expanded->state;
  }

  bool seal(const Nonce& nonce, Bytes header, std::span<const Bytes> pieces,
            MutableBytes sealed) override {
    const MutableBytes text = sealed.first(sealed.size() - kTagBytes);
    const MutableBytes tag = sealed.last(kTagBytes);
    std::byte* to = text.data();
    if (text.size() <= kCopiedBytes) {
      for (const Bytes piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
      gcm_.seal(key_, state_, as_octets(text.data()), as_octets(text.data()), text.size(),
                as_octets(nonce.data()), as_octets(header.data()), header.size(),
                as_octets(tag.data()), kTagBytes);
    } else {
      begin(nonce, header);
      for (const Bytes piece : pieces) {
        gcm_.seal_piece(key_, state_, as_octets(to), as_octets(piece.data()), piece.size());
        to += piece.size();
      }
      gcm_.end_sealing(key_, state_, as_octets(tag.data()), kTagBytes);
    }
    return true;
  }

  bool open(const Nonce& nonce, Bytes header, MutableBytes sealed, MutableBytes front) override {
    const MutableBytes text = sealed.first(sealed.size() - kTagBytes);
    std::array<std::byte, kTagBytes> tag;
    if (text.size() <= kCopiedBytes) {
      gcm_.open(key_, state_, as_octets(text.data()), as_octets(text.data()), text.size(),
                as_octets(nonce.data()), as_octets(header.data()), header.size(),
                as_octets(tag.data()), kTagBytes);
    } else {
      begin(nonce, header);
      if (!front.empty())
        gcm_.open_piece(key_, state_, as_octets(front.data()), as_octets(text.data()),
                        front.size());
      const MutableBytes rest = text.subspan(front.size());
      gcm_.open_piece(key_, state_, as_octets(rest.data()), as_octets(rest.data()), rest.size());
      gcm_.end_opening(key_, state_, as_octets(tag.data()), kTagBytes);
    }
    // Takes constant time, however many bytes of a wrong tag are right.
    if (CRYPTO_memcmp(tag.data(), sealed.last(kTagBytes).data(), kTagBytes) != 0) return false;
    if (text.size() <= kCopiedBytes) std::copy_n(text.begin(), front.size(), front.begin());
    return true;
  }

 private:
  struct Expanded {
    alignas(64) gcm_key_data key{};  // its type is aligned only under a macro of the library
    gcm_context_data state{};
  };
  static_assert(std::is_trivially_destructible_v<Expanded>);
  static_assert(alignof(Expanded) <= SecretMemory::kAlignment);

  void begin(const Nonce& nonce, Bytes header) {
    gcm_.begin(key_, state_, as_octets(nonce.data()), as_octets(header.data()), header.size());
  }

  const GcmFunctions& gcm_;  // owned by the process
  SecretBytes memory_;
  // Both point into memory_.
  gcm_key_data* key_ = nullptr;
  gcm_context_data* state_ = nullptr;
};

constinit MadeOnce<std::optional<GcmFunctions>> functions_of_process;

}  // namespace

Result<std::unique_ptr<Sealer>> make_ipsec_mb_sealer(const AeadKey& key) {
  const std::optional<GcmFunctions>& functions = functions_of_process.get(
      [] { return std::make_unique<std::optional<GcmFunctions>>(find_functions()); });
  if (!functions) {
    return Error{ErrorCode::not_supported, "secure.sealer",
                 "this processor has no AES-NI, or libipsec-mb is not " IMB_VERSION_STR
                 ", with which this was compiled"};
  }
  return std::make_unique<IpsecMbSealer>(*functions, key);
}

std::string_view ipsec_mb_version() { return imb_get_version_str(); }

}  // namespace tendon::v0::detail::secure
