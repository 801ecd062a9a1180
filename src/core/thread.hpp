// SPDX-License-Identifier: Apache-2.0
// The only place where threads of the library and of the command start. A system that allows no
// further thread is therefore an error everywhere and nowhere an exception.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::v0::detail {

struct ThreadRole {
  const char* name;        ///< shown by debuggers and `top -H`: at most 15 bytes
  std::string_view where;  ///< of the error
  std::string_view task;   ///< "that serves the context"
};

/// The error of a thread that cannot start, in these words everywhere.
[[nodiscard]] TENDON_API Error no_thread(const ThreadRole& role, int errno_value);

/// A thread, as std::thread with these differences: a failed start is no exception; the end of its
/// object waits for it; and in a forked child, which does not have the thread, its object is as one
/// that was never started.
///
/// Owns:    the thread.
/// Threads: one at a time; joinable() and is_current() any, once it is started.
/// Errors:  resource_exhausted if the system allows no further thread.
/// Blocks:  join() and the destructor, until the thread has returned.
/// Cost:    an allocation and the work of the system.
class TENDON_API Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept { take(other); }
  Thread& operator=(Thread&& other) noexcept {
    if (this != &other) {
      join();
      take(other);
    }
    return *this;
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() { join(); }

  /// `body` is called once, in the thread, or destroyed here if none can start.
  template <class F>
  [[nodiscard]] static Result<Thread> start(const ThreadRole& role, F body) {
    return start(role, std::unique_ptr<Body>(new BodyOf<F>(std::move(body))));
  }

  [[nodiscard]] bool joinable() const noexcept;
  [[nodiscard]] bool is_current() const noexcept;
  /// Joins the thread. A thread does not wait for itself: called in it, this is detach().
  void join() noexcept;
  /// Lets it continue alone.
  void detach() noexcept;

 private:
  class Body {
   public:
    Body() = default;
    Body(const Body&) = delete;
    Body& operator=(const Body&) = delete;
    virtual ~Body() = default;
    virtual void run() = 0;
    const char* name = "";
  };
  template <class F>
  class BodyOf final : public Body {
   public:
    explicit BodyOf(F function) : function_(std::move(function)) {}
    void run() override { function_(); }

   private:
    F function_;
  };

  [[nodiscard]] static Result<Thread> start(const ThreadRole& role, std::unique_ptr<Body> body);
  static void* run(void* body) noexcept;
  void take(Thread& other) noexcept {
    thread_ = other.thread_;
    process_ = std::exchange(other.process_, 0);
  }

  pthread_t thread_{};
  std::uint32_t process_ = 0;  // of the process that has the thread; 0: there is none
};

}  // namespace tendon::v0::detail
