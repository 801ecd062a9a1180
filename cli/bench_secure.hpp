// SPDX-License-Identifier: Apache-2.0
// `tendon bench secure`: the cost of encrypting a link, compared with a link without encryption and
// with SSL_read and SSL_write.
#pragma once

#include <cstdint>
#include <optional>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/bench.hpp"
#include "cli/bench_hosts.hpp"
#include "secure/sealer_choice.hpp"

namespace tendon::cli {

struct BenchSecureOptions {
  BenchLink link = BenchLink::loopback;
  std::optional<SoftirqPlace> softirq;
  detail::secure::SealerKind sealer = detail::secure::SealerKind::automatic;
  /// Bytes of messages: latencies are measured below 1 MiB, rates from 1 MiB on.
  std::vector<std::uint64_t> messages = {64, 4 << 10, 1 << 20, 16 << 20};
  std::uint64_t rounds = 9;
  std::uint64_t iteration_count = 0;  ///< 0: depends on the size
  Pinning pinning = Pinning::two_cpus;
  Format format = Format::text;
};
[[nodiscard]] int run_bench_secure(const BenchSecureOptions& options);

/// The role of its second process.
[[nodiscard]] Result<void> play_secure_peer(const Value& parameters);

}  // namespace tendon::cli
