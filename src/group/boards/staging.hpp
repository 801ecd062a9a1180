// SPDX-License-Identifier: Apache-2.0
// How a member shows the others of its host a tensor: through the cache, around it, or in place.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "group/operands/fingerprint.hpp"
#include "memory/copy.hpp"

namespace tendon::v0::detail {

/// Data written through the cache lies dirty in the writer's cache, from where a reader fetches it
/// line by line, and the next write fetches each line back. Cores of one cache do that at 8 to 16
/// GB/s, those of different ones at 2 GB/s, where the way around the caches, through memory,
/// reaches 8 GB/s in both cases (measured; docs/collectives.md). Nothing tells which case it is:
/// topology does not cross a hypervisor. So both ways are tried: in the first operations of a kind
/// and size, then once each in each kPeriod, by all members in the same operations. Each member
/// counts its own time in copies and reductions, without its waits, and keeps the faster way.
///
/// A tensor in a pool need not be written at all: the others can read it in place. That is a third
/// way of all_reduce, tried in the same manner.
///
/// Owns:    some numbers; of one epoch.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    two readings of a clock for each round of an operation that is tried.
class Staging {
 public:
  /// `forced` is the value of TENDON_COLLECTIVES=staging=...
  explicit Staging(std::optional<CopyHint> forced) : forced_(forced) {}

  struct Plan {
    CopyHint hint = CopyHint::cached;  ///< for written data
    bool is_pooled = false;
    bool pulls = false;     ///< the tensor is read in place, if the others' tensors can be too
    bool is_trial = false;  ///< tried() must get its time
  };
  /// The plan of the next operation. Every member makes the same calls, so trials coincide.
  [[nodiscard]] Plan plan(CollectiveOp op, std::uint64_t size_bytes) noexcept;
  /// The plan of the next all_reduce of a tensor in a pool, by so many members.
  [[nodiscard]] Plan plan_pooled(std::uint64_t size_bytes, std::uint32_t members) noexcept;
  void tried(CollectiveOp op, std::uint64_t size_bytes, const Plan& plan,
             std::uint64_t ns) noexcept;

  /// Smaller data lies in the first-level cache, and is there before a trial would tell.
  static constexpr std::uint64_t kSmallestBytes = std::uint64_t{16} << 10;
  static constexpr std::uint64_t kFirstTrials = 6;
  static constexpr std::uint64_t kPeriod = 128;
  /// Bytes of all members' tensors together, if they lie in pools. From the first number on they
  /// are read in place until another way was faster. From the second on, where nothing stays in a
  /// cache, they always are.
  static constexpr std::uint64_t kPulledBytes = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kAlwaysPulledBytes = std::uint64_t{32} << 20;

 private:
  enum class Way : std::uint8_t { cached, streaming, pull };
  // The latest two trials of one way [ns for a byte].
  struct Trials {
    std::array<double, 2> ns_per_byte{};
    std::uint64_t count = 0;
    [[nodiscard]] double best() const noexcept;
  };
  struct Class {
    std::uint64_t operations = 0;
    std::array<Trials, 3> trials;  // by Way
  };
  [[nodiscard]] static Way learned(const Class& of, std::size_t ways, Way otherwise) noexcept;
  /// The way that is tried in the next operation of this class, if one is.
  [[nodiscard]] static std::optional<Way> next_trial(Class& counted, std::size_t ways) noexcept;
  [[nodiscard]] static std::size_t index_of_size(std::uint64_t size_bytes) noexcept;
  [[nodiscard]] Class* class_of(CollectiveOp op, std::uint64_t size_bytes) noexcept;

  const std::optional<CopyHint> forced_;
  // By kind, for operations where all members write and read, and by size: 16 KiB, 32 KiB, ...
  std::array<std::array<Class, 14>, 3> classes_;
  std::array<Class, 14> pooled_;  // all_reduce
};

}  // namespace tendon::v0::detail
