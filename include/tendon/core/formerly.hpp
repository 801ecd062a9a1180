// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

namespace tendon {
inline namespace v0 {

/// An option under the name that it had one minor version ago. Setting it makes the compiler warn;
/// the attribute on the field itself would warn wherever its struct is copied.
///
/// Owns:    the value, if one was set.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    that of the value.
template <class T>
class Formerly {
 public:
  constexpr Formerly() = default;
  [[deprecated("its comment has its present name")]] constexpr Formerly(T value)
      : value_(std::move(value)) {}

  /// The value that was set by this name, else `now`, the option under its present name.
  [[nodiscard]] constexpr T over(T now) const { return value_ ? *value_ : std::move(now); }
  [[nodiscard]] constexpr std::optional<T> over(std::optional<T> now) const {
    return value_ ? value_ : std::move(now);
  }

 private:
  std::optional<T> value_;
};

}  // namespace v0
}  // namespace tendon
