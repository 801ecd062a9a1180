// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/words.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The activity of a group at one moment: Group::status().
struct GroupStatus {
  enum class State : std::uint8_t {
    idle,
    in_operation,  ///< a collective was called and has not ended, or a thread waits for a message
    ended,         ///< the epoch has ended: shrink(), grow() or rebuild() make the next one
  };
  std::string group = {};   ///< its name
  std::uint64_t epoch = 0;  ///< as Group::epoch()
  std::uint32_t size = 0;
  State state = State::idle;

  // in_operation: the first in the order of the calls
  std::string operation = {};  ///< "all_reduce"
  std::uint64_t sequence = 0;  ///< its number; 0: a message between two members, such as "recv"
  /// Time since it was found waiting; 0 before that, and while a thread works on it.
  std::chrono::nanoseconds elapsed{0};
  /// Between hosts, and over tcp, the members whose message is next: they may wait for others.
  std::vector<GroupRank> waiting_for = {};
};

TENDON_WORDS(GroupStatus::State, idle, in_operation, ended);
/// "in all_reduce #7, waiting for rank 2 (12.3 s)".
[[nodiscard]] TENDON_API std::string to_string(const GroupStatus& status);

}  // namespace v0
}  // namespace tendon
