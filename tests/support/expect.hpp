// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <thread>

namespace tendon::test {

/// The longest wait of a test for an event that must happen. Never compared with a result: it only
/// turns a hang into a failure that names its place.
inline constexpr std::chrono::seconds kPatience{20};
/// A deadline for calls that must time out.
inline constexpr std::chrono::milliseconds kBriefly{30};
/// A lease for contexts whose peers must not be lost, however long a busy machine delays them.
inline constexpr std::chrono::milliseconds kLongLease{60'000};

template <class T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result.has_value()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << result.error().message() << " [" << result.error().where << "]";
}

/// Succeeds if the call returned `code`, and its detail contains `text` (a name, a limit, a value).
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

/// Runs `step` until `condition` holds; false if patience ends first.
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
