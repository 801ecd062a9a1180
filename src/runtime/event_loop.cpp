// SPDX-License-Identifier: Apache-2.0
#include "runtime/event_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kDoorbellId = 0;
// A value that no event has, because epoll reports none without a bit.
constexpr std::uint32_t kItsTurn = 0;

int control(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

Result<void> EventLoop::open() {
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error("context.create", "epoll_create1", errno);
  doorbell_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_) return system_error("context.create", "eventfd", errno);
  if (control(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), EPOLLIN, kDoorbellId) != 0)
    return system_error("context.create", "epoll_ctl", errno);
  return {};
}

EventLoop::Events EventLoop::dispatch(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  Events came;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    came.any = true;
    if (event.data.u64 == kDoorbellId) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = read(doorbell_.get(), &rings, sizeof rings);
      came.rung = true;
      continue;
    }
    serve(event.data.u64, event.events);
  }
  const bool are_left = turns_.run(now_, [this](std::uint64_t id) {
    serve(id, kItsTurn);
    rearm(id);
  });
  if (are_left) ring();
  return came;
}

void EventLoop::serve(std::uint64_t id, std::uint32_t events) {
  std::shared_ptr<FdHandler> handler;
  int fd = -1;
  {
    const Lock lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    if (found->second.manner == Manner::in_turns && events != kItsTurn) return turns_.add(id);
    handler = found->second.handler.lock();
    fd = found->second.fd;
  }
  if (handler != nullptr)
    handler->on_ready(fd, events);
  else
    forget(fd);
}

void EventLoop::rearm(std::uint64_t id) {
  const Lock lock(mutex_);
  const auto found = watched_.find(id);
  if (found != watched_.end())
    control(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, found->second.events, id);
}

void EventLoop::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(doorbell_.get(), &one, sizeof one);
}

Result<void> EventLoop::watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) {
  return watch({fd, events, Manner::at_once, std::move(handler)});
}

// The kernel reports each event once, also an end or an error, so descriptors that wait for their
// turn do not fill the next events.
Result<void> EventLoop::watch_in_turns(int fd, std::uint32_t events,
                                       std::weak_ptr<FdHandler> handler) {
  return watch({fd, events | EPOLLONESHOT, Manner::in_turns, std::move(handler)});
}

Result<void> EventLoop::watch(Watched watched) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  const int fd = watched.fd;
  if (control(epoll_.get(), EPOLL_CTL_ADD, fd, watched.events, id) != 0)
    return system_error("context.watch", "epoll_ctl of descriptor " + std::to_string(fd), errno);
  watched_[id] = std::move(watched);
  id_of_fd_[fd] = id;
  return {};
}

void EventLoop::change(int fd, std::uint32_t events) {
  const Lock lock(mutex_);
  const auto id = id_of_fd_.find(fd);
  if (id == id_of_fd_.end()) return;
  Watched& watched = watched_.at(id->second);
  watched.events = events | (watched.manner == Manner::in_turns ? EPOLLONESHOT : 0u);
  control(epoll_.get(), EPOLL_CTL_MOD, fd, watched.events, id->second);
}

void EventLoop::call_in_turn(int fd) {
  {
    const Lock lock(mutex_);
    const auto id = id_of_fd_.find(fd);
    if (id == id_of_fd_.end()) return;
    turns_.add(id->second);
  }
  ring();
}

void EventLoop::forget(int fd) {
  const Lock lock(mutex_);
  const auto id = id_of_fd_.find(fd);
  if (id == id_of_fd_.end()) return;
  control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, 0);
  watched_.erase(id->second);
  id_of_fd_.erase(id);
}

}  // namespace tendon::v0::detail
