// SPDX-License-Identifier: Apache-2.0
#include "session/socket_names.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;
using detail::kMostSweptNames;
using detail::OwnedFd;
using detail::random_nonce;
using detail::rendezvous_path;
using detail::sweep_leftovers;
using detail::take_file_lock;
using testing::IsEmpty;

class SocketNames : public testing::Test {
 protected:
  [[nodiscard]] std::string directory() const { return dir_.path().string(); }
  [[nodiscard]] std::string fresh_path() const {
    return rendezvous_path(directory(), random_nonce().value());
  }
  [[nodiscard]] std::string star(const std::string& suffix = ".zenoh") const {
    return directory() + "/0123456789abcdef" + suffix;
  }
  /// The file of a killed process: nobody listens there.
  static void leave_socket(const std::string& path) {
    ASSERT_EQ(mknod(path.c_str(), S_IFSOCK | 0600, 0), 0) << path;
  }
  static void leave_file(const std::string& path) { std::ofstream(path) << ""; }
  void leave_star(const std::string& suffix = ".zenoh") const {
    leave_socket(star(suffix));
    leave_file(star(suffix) + ".serves");
    leave_file(star(suffix) + ".lock");
  }
  static OwnedFd locked(const std::string& path) {
    OwnedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(flock(fd.get(), LOCK_EX | LOCK_NB), 0);
    return fd;
  }

  const ScratchDir dir_;
};

TEST_F(SocketNames, ASweepTakesOnlyWhatNobodyListensOn) {
  const std::string dead = fresh_path();
  leave_socket(dead);
  const std::string dead_node = fresh_path() + ".node";
  leave_socket(dead_node);
  const auto alive = detail::listen_at(fresh_path(), 0).value();
  const auto node = detail::listen_at(fresh_path() + ".node", 8).value();
  const std::string file = fresh_path();
  leave_file(file);
  const std::string other_name = directory() + "/service.sock";
  leave_socket(other_name);
  const std::string link = fresh_path();
  fs::create_symlink(other_name, link);

  const std::size_t names = dir_.names().size();
  EXPECT_EQ(sweep_leftovers(directory()).removed, 2u);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(dead_node));
  EXPECT_EQ(dir_.names().size(), names - 2);
  // The probe filled the backlog of the first living one, which still counts as alive.
  EXPECT_EQ(sweep_leftovers(directory()).removed, 0u);
  EXPECT_EQ(sweep_leftovers(directory() + "/missing").looked_at, 0u);
}

