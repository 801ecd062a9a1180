// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/tensor/schema.hpp>
#include <vector>

#include "channel/placement.hpp"
#include "transport/held_bytes.hpp"

namespace tendon::v0::detail {

/// The schemas that both ends of one direction of a pipe know by number, each with the placement of
/// its leaves: the last 64, as long as they are small together. The sender forgets by the same rule
/// as the receiver, and announces a forgotten schema again (docs/protocol.md, "Schemas").
///
/// Owns:    a share of each schema; at a receiver, its part of what the link may hold of them.
/// Threads: none of its own; changes at a receiver need the link's receive lock.
/// Errors:  add() has no room.
/// Blocks:  never.
/// Cost:    find() is an index; number_of() compares with up to 64 schemas.
class SchemaTable {
 public:
  /// `cap_bytes` is the receiver's link_cap_bytes. `budget`: at a receiver, that of its link.
  explicit SchemaTable(std::uint64_t cap_bytes, HeldBytes* budget = nullptr);

  /// Null when it was never announced, or forgotten.
  [[nodiscard]] const std::shared_ptr<const Schema>& find(std::uint32_t number) const noexcept {
    return entry(number).schema;
  }
  /// 0 when it must be announced (again).
  [[nodiscard]] std::uint32_t number_of(const std::shared_ptr<const Schema>& schema,
                                        const Placement* placement = nullptr) const noexcept;
  /// Null: its leaves lie in host memory, or it is not known.
  [[nodiscard]] const std::shared_ptr<const Placement>& placement(
      std::uint32_t number) const noexcept {
    return entry(number).placement;
  }
  /// The number of the next announcement.
  [[nodiscard]] std::uint32_t next_number() const noexcept { return last_number_ + 1; }
  /// Adds an announced schema, and forgets those that are too old or too large. False: the link has
  /// no room for it.
  [[nodiscard]] bool add(std::uint32_t number, std::shared_ptr<const Schema> schema,
                         std::shared_ptr<const Placement> placement = nullptr);
  void clear() noexcept;

  /// The cost of a schema in either end's table: about the size of its decoded form. And the least
  /// cost, known before it is decoded.
  [[nodiscard]] static std::uint64_t cost_bytes(const Schema& schema) noexcept;
  [[nodiscard]] static std::uint64_t least_cost_bytes(std::uint64_t encoding_bytes) noexcept;

  static constexpr std::size_t kMaxSchemas = 64;

 private:
  struct Entry {
    std::shared_ptr<const Schema> schema;
    std::uint32_t number = 0;
    std::uint64_t age = 0;  // of the announcement; the oldest is the smallest
    HeldBytes::Share share{};
    std::shared_ptr<const Placement> placement{};
  };
  // Called for each message.
  [[nodiscard]] const Entry& entry(std::uint32_t number) const noexcept {
    const std::size_t place = number % kMaxSchemas;
    const bool is_known = place < entries_.size() && entries_[place].number == number;
    return is_known ? entries_[place] : kUnknown;
  }
  void forget(Entry& entry) noexcept;

  static const Entry kUnknown;

  const std::uint64_t limit_bytes_;
  HeldBytes* const budget_;
  std::vector<Entry> entries_;  // by number modulo kMaxSchemas, as far as used
  std::uint32_t last_number_ = 0;
  std::uint64_t announcements_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace tendon::v0::detail
