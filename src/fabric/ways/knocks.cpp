// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/knocks.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <tendon/core/mutex.hpp>
#include <tendon/session/address.hpp>
#include <utility>

#include "core/fd.hpp"
#include "core/thread.hpp"
#include "runtime/user_event.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

class SocketKnocks final : public Knocks {
 public:
  ~SocketKnocks() override { stop(); }
  void start(OnAnswer on_answer) override { on_answer_ = std::move(on_answer); }
  [[nodiscard]] Result<void> begin(Number number, const std::vector<std::string>& addresses,
                                   std::chrono::milliseconds patience) override;
  void stop() override;

 private:
  struct Knock {
    Number number;
    std::vector<OwnedFd> sockets;  // none: nothing can be tried
    Clock::time_point until;
    bool stands = false;
  };

  void work();
  [[nodiscard]] bool take();
  void wait(std::vector<Knock>& open) const;
  void answer(std::vector<Knock>& open) const;

  OnAnswer on_answer_;  // set before the first begin()
  UserEvent wake_;
  Mutex mutex_;
  std::vector<Knock> begun_ TENDON_GUARDED_BY(mutex_);
  Thread thread_ TENDON_GUARDED_BY(mutex_);
  bool ending_ TENDON_GUARDED_BY(mutex_) = false;
  std::vector<Knock> open_;  // used by the thread only
};

// Returns a socket that is connected or connecting; none if the address cannot be tried.
OwnedFd connect_to(const std::string& text) {
  const auto address = Address::parse(text);
  // Skips names: a look-up takes time.
  if (!address || address->kind() != AddressKind::ip) return {};
  const auto numbers = resolve(*address, Deadline::now(), ResolveFor::connect);
  if (!numbers) return {};
  const SocketAddress& at = numbers->front();
  OwnedFd fd(socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {};
  if (connect(fd.get(), at.get(), at.length) != 0 && errno != EINPROGRESS) return {};
  return fd;
}

Result<void> SocketKnocks::begin(Number number, const std::vector<std::string>& addresses,
                                 std::chrono::milliseconds patience) {
  Knock knock{.number = number, .sockets = {}, .until = Clock::now() + patience};
  for (const std::string& address : addresses)
    if (OwnedFd fd = connect_to(address)) knock.sockets.push_back(std::move(fd));
  {
    const Lock lock(mutex_);
    if (ending_) return {};
    if (!thread_.joinable()) {
      if (!wake_.open()) return system_error("node.dial", "eventfd", errno);
      TENDON_TRY(thread, Thread::start({.name = "tendon-knock",
                                        .where = "node.dial",
                                        .task = "that knocks at announced addresses"},
                                       [this] { work(); }));
      thread_ = std::move(thread);
    }
    begun_.push_back(std::move(knock));
  }
  wake_.signal();
  return {};
}

void SocketKnocks::stop() {
  Thread thread;
  {
    const Lock lock(mutex_);
    ending_ = true;
    begun_.clear();
    thread = std::move(thread_);
  }
  wake_.signal();
  thread.join();
}

// False: the thread must end.
bool SocketKnocks::take() {
  (void)wake_.take();
  const Lock lock(mutex_);
  std::ranges::move(begun_, std::back_inserter(open_));
  begun_.clear();
  return !ending_;
}

void SocketKnocks::work() {
  while (take()) {
    wait(open_);
    answer(open_);
  }
  open_.clear();
}

// Drops sockets that have failed, and marks knocks whose connection stands.
void SocketKnocks::wait(std::vector<Knock>& open) const {
  std::vector<pollfd> asked{{wake_.fd(), POLLIN, 0}};
  auto due = Clock::time_point::max();
  for (const Knock& knock : open) {
    due = std::min(due, knock.sockets.empty() ? Clock::now() : knock.until);
    for (const OwnedFd& fd : knock.sockets) asked.push_back({fd.get(), POLLOUT, 0});
  }
  int wait_ms = -1;
  if (due != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    wait_ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }
  if (poll(asked.data(), asked.size(), wait_ms) <= 0) return;
  std::size_t next = 1;
  for (Knock& knock : open) {
    std::erase_if(knock.sockets, [&](const OwnedFd& fd) {
      if (asked[next++].revents == 0) return false;
      int failure = 0;
      socklen_t size = sizeof failure;
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
      if (failure == 0) knock.stands = true;
      return failure != 0;
    });
  }
}

void SocketKnocks::answer(std::vector<Knock>& open) const {
  const auto now = Clock::now();
  std::vector<std::pair<Number, Answer>> answers;
  std::erase_if(open, [&](const Knock& knock) {
    const bool is_over = knock.stands || knock.sockets.empty() || now >= knock.until;
    if (is_over) answers.emplace_back(knock.number, knock.stands ? Answer::stands : Answer::silent);
    return is_over;
  });
  for (const auto& [number, answer] : answers) on_answer_(number, answer);
}

}  // namespace

std::unique_ptr<Knocks> make_knocks() { return std::make_unique<SocketKnocks>(); }

}  // namespace tendon::v0::detail
