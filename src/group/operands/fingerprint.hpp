// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/group/reduce_op.hpp>
#include <type_traits>

namespace tendon::v0::detail {

/// The operations of a group. Numbers travel between members: append only. 0 is none.
enum class CollectiveOp : std::uint8_t {
  barrier = 1,
  broadcast = 2,
  all_reduce = 3,
  reduce = 4,
  all_gather = 5,
  gather = 6,
  scatter = 7,
  reduce_scatter = 8,
  all_to_all = 9,
  monitored_barrier = 10,
};
/// "all_reduce"; "operation 77" for a number that names none.
[[nodiscard]] std::string to_string(CollectiveOp op);

/// The next operation of a member, which must be that of all others. It travels with every step, so
/// that a difference is a diagnosis and not a hang. Fields that may differ are zero: the sizes of
/// gather, scatter and all_to_all.
struct Fingerprint {
  CollectiveOp op = CollectiveOp::barrier;
  std::uint8_t dtype = 0;    ///< DType, 0 when there are several
  std::uint8_t reduce = 0;   ///< ReduceKind
  std::uint8_t history = 0;  ///< of the calls before it: CallHistory::mark()
  std::uint32_t root = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t shape_hash = 0;
  std::uint32_t sequence = 0;  ///< of the operation, the lower half
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
static_assert(sizeof(Fingerprint) == 24 && std::is_trivially_copyable_v<Fingerprint>);

/// The calls of an epoch so far, as a hash: FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo, 1991). A
/// member that takes itself for the root of a broadcast or a reduce waits for nobody, so nobody can
/// report the difference. The next call that does wait finds that the earlier calls differed.
class CallHistory {
 public:
  [[nodiscard]] std::uint8_t mark() const noexcept {
    return static_cast<std::uint8_t>(hash_ >> 24);
  }
  void add(const Fingerprint& call) noexcept;

 private:
  std::uint32_t hash_ = 2166136261;
};

/// Adds the factor of premul_sum, which must be the same on all members.
void mix_factor(Fingerprint& fingerprint, const ReduceOp& op) noexcept;

/// "all_reduce #118 (sum of f32, 4096 bytes)".
[[nodiscard]] std::string to_string(const Fingerprint& fingerprint);

}  // namespace tendon::v0::detail
