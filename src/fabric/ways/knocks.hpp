// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Does anybody take connections at the addresses that an announcement names? Finding out costs a
/// descriptor for a moment, where a dial costs a thread.
///
/// Owns:    the sockets of what was begun and not answered, and a thread from the first one on.
/// Threads: thread-safe. Answers come from a thread of its own, under no lock of it, one at a time.
/// Errors:  begin(): without a descriptor or a thread. What cannot be tried is `silent`.
/// Blocks:  stop() and the destructor, for an answer that is being told.
/// Cost:    of an address: a socket, a connect that does not wait, and its close.
class Knocks {
 public:
  using Number = std::uint64_t;
  enum class Answer : std::uint8_t {
    stands,  ///< a connection to one of the addresses did; it is closed again
    silent,  ///< none did in time
  };
  using OnAnswer = std::function<void(Number, Answer)>;

  Knocks() = default;
  Knocks(const Knocks&) = delete;
  Knocks& operator=(const Knocks&) = delete;
  virtual ~Knocks() = default;

  /// `on_answer` is told once of each begin() that succeeds, unless stop() comes first. Before all
  /// others.
  virtual void start(OnAnswer on_answer) = 0;
  [[nodiscard]] virtual Result<void> begin(Number number, const std::vector<std::string>& addresses,
                                           std::chrono::milliseconds patience) = 0;
  /// Tells nothing more.
  virtual void stop() = 0;
};

/// By sockets of this process. Addresses that are no numbers of IP are `silent`.
[[nodiscard]] std::unique_ptr<Knocks> make_knocks();

}  // namespace tendon::v0::detail
