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
    std::shared_ptr<FdHandler> handler;
    int fd = -1;
    {
      const Lock lock(mutex_);
      const auto found = watched_.find(event.data.u64);
      if (found == watched_.end()) continue;
      handler = found->second.handler.lock();
      fd = found->second.fd;
    }
    if (handler != nullptr)
      handler->on_ready(fd, event.events);
    else
      forget(fd);
  }
  return came;
}

void EventLoop::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(doorbell_.get(), &one, sizeof one);
}

Result<void> EventLoop::watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) {
  const Lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  if (control(epoll_.get(), EPOLL_CTL_ADD, fd, events, id) != 0)
    return system_error("context.watch", "epoll_ctl of descriptor " + std::to_string(fd), errno);
  watched_[id] = {fd, std::move(handler)};
  id_of_fd_[fd] = id;
  return {};
}

void EventLoop::change(int fd, std::uint32_t events) {
  const Lock lock(mutex_);
  const auto id = id_of_fd_.find(fd);
  if (id != id_of_fd_.end()) control(epoll_.get(), EPOLL_CTL_MOD, fd, events, id->second);
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
