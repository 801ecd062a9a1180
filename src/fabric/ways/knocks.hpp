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

/// Finds out whether anybody takes connections at the addresses that an announcement names. That
/// costs a descriptor for a moment, while a dial costs a thread.
///
/// Owns:    the sockets of unanswered knocks, and a thread from the first knock on.
/// Threads: thread-safe. A thread of its own calls back without a lock, one answer at a time.
/// Errors:  begin(): without a descriptor or a thread. An address that cannot be tried is `silent`.
/// Blocks:  stop() and the destructor, for a callback that runs.
/// Cost:    of an address: a socket, a connect that does not wait, and its close.
class Knocks {
 public:
  using Number = std::uint64_t;
  enum class Answer : std::uint8_t {
    stands,  ///< one of the addresses took a connection, which was closed again
    silent,  ///< none of them did in time
  };
  using OnAnswer = std::function<void(Number, Answer)>;

  Knocks() = default;
  Knocks(const Knocks&) = delete;
  Knocks& operator=(const Knocks&) = delete;
  virtual ~Knocks() = default;

  /// Sets the callback, before all other calls. `on_answer` is called once for each begin() that
  /// succeeds, unless stop() is called first.
  virtual void start(OnAnswer on_answer) = 0;
  [[nodiscard]] virtual Result<void> begin(Number number, const std::vector<std::string>& addresses,
                                           std::chrono::milliseconds patience) = 0;
  /// Ends the callbacks.
  virtual void stop() = 0;
};

/// Makes knocks with sockets of this process. Addresses that are not IP numbers are `silent`.
[[nodiscard]] std::unique_ptr<Knocks> make_knocks();

}  // namespace tendon::v0::detail
