// SPDX-License-Identifier: Apache-2.0
#include "secure/sealer_choice.hpp"

#include <atomic>

#include "secure/evp_sealer.hpp"
#include "secure/ipsec_mb_sealer.hpp"

namespace tendon::v0::detail::secure {
namespace {

constinit std::atomic<SealerKind> preferred_kind = SealerKind::automatic;

}  // namespace

void prefer_sealer(SealerKind kind) noexcept {
  preferred_kind.store(kind, std::memory_order_relaxed);
}

SealerKind automatic_sealer() {
  const SealerKind kind = preferred_kind.load(std::memory_order_relaxed);
  if (kind != SealerKind::automatic) return kind;
  return make_ipsec_mb_sealer(AeadKey()) ? SealerKind::ipsec_mb : SealerKind::openssl;
}

Result<std::unique_ptr<Sealer>> make_sealer(SealerKind kind, const AeadKey& key) {
  if (kind == SealerKind::automatic) kind = preferred_kind.load(std::memory_order_relaxed);
  // libipsec-mb was faster for records of every size, with each of its instruction sets
  // (benchmarks/sealer_benchmark.cpp).
  if (kind != SealerKind::openssl) {
    auto made = make_ipsec_mb_sealer(key);
    if (made || kind == SealerKind::ipsec_mb) return made;
  }
  return make_evp_sealer(key);
}

}  // namespace tendon::v0::detail::secure
