// SPDX-License-Identifier: Apache-2.0
#include "runtime/directory_watch.hpp"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/text.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// The directory was moved or removed, or its rights changed. Its bound sockets keep its removal
// from being reported, so its parent is watched as well.
constexpr std::uint32_t kOfDirectory = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr std::uint32_t kOfParent =
    IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR;
// A file that loses its last name changes its attributes, because its link count drops.
constexpr std::uint32_t kOfFile = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW;

}  // namespace

void DirectoryWatch::follow(const std::string& directory, const std::vector<std::string>& files) {
  const Lock lock(mutex_);
  if (state_ == State::stopped) return;
  end_notices();
  state_ = State::listening;
  if (!directory.empty() && notices_ != Notices::by_clock) begin_notices(directory, files);
  if (is_timed_ || notices_ == Notices::by_kernel) return;
  is_timed_ = true;
  next_look_ = Clock::now() + kLookAtDirectoryEvery;
  (void)context_->add_timed(Deadline::at(next_look_), weak_from_this());
}

void DirectoryWatch::begin_notices(const std::string& directory,
                                   const std::vector<std::string>& files) {
  OwnedFd fd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd) {
    context_->log(
        LogLevel::info, "context.directory",
        std::string("the runtime directory is looked at by the clock alone: inotify_init1: ") +
            errno_text(errno));
    return;
  }
  const std::size_t slash = directory.rfind('/');
  name_ = directory.substr(slash + 1);
  const std::string parent = slash == 0 ? "/" : directory.substr(0, slash);
  (void)inotify_add_watch(fd.get(), directory.c_str(), kOfDirectory);
  for (const std::string& file : files) (void)inotify_add_watch(fd.get(), file.c_str(), kOfFile);
  parent_ = inotify_add_watch(fd.get(), parent.c_str(), kOfParent);
  if (!context_->loop().watch(fd.get(), EPOLLIN, weak_from_this())) return;
  inotify_ = std::move(fd);
}

void DirectoryWatch::end_notices() {
  if (inotify_) context_->loop().forget(inotify_.get());
  inotify_.reset();
  parent_ = -1;
}

void DirectoryWatch::stop() {
  const Lock lock(mutex_);
  state_ = State::stopped;
  end_notices();
}

bool DirectoryWatch::take_notices() {
  alignas(inotify_event) std::array<char, 4096> buffer{};
  bool concerns_us = false;
  for (;;) {
    const ssize_t size = read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return concerns_us;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const char* const name = buffer.data() + at + sizeof event;
      const bool is_of_others = event.wd == parent_ && event.len != 0 && name_ != name;
      concerns_us |= !is_of_others;
      at += sizeof event + event.len;
    }
  }
}

void DirectoryWatch::on_ready(int fd, std::uint32_t) {
  const Lock lock(mutex_);
  if (state_ != State::listening || fd != inotify_.get()) return;
  has_news_ |= take_notices();
  state_ = State::resting;
  context_->loop().change(fd, 0);
  (void)context_->add_timed(kRest, weak_from_this());
}

// Called at the end of a rest, and for a look by the clock.
void DirectoryWatch::on_time() {
  bool looks = false;
  {
    const Lock lock(mutex_);
    if (state_ == State::stopped) return;
    looks = std::exchange(has_news_, false);
    if (state_ == State::resting) {
      state_ = State::listening;
      if (inotify_) context_->loop().change(inotify_.get(), EPOLLIN);
    }
    if (is_timed_ && Clock::now() >= next_look_) {
      next_look_ = Clock::now() + kLookAtDirectoryEvery;
      (void)context_->add_timed(Deadline::at(next_look_), weak_from_this());
      looks = true;
    }
  }
  if (looks) look_();
}

}  // namespace tendon::v0::detail
