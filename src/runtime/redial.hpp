// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/connect_options.hpp>

#include "runtime/backoff.hpp"
#include "runtime/heard.hpp"

namespace tendon::v0::detail {

class ContextCore;

/// Decides after each failed try of one connect whether another follows, and when.
///
/// Owns:    the last cause worth another try, and the pauses.
/// Threads: none of its own.
/// Errors:  make(): system, without random numbers. after(): the result of the connect.
/// Blocks:  never.
/// Cost:    one line in the log, once a second has passed.
class Redial {
 public:
  [[nodiscard]] static Result<Redial> make(const ContextCore& context, std::string_view address,
                                           Absent absent, Deadline deadline);

  /// Returns the pause before the next try, or the error that ends them: a failure that another try
  /// does not change, or, at the deadline, the last cause with the number of tries.
  [[nodiscard]] Result<std::chrono::microseconds> after(Error failed, Heard heard);

 private:
  Redial(const ContextCore& context, std::string_view address, Absent absent, Deadline deadline,
         Backoff backoff)
      : context_(&context),
        address_(address),
        absent_(absent),
        deadline_(deadline),
        backoff_(backoff) {}
  [[nodiscard]] bool is_worth_another(const Error& failed, Heard heard) const;
  [[nodiscard]] Error give_up() const;
  void tell_once();

  const ContextCore* const context_;
  const std::string address_;
  const Absent absent_;
  const Deadline deadline_;
  Backoff backoff_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t try_count_ = 0;
  std::optional<Error> last_;
  bool told_ = false;
};

}  // namespace tendon::v0::detail
