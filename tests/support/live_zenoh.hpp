// SPDX-License-Identifier: Apache-2.0
// A ZenohNetwork for programs with threads: what is said comes as soon as it can.
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

/// Owns:    the network, and the thread that lets time pass in it. It outlives its sessions.
/// Threads: thread-safe. Callbacks come from a thread of their session.
class LiveZenoh {
 public:
  LiveZenoh();
  LiveZenoh(const LiveZenoh&) = delete;
  LiveZenoh& operator=(const LiveZenoh&) = delete;
  ~LiveZenoh();

  /// A session on a host of its own: nodes of others dial no unix socket that it announces.
  [[nodiscard]] std::unique_ptr<detail::ZenohPort> open(std::uint8_t host);
  void stop_router();
  void heal();
  /// From now on, a frame of a cable for which `loses` is true does not come. One call at a time.
  void lose(std::function<bool(std::string_view key, const Storage& frame)> loses);
  /// From now on, a frame of a cable arrives as `alters` returns it. One call at a time.
  void alter(std::function<Storage(std::string_view key, const Storage& frame)> alters);

 private:
  class Session;
  class Question;
  class Standing;
  class Publisher;

  /// Runs `what` in the network's thread, so to speak.
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
