// SPDX-License-Identifier: Apache-2.0
#include "process/few_threads.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <memory>

#include "support/child.hpp"
#include "support/sanitizer.hpp"
#include "support/scratch_dir.hpp"

namespace {

constexpr int kNoLimit = 1 << 20;
/// How many threads may start now in the whole process. A thread that ends makes room.
std::atomic<int> room{kNoLimit};

}  // namespace

#if !TENDON_SANITIZED
namespace {

struct Start {
  void* (*run)(void*);
  void* argument;
};

void* run_and_make_room(void* start) {
  const std::unique_ptr<Start> own(static_cast<Start*>(start));
  void* const result = own->run(own->argument);
  ++room;
  return result;
}

}  // namespace

// Replaces the system's function for all libraries of this process.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (--room < 0) {
    ++room;
    return EAGAIN;
  }
  auto* const start = new Start{run, argument};
  const int failure = create(thread, attributes, run_and_make_room, start);
  if (failure == 0) return 0;
  ++room;
  delete start;
  return failure;
}
#endif

namespace tendon::test {
namespace {

enum Outcome : int { made, refused, another_error, not_undone };

bool is_typed(const Error& error) {
  return (error.code == ErrorCode::resource_exhausted || error.code == ErrorCode::server_busy) &&
         error.detail.find("thread") != std::string::npos;
}

/// Runs in a child, because the first object of a process makes more threads than the next.
int try_in_room_of(const Maker& maker, int threads) {
  return run_in_child([&] {
    room = threads;
    const auto first = maker.make();
    room = kNoLimit;
    if (!first && !is_typed(first.error())) {
      std::fprintf(stderr, "room %d: %s\n", threads, first.error().message().c_str());
      return another_error;
    }
    const auto second = maker.afterwards ? maker.afterwards() : maker.make();
    if (second) return first ? made : refused;
    std::fprintf(stderr, "room %d, afterwards: %s\n", threads, second.error().message().c_str());
    return not_undone;
  });
}

}  // namespace

void expect_whole_or_error(const Maker& maker) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "sanitizers start threads by themselves";
  const ScratchDir directory;
  ASSERT_EQ(setenv("TENDON_RUNTIME_DIR", directory.path().c_str(), 1), 0);
  for (int threads = 0; threads <= maker.enough; ++threads) {
    const int status = try_in_room_of(maker, threads);
    ASSERT_TRUE(exited_with(status, made) || exited_with(status, refused))
        << "room for " << threads << " threads: status " << status;
    ASSERT_TRUE(threads != 0 || exited_with(status, refused)) << "it needs no thread";
    ASSERT_TRUE(threads != maker.enough || exited_with(status, made))
        << "it needs more than " << threads << " threads";
  }
  unsetenv("TENDON_RUNTIME_DIR");
}

}  // namespace tendon::test
