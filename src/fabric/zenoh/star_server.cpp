// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/star_server.hpp"

#include <span>
#include <tendon/core/error.hpp>
#include <tendon/observe/log.hpp>
#include <utility>

#include "fabric/zenoh/endpoint_look.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "session/holder.hpp"
#include "session/socket_names.hpp"

namespace tendon::v0::detail {
namespace {

std::string endpoint_of(const std::string& path) { return "unixsock-stream/" + path; }

/// No descriptor: another process has the lock.
Result<OwnedFd> lock_of(const std::string& place) {
  TENDON_TRY(lock, take_file_lock(place + ".serves"));
  return lock ? *std::move(lock) : OwnedFd();
}

}  // namespace

std::vector<std::string> StarPlaces::endpoints() const {
  return {endpoint_of(second), endpoint_of(first)};
}

// The first try is over when it returns: a client finds the place served.
Result<std::shared_ptr<StarServer>> StarServer::start(StarPlaces places) {
  auto server = std::make_shared<StarServer>(std::move(places));
  const auto pause = server->serve();
  TENDON_TRY(thread,
             Thread::start({.name = "tendon-star",
                            .where = "fabric.star",
                            .task = "that serves the place where the nodes of this host meet"},
                           [self = server.get(), pause] { self->work(pause); }));
  server->thread_ = std::move(thread);
  return server;
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
    const State seen = client.state() == SessionState::up ? State::idle : State::wanted;
    if (seen == State::wanted && state_ == State::idle) wanted_since_ = Deadline::Clock::now();
    state_ = seen;
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
  first_lock_.reset();
  second_lock_.reset();
}

// Returns the pause before the next try, if this one has failed.
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

// Null: another process has the lock, and may well answer.
Result<std::unique_ptr<ZenohPort>> StarServer::try_to_serve() {
  if (!first_lock_) {
    TENDON_TRY(lock, lock_of(places_.first));
    first_lock_ = std::move(lock);
  }
  if (!first_lock_) {
    if (is_silent()) return try_to_serve_second();
    return nullptr;
  }
  second_lock_.reset();
  return open_zenoh(
      {.mode = ZenohMode::router, .listen = {endpoint_of(places_.first)}, .lease = kLease},
      Deadline::now());
}

bool StarServer::is_silent() {
  const Lock lock(mutex_);
  return Deadline::Clock::now() - wanted_since_ >= kSilent;
}

Result<std::unique_ptr<ZenohPort>> StarServer::try_to_serve_second() {
  if (!second_lock_) {
    TENDON_TRY(lock, lock_of(places_.second));
    second_lock_ = std::move(lock);
  }
  if (!second_lock_) return nullptr;
  const std::string first = endpoint_of(places_.first);
  const EndpointLook look = look_at_endpoints(std::span(&first, 1), kRetry)[0];
  if (look.state != EndpointLook::State::taken) {
    // Its process has just started, or is about to end.
    second_lock_.reset();
    return nullptr;
  }
  // A connection that waits in the socket of a stopped process is answered as soon as it resumes.
  auto session = open_zenoh({.mode = ZenohMode::router,
                             .connect = {first},
                             .listen = {endpoint_of(places_.second)},
                             .lease = kLease,
                             .last_retry = kLastRetry},
                            Deadline::now());
  if (session) {
    log(LogLevel::warn, "node.discovery",
        (look.holder ? process_text(*look.holder) : "the process") + " that serves " +
            places_.first + " answers nobody: nodes meet at " + places_.second + " until it does");
  }
  return session;
}

}  // namespace tendon::v0::detail
