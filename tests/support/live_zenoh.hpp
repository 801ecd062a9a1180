// SPDX-License-Identifier: Apache-2.0
// A ZenohNetwork for programs with threads: messages arrive as soon as possible.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <tendon/memory/storage.hpp>
#include <thread>

#include "fabric/zenoh/zenoh_port.hpp"
#include "support/zenoh_network.hpp"

namespace tendon::test {

/// Runs a ZenohNetwork for the threads of a program.
///
/// Owns:    the network, and the thread that advances its time. It outlives its sessions.
/// Threads: thread-safe. A thread of each session runs its callbacks.
class LiveZenoh {
 public:
  LiveZenoh();
  LiveZenoh(const LiveZenoh&) = delete;
  LiveZenoh& operator=(const LiveZenoh&) = delete;
  ~LiveZenoh();

  /// Opens a session on a host of its own: nodes of other hosts dial no unix socket that it
  /// announces.
  [[nodiscard]] std::unique_ptr<detail::ZenohPort> open(std::uint8_t host);
  void stop_router();
  void heal();
  /// Drops from now on each frame of a cable for which `loses` is true. One call at a time.
  void lose(std::function<bool(std::string_view key, const Storage& frame)> loses);
  /// Replaces from now on each frame of a cable by the result of `alters`. One call at a time.
  void alter(std::function<Storage(std::string_view key, const Storage& frame)> alters);

 private:
  class Session;
  class Question;
  class Standing;
  class Publisher;

  /// Runs `what` under the network's lock, as if in its thread.
  template <class F>
  auto with(F what);
  void run();

  std::recursive_mutex mutex_;
  std::condition_variable_any touched_;
  ZenohNetwork network_{{}};
  std::function<bool(std::string_view, const Storage&)> loses_;
  std::function<Storage(std::string_view, const Storage&)> alters_;
  bool has_work_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tendon::test