// A rendezvous takes one visitor, so a sweep that connected to it would keep the right one out.
TEST_F(SocketNames, ASweepConnectsToNobody) {
  const auto alive = detail::listen_at(fresh_path(), 1).value();
  const auto star_server = detail::listen_at(star(), 1).value();
  EXPECT_EQ(sweep_leftovers(directory()).removed, 0u);
  for (const auto* const listening : {&alive, &star_server}) {
    const OwnedFd visitor(
        accept4(listening->fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    EXPECT_FALSE(visitor);
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_F(SocketNames, AStarThatWasKilledGoesWithItsLocks) {
  for (const std::string suffix : {".zenoh", ".zenoh2"}) leave_star(suffix);
  leave_file(directory() + "/fedcba9876543210.zenoh.serves");  // killed before it listened
  EXPECT_EQ(sweep_leftovers(directory()).removed, 7u);
  EXPECT_THAT(dir_.names(), IsEmpty());
}

// Its process may be stopped, or not listen yet.
TEST_F(SocketNames, AStarWhoseLockIsTakenStays) {
  for (const std::string beside : {".serves", ".lock"}) {
    leave_star();
    const OwnedFd lock = locked(star() + beside);
    EXPECT_EQ(sweep_leftovers(directory()).removed, 0u) << beside;
    EXPECT_TRUE(fs::exists(star())) << beside;
    EXPECT_TRUE(fs::exists(star() + beside)) << beside;
    fs::remove(star());
  }
}

TEST_F(SocketNames, AStarWhereSomebodyAnswersStays) {
  const auto listening = detail::listen_at(star(), 8).value();
  leave_file(star() + ".serves");
  EXPECT_EQ(sweep_leftovers(directory()).removed, 0u);
  EXPECT_TRUE(fs::exists(star()));
}

TEST_F(SocketNames, ASweepLooksAtSoManyNames) {
  for (std::size_t i = 0; i < kMostSweptNames; ++i) leave_socket(fresh_path());
  const auto all = sweep_leftovers(directory());
  EXPECT_EQ(all.looked_at, kMostSweptNames);
  EXPECT_EQ(all.removed, kMostSweptNames);
  for (std::size_t i = 0; i < kMostSweptNames + 1; ++i) leave_socket(fresh_path());
  EXPECT_EQ(sweep_leftovers(directory()).removed, kMostSweptNames);
  EXPECT_EQ(dir_.names().size(), 1u) << "the next start takes it";
}

TEST_F(SocketNames, TenThousandLeftoversCostNoMoreThanAFew) {
  for (int i = 0; i < 10'000; ++i) leave_socket(fresh_path() + ".node");
  const auto swept = sweep_leftovers(directory());
  EXPECT_EQ(swept.looked_at, kMostSweptNames);
  EXPECT_EQ(swept.removed, kMostSweptNames);
}

TEST_F(SocketNames, ASocketThatDoesNotListenYetIsLeftAlone) {
  leave_socket(directory() + "/new-0123456789abcdef");
  const auto swept = sweep_leftovers(directory());
  EXPECT_EQ(swept.looked_at, 1u);
  EXPECT_EQ(swept.removed, 0u);
}

TEST_F(SocketNames, ANameTakesThePlaceOfALeftover) {
  const std::string path = fresh_path();
  leave_socket(path);
  const auto before = detail::file_id(path);
  const auto listening = detail::listen_at(path, 1).value();
  EXPECT_NE(detail::file_id(path), before);
  EXPECT_EQ(detail::file_id(path), listening.file);
  EXPECT_EQ(dir_.names().size(), 1u);
  const OwnedFd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = detail::unix_socket_address(path).value();
  EXPECT_EQ(connect(peer.get(), address.get(), address.length), 0);
  // Another socket may have the name by now.
  detail::remove_name(path, *before);
  EXPECT_TRUE(fs::exists(path));
  detail::remove_name(path, listening.file);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(SocketNames, WhatCannotListenLeavesNoName) {
  EXPECT_TRUE(fails_with(detail::listen_at(directory() + "/missing/name", 1),
                         ErrorCode::file_not_found, "missing/name"));
  const auto bound = detail::name_socket(fresh_path(), [](const std::string& unnamed) {
    leave_socket(unnamed);
    return Result<void>(Error{ErrorCode::busy, "test", "no"});
  });
  EXPECT_TRUE(fails_with(bound, ErrorCode::busy));
  EXPECT_THAT(dir_.names(), IsEmpty());
}

TEST_F(SocketNames, ALockIsThatOfTheFileThatOthersSee) {
  const std::string path = directory() + "/lock";
  auto first = take_file_lock(path).value();
  ASSERT_TRUE(first);
  EXPECT_FALSE(take_file_lock(path).value()) << "taken";
  fs::remove(path);
  EXPECT_TRUE(take_file_lock(path).value()) << "of another file";
  first.reset();
  EXPECT_TRUE(take_file_lock(path).value());
}

// Sweepers remove the file under its lock, while others have it open already.
TEST_F(SocketNames, ALockWhoseFileIsRemovedIsTakenAnew) {
  const std::string path = directory() + "/lock";
  std::atomic<int> stale = 0;
  const auto take_and_remove = [&] {
    for (int i = 0; i < 5000; ++i) {
      const auto lock = take_file_lock(path).value();
      if (!lock) continue;
      if (detail::file_id(path) != detail::file_id(lock->get())) ++stale;
      ::unlink(path.c_str());
    }
  };
  std::thread other(take_and_remove);
  take_and_remove();
  other.join();
  EXPECT_EQ(stale, 0);
}

// It sweeps once for each directory that the environment names.
TEST_F(SocketNames, AProcessSweepsAtItsStart) {
  const char* const former = getenv("TENDON_RUNTIME_DIR");
  const std::optional<std::string> kept =
      former ? std::optional<std::string>(former) : std::nullopt;
  const std::string own = directory() + "/own";
  setenv("TENDON_RUNTIME_DIR", own.c_str(), 1);
  detail::sweep_leftovers_at_start();
  EXPECT_FALSE(fs::exists(own)) << "it makes none";
  const std::string next = directory() + "/next";
  setenv("TENDON_RUNTIME_DIR", next.c_str(), 1);
  ASSERT_EQ(mkdir(next.c_str(), 0700), 0);
  leave_socket(next + "/0123456789abcdef0123456789abcdef");
  detail::sweep_leftovers_at_start();
  EXPECT_TRUE(fs::is_empty(next));
  leave_socket(next + "/0123456789abcdef0123456789abcdef");
  detail::sweep_leftovers_at_start();
  EXPECT_FALSE(fs::is_empty(next));
  // Nothing is removed from a directory that others could have filled.
  const std::string open_one = directory() + "/open";
  setenv("TENDON_RUNTIME_DIR", open_one.c_str(), 1);
  ASSERT_EQ(mkdir(open_one.c_str(), 0700), 0);
  ASSERT_EQ(chmod(open_one.c_str(), 0777), 0);
  leave_socket(open_one + "/0123456789abcdef0123456789abcdef");
  detail::sweep_leftovers_at_start();
  EXPECT_FALSE(fs::is_empty(open_one));
  if (kept)
    setenv("TENDON_RUNTIME_DIR", kept->c_str(), 1);
  else
    unsetenv("TENDON_RUNTIME_DIR");
}

}  // namespace
}  // namespace tendon::test
