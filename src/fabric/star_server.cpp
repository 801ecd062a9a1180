// SPDX-License-Identifier: Apache-2.0
#include "fabric/star_server.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <tendon/core/error.hpp>
#include <tendon/observe/log.hpp>
#include <utility>

#include "fabric/zenoh_session.hpp"

namespace tendon::v0::detail {

// The first try is over when it returns: a client finds the place served.
StarServer::StarServer(std::string path) : path_(std::move(path)) {
  const auto pause = serve();
  thread_ = std::thread([this, pause] { work(pause); });
}

StarServer::~StarServer() {
  {
    const Lock lock(mutex_);
    state_ = State::ending;
  }
  changed_.notify_all();
  thread_.join();
}

void StarServer::look_at(const ZenohPort& client) {
  {
    const Lock lock(mutex_);
    if (state_ == State::serving || state_ == State::ending) return;
    state_ = client.state() == SessionState::up ? State::idle : State::wanted;
  }
  changed_.notify_all();
}

void StarServer::work(std::chrono::milliseconds pause) {
  const Lock lock(mutex_);
  while (state_ != State::ending) {
    if (state_ != State::wanted) {
      changed_.wait(mutex_);
      continue;
    }
    (void)changed_.wait_until(mutex_, pause);
    if (state_ != State::wanted) continue;
    mutex_.unlock();
    pause = serve();
    mutex_.lock();
  }
  session_.reset();
  lock_.reset();
}

// How long to wait before the next try, where this one has failed.
std::chrono::milliseconds StarServer::serve() {
  auto session = try_to_serve();
  if (!session) {
    const std::string failure = session.error().message();
    if (failure != last_failure_) {
      log(LogLevel::warn, "node.discovery", "the place of discovery is not served: " + failure);
    }
    last_failure_ = failure;
    return kRetryOfError;
  }
  if (*session != nullptr) {
    session_ = *std::move(session);
    const Lock lock(mutex_);
    if (state_ != State::ending) state_ = State::serving;
  }
  return kRetry;
}

// Nothing: another process has the lock.
Result<std::unique_ptr<ZenohPort>> StarServer::try_to_serve() {
  constexpr std::string_view kWhere = "fabric.star";
  if (!lock_) {
    const std::string file = path_ + ".serves";
    OwnedFd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return system_error(kWhere, "open('" + file + "')", errno);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return nullptr;
      return system_error(kWhere, "flock('" + file + "')", errno);
    }
    lock_ = std::move(fd);
  }
  return open_zenoh({.mode = ZenohMode::router, .listen = {"unixsock-stream/" + path_}},
                    Deadline::now());
}

}  // namespace tendon::v0::detail
