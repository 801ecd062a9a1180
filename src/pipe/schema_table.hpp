// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tendon/tensor/schema.hpp>

namespace tendon::v0::detail {

/// The schemas that both ends of one direction of a pipe know by number: the last 64, as long as
/// they are small together. The sender forgets by the same rule as the receiver, and announces a
/// schema again that was forgotten (docs/protocol.md, "Schemas").
///
/// Owns:    a share of each schema.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    find() is an index; number_of() compares with up to 64 schemas.
class SchemaTable {
 public:
  /// `cap_bytes`: the receiver's link_cap_bytes.
  explicit SchemaTable(std::uint64_t cap_bytes);

  /// Null when it was never announced, or forgotten.
  [[nodiscard]] const std::shared_ptr<const Schema>& find(std::uint32_t number) const noexcept;
  /// 0 when it must be announced (again).
  [[nodiscard]] std::uint32_t number_of(const std::shared_ptr<const Schema>& schema) const noexcept;
  /// The number of the next announcement.
  [[nodiscard]] std::uint32_t next_number() const noexcept { return last_number_ + 1; }
  /// It was announced by this number. Forgets what is too old, or too much.
  void add(std::uint32_t number, std::shared_ptr<const Schema> schema);

  /// What a schema counts with, in either end's table: about what its decoded form takes.
  [[nodiscard]] static std::uint64_t cost_bytes(const Schema& schema) noexcept;

  static constexpr std::size_t kMaxSchemas = 64;

 private:
  struct Entry {
    std::shared_ptr<const Schema> schema;
    std::uint32_t number = 0;
    std::uint64_t age = 0;  // of the announcement; the oldest is the smallest
  };
  void forget(Entry& entry) noexcept;

  const std::uint64_t limit_bytes_;
  std::array<Entry, kMaxSchemas> entries_;  // by number modulo kMaxSchemas
  std::uint32_t last_number_ = 0;
  std::uint64_t announcements_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tendon::v0::detail
