// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <variant>

#include "controller/front_messages.hpp"
#include "controller/inbox.hpp"

namespace engine {

/// The front's pipe has ended: nothing waits for its requests.
struct FrontGone {};
using FrontEvent = std::variant<FrontMessage, FrontGone>;

/// The HTTP front's pipe: one front at a time, the next one after it has left.
///
/// It disconnects a front that does not read once more than kMaxUnsentBytes wait for it.
///
/// Owns:    a listener, the pipe, a thread that receives and one that sends.
/// Threads: one thread calls send().
/// Errors:  listen(): those of Listener::bind().
/// Blocks:  never; the destructor until both threads have ended.
/// Cost:    two threads.
class Front {
 public:
  static constexpr std::uint64_t kMaxUnsentBytes = std::uint64_t{64} << 20;

  [[nodiscard]] static tendon::Result<std::unique_ptr<Front>> listen(tendon::Context& context,
                                                                     std::string_view address,
                                                                     Inbox<FrontEvent>& inbox);
  Front(tendon::Listener listener, Inbox<FrontEvent>& inbox);
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;
  /// Sends the waiting messages if the front reads them soon.
  ~Front();

  [[nodiscard]] std::string address() const { return listener_.address(); }
  [[nodiscard]] bool is_there() const;
  /// Without a front the message is dropped.
  void send(std::string message);

 private:
  void receive_all(const std::stop_token& stop);
  void receive_from(tendon::Pipe& pipe, const std::stop_token& stop);
  void send_all();

  tendon::Listener listener_;
  Inbox<FrontEvent>& inbox_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<tendon::Pipe> pipe_;
  std::deque<std::string> unsent_;
  std::uint64_t unsent_bytes_ = 0;
  enum class Life { runs, ends } life_ = Life::runs;
  std::thread sender_;
  std::jthread receiver_;
};

}  // namespace engine
