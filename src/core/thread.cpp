// SPDX-License-Identifier: Apache-2.0
#include "core/thread.hpp"

#include <cerrno>
#include <string>

#include "core/failpoint.hpp"
#include "core/fork_guard.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {

Error no_thread(const ThreadRole& role, int errno_value) {
  Error error{ErrorCode::resource_exhausted, role.where,
              "no thread can start " + std::string(role.task) + ": " + errno_text(errno_value) +
                  " (this process has as many threads as it may, or no memory for the stack of "
                  "one: raise `ulimit -u`, or the limit on pids of its container or service)"};
  error.system_errno = errno_value;
  return error;
}

Result<Thread> Thread::start(const ThreadRole& role, std::unique_ptr<Body> body) {
  body->name = role.name;
  Thread started;
  const int failure = TENDON_FAILPOINT("thread.start")
                          ? EAGAIN
                          : pthread_create(&started.thread_, nullptr, &Thread::run, body.get());
  if (failure != 0) return no_thread(role, failure);
  (void)body.release();  // NOLINT(bugprone-unused-return-value): run() has it
  started.process_ = process_number();
  return started;
}

// An exception that leaves the body ends the process, as with std::thread.
void* Thread::run(void* body) noexcept {
  const std::unique_ptr<Body> own(static_cast<Body*>(body));
  (void)pthread_setname_np(pthread_self(), own->name);
  own->run();
  return nullptr;
}

bool Thread::joinable() const noexcept { return process_ != 0 && process_ == process_number(); }

bool Thread::is_current() const noexcept {
  return joinable() && pthread_equal(thread_, pthread_self()) != 0;
}

void Thread::join() noexcept {
  if (is_current()) return detach();
  if (joinable()) (void)pthread_join(thread_, nullptr);
  process_ = 0;
}

void Thread::detach() noexcept {
  if (joinable()) (void)pthread_detach(thread_);
  process_ = 0;
}

}  // namespace tendon::v0::detail
