// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <thread>

namespace tendon::test {

/// How long a test waits for what must happen. Never compared with anything: it only turns a hang
/// into a failure that says where.
inline constexpr std::chrono::seconds kPatience{20};
/// For calls that must run into their deadline.
inline constexpr std::chrono::milliseconds kBriefly{30};
/// For contexts whose peers are not to be given up, however long a busy machine lets them wait.
inline constexpr std::chrono::milliseconds kLongLease{60'000};

template <class T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result.has_value()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << result.error().message() << " [" << result.error().where << "]";
}

/// The call answered `code`, and its detail contains `text` (a name, a limit, a value).
template <class T>
testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code,
                                    std::string_view text = {}) {
  if (result.has_value())
    return testing::AssertionFailure() << "succeeded instead of " << to_string(code);
  const Error& error = result.error();
  if (error.code != code) {
    return testing::AssertionFailure()
           << "not " << to_string(code) << " but " << error.message() << " [" << error.where << "]";
  }
  if (error.detail.find(text) == std::string::npos) {
    return testing::AssertionFailure() << "the detail lacks '" << text << "': " << error.detail;
  }
  return testing::AssertionSuccess();
}

/// Runs `step` and asks `condition` until it holds; false when patience ends first.
template <class Condition, class Step>
bool eventually(Condition condition, Step step) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    step();
  }
  return true;
}
template <class Condition>
bool eventually(Condition condition) {
  return eventually(condition, [] { std::this_thread::yield(); });
}

}  // namespace tendon::test
