// SPDX-License-Identifier: Apache-2.0
// Flags that several verbs share, as the library's types.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <tendon/runtime/context.hpp>

#include "cli/progress.hpp"

namespace tendon::cli {

inline const std::map<std::string, Transport> kTransportNames = {
    {"auto", Transport::automatic}, {"shm", Transport::shm}, {"tcp", Transport::tcp}};
inline const std::map<std::string, WaitPolicy> kPolicyNames = {{"latency", WaitPolicy::latency},
                                                               {"balanced", WaitPolicy::balanced},
                                                               {"blocking", WaitPolicy::blocking}};
inline const std::map<std::string, ProgressStyle> kProgressNames = {
    {"auto", ProgressStyle::automatic}, {"lines", ProgressStyle::lines}, {"off", ProgressStyle::off}};

/// Whether tensors are written where the peer reads them, or sent from where they lie.
enum class SendMode : std::uint8_t { loan, copy };
inline const std::map<std::string, SendMode> kModeNames = {{"loan", SendMode::loan},
                                                           {"copy", SendMode::copy}};

/// The name of a value in one of the maps above.
template <class T>
[[nodiscard]] std::string name_in(const std::map<std::string, T>& names, T value) {
  for (const auto& [name, named] : names)
    if (named == value) return name;
  return "?";
}

[[nodiscard]] inline std::chrono::nanoseconds to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

/// Longest duration a flag takes [s].
inline constexpr double kMaxTimeoutSeconds = 1e8;

}  // namespace tendon::cli
