// SPDX-License-Identifier: Apache-2.0
// The cost of cryptography on this processor, without a connection.
#pragma once

#include <ctime>
#include <string>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/bench_credentials.hpp"
#include "secure/sealer_choice.hpp"

namespace tendon::cli {

/// CPU time of this process, or of this thread [s].
[[nodiscard]] double cpu_seconds(clockid_t clock);

/// The median of some rounds, with the least and the most of them.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;

  [[nodiscard]] static Spread of(std::vector<double> rounds);
  /// "12.3 (11.8..14)".
  [[nodiscard]] std::string text() const;
  /// Adds the members NAME, NAME_min and NAME_max.
  void add_to(Value::Map& row, const std::string& name) const;
};

/// The cost of sealing records of 16 KiB once; opening them costs as much.
struct SealCost {
  detail::secure::SealerKind kind;
  Spread s_per_gb;
};
/// Measures in turn each sealer that this build and processor have.
[[nodiscard]] Result<std::vector<SealCost>> measure_sealers(std::uint64_t rounds);

/// The cost of a handshake of both ends without a wire between them.
struct HandshakeCost {
  std::string proof;  ///< "key", "certificate"
  Spread client_ms;   ///< CPU time
  Spread server_ms;
  Spread per_s;  ///< handshakes of both ends on one CPU
};
[[nodiscard]] Result<std::vector<HandshakeCost>> measure_handshakes(
    std::uint64_t rounds, const BenchCredentials& credentials);

/// Instructions of this processor that sealers use: "aes", "vaes", ...
[[nodiscard]] std::vector<std::string> cpu_features();

}  // namespace tendon::cli
