// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>

namespace tendon {
inline namespace v0 {

namespace detail {
class SlotPool;
class ContextCore;
}  // namespace detail

/// The share of a pool that one peer holds.
struct PoolHolder {
  std::string name;         ///< of the peer
  std::uint32_t count = 0;  ///< of its holds: a slot counts once for each time that it was sent
  std::uint64_t bytes = 0;  ///< of the slots, each once
};

/// The state of a pool at this moment.
struct PoolSummary {
  std::uint64_t cap_bytes = 0;       ///< a limit, not an allocation
  std::uint64_t resident_bytes = 0;  ///< of slots that were touched and not returned to the system
  std::uint64_t loaned_count = 0;    ///< slots in use
  std::uint64_t segment_count = 0;

  [[nodiscard]] TENDON_API std::string to_string() const;
};

/// Shared memory of a Context in slots of power-of-two sizes, kept warm for the next use. Messages
/// that arrive over sockets are received into it.
///
/// Example:
///   Pool pool = context.pool();
///   Storage storage = pool.allocate(4 << 20).value();
///   Tensor x = Tensor::view(storage, 0, DType::f32, {1 << 20}).value();
///   group.all_reduce(x, ReduceOp::sum, 10s).value();  // shared memory of this host: one copy less
///   std::cout << pool.summary().to_string() << '\n';
///
/// Owns:    a share of the pool; memory taken from it outlives it.
/// Threads: safe everywhere.
/// Errors:  resource_exhausted and message_too_large, naming the limit.
/// Blocks:  never.
/// Cost:    allocate: a lock and a stack; the first touch of a page is paid once, not at each use.
class TENDON_API Pool {
 public:
  /// Takes at least `size_bytes`, contents unspecified; they return to the pool with their last
  /// share.
  [[nodiscard]] Result<Storage> allocate(std::uint64_t size_bytes);
  [[nodiscard]] PoolSummary summary() const;

 private:
  friend class detail::ContextCore;
  friend class Context;
  explicit Pool(std::shared_ptr<detail::SlotPool> slots) : slots_(std::move(slots)) {}
  std::shared_ptr<detail::SlotPool> slots_;
};

}  // namespace v0
}  // namespace tendon
