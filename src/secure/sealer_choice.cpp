// SPDX-License-Identifier: Apache-2.0
#include "secure/sealer_choice.hpp"

#include "secure/evp_sealer.hpp"
#include "secure/ipsec_mb_sealer.hpp"

namespace tendon::v0::detail::secure {

Result<std::unique_ptr<Sealer>> make_sealer(SealerKind kind, const AeadKey& key) {
  // It was the faster one for records of every size, with each of its instruction sets
  // (benchmarks/sealer_benchmark.cpp).
  if (kind != SealerKind::openssl) {
    auto made = make_ipsec_mb_sealer(key);
    if (made || kind == SealerKind::ipsec_mb) return made;
  }
  return make_evp_sealer(key);
}

}  // namespace tendon::v0::detail::secure
