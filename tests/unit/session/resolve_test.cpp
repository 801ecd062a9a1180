// SPDX-License-Identifier: Apache-2.0
#include "session/resolve.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/sanitizer.hpp"

namespace {

// A resolver that does not answer for "hang.test" until it is told to.
struct HangingResolver {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_hanging = false;

  void set(bool hanging) {
    const std::lock_guard lock(mutex);
    is_hanging = hanging;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !is_hanging; });
  }
};
HangingResolver& hanging_resolver() {
  static auto* instance = new HangingResolver;  // threads of the resolver may outlive statics
  return *instance;
}

// A resolver that works under a lock, as the C library's does.
constinit std::mutex resolver_mutex;
void work_under_the_lock() {
  const std::lock_guard lock(resolver_mutex);
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

// Replaces the function of libc for the library under test, which is linked into this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  if (std::string_view(node) == "hang.test" && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    hanging_resolver().wait();
    return EAI_FAIL;
  }
  if (std::string_view(node) == "lock.test" && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    work_under_the_lock();
    node = "localhost";
  }
  static const auto next =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return next(node, service, hints, result);
}

namespace {

using namespace std::chrono_literals;
using tendon::Address;
using tendon::Deadline;
using tendon::ErrorCode;
using tendon::detail::resolve;
using tendon::detail::ResolveFor;
using tendon::detail::SocketAddress;
using tendon::detail::unix_socket_address;
using tendon::test::exited_with;
using tendon::test::run_in_child;
using testing::HasSubstr;

Address address(std::string_view text) { return Address::parse(text).value(); }

TEST(Resolve, NumbersNeedNoTimeAndReadBack) {
  for (const std::string text : {"127.0.0.1:7000", "0.0.0.0:1", "[::1]:7000", "[::]:65535",
                                 "unix:/run/x", "unix:relative", "unix:@abstract"}) {
    const auto found = resolve(address(text), Deadline::now(), ResolveFor::connect);
    ASSERT_TRUE(found) << found.error().detail;
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ(found->front().to_string(), text);
  }
}

TEST(Resolve, FamiliesAndLoopback) {
  const auto one = [](std::string_view text) {
    return resolve(address(text), Deadline::now(), ResolveFor::bind).value().front();
  };
  EXPECT_EQ(one("127.0.0.1:0").family(), AF_INET);
  EXPECT_EQ(one("[::1]:0").family(), AF_INET6);
  EXPECT_EQ(one("unix:@x").family(), AF_UNIX);
  for (const char* text :
       {"127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "unix:/x"}) {
    EXPECT_TRUE(one(text).is_loopback()) << text;
  }
  for (const char* text : {"10.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::ffff:10.0.0.1]:0"}) {
    EXPECT_FALSE(one(text).is_loopback()) << text;
  }
  EXPECT_EQ(SocketAddress().to_string(), "?");
  EXPECT_FALSE(SocketAddress().is_loopback());
}

TEST(Resolve, NamesAreLookedUpWithinTheDeadline) {
  const auto found = resolve(address("localhost:7000"), 30s, ResolveFor::connect);
  ASSERT_TRUE(found) << found.error().detail;
  EXPECT_TRUE(std::all_of(found->begin(), found->end(),
                          [](const SocketAddress& one) { return one.is_loopback(); }));
  const auto forever = resolve(address("localhost:7000"), Deadline::never(), ResolveFor::bind);
  EXPECT_TRUE(forever);
}

TEST(Resolve, NamesWithoutTimeAreATimeout) {
  const auto found = resolve(address("localhost:7000"), Deadline::now(), ResolveFor::connect);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::timeout);
  EXPECT_THAT(found.error().detail, HasSubstr("'localhost'"));
}

TEST(Resolve, ChildrenOfAProcessThatLooksNamesUpLookThemUpToo) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  const auto look_up = [] {
    return resolve(address("lock.test:1"), 20s, ResolveFor::connect).has_value();
  };
  std::atomic<bool> over{false};
  std::array<std::thread, 2> busy;
  for (std::thread& one : busy) {
    one = std::thread([&] {
      while (!over) EXPECT_TRUE(look_up());
    });
  }
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const int status = run_in_child([&] { return look_up() ? 0 : 1; });
    EXPECT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
  over = true;
  for (std::thread& one : busy) one.join();
}

// Such a look-up waits for a server without a lock of the C library.
TEST(Resolve, AForkDoesNotWaitForAResolverThatHangs) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  hanging_resolver().set(true);
  EXPECT_FALSE(resolve(address("hang.test:1"), 1ms, ResolveFor::connect));
  const int status = run_in_child(
      [] { return resolve(address("localhost:1"), 20s, ResolveFor::connect) ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  hanging_resolver().set(false);
  EXPECT_TRUE(resolve(address("localhost:1"), 20s, ResolveFor::connect));
}

TEST(Resolve, AResolverThatHangsHoldsNobodyAndIsBounded) {
  hanging_resolver().set(true);
  // Threads of look-ups that earlier tests began may still be ending.
  int pending = 0;
  EXPECT_TRUE(tendon::test::eventually([&] {
    const auto found = resolve(address("hang.test:1"), 1ms, ResolveFor::connect);
    if (found || found.error().code == ErrorCode::resource_exhausted) return false;
    EXPECT_EQ(found.error().code, ErrorCode::timeout) << found.error().message();
    EXPECT_THAT(found.error().detail, HasSubstr("'hang.test'"));
    return ++pending == tendon::kMaxPendingLookups;
  }));
  const auto beyond = resolve(address("localhost:1"), 30s, ResolveFor::connect);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(beyond.error().detail, HasSubstr("16 look-ups"));
  EXPECT_TRUE(resolve(address("127.0.0.1:1"), Deadline::now(), ResolveFor::connect));

  hanging_resolver().set(false);
  for (;;) {
    const auto after = resolve(address("localhost:1"), 30s, ResolveFor::connect);
    if (after) break;
    ASSERT_EQ(after.error().code, ErrorCode::resource_exhausted) << after.error().message();
    std::this_thread::yield();
  }
}

TEST(Resolve, UnknownNamesSayWhy) {
  // RFC 6761: no resolver answers for .invalid.
  const auto found = resolve(address("nobody.invalid:7000"), 2s, ResolveFor::connect);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().detail, HasSubstr("'nobody.invalid'"));
  EXPECT_TRUE(found.error().code == ErrorCode::unreachable ||
              found.error().code == ErrorCode::timeout)
      << found.error().message();
}

TEST(Resolve, PortZeroIsForListenersOnly) {
  EXPECT_TRUE(resolve(address("127.0.0.1:0"), Deadline::now(), ResolveFor::bind));
  const auto found = resolve(address("127.0.0.1:0"), Deadline::now(), ResolveFor::connect);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(found.error().detail, HasSubstr("1-65535"));
}

TEST(Resolve, AnEmptyAddressIsRefused) {
  const auto found = resolve(Address(), 1s, ResolveFor::bind);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::invalid_argument);
}

TEST(UnixSocketAddress, LengthAtTheLimitAndOneBeyond) {
  for (const std::string start : {"/", "@"}) {
    const std::string path = start + std::string(tendon::kMaxUnixPathBytes - 1, 'p');
    const auto whole = unix_socket_address(path);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->to_string(), "unix:" + path);
    const auto beyond = unix_socket_address(path + "p");
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(beyond.error().detail, HasSubstr("108 bytes; legal are 1-107"));
  }
  EXPECT_FALSE(unix_socket_address(""));
}

}  // namespace
