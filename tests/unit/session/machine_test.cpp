// SPDX-License-Identifier: Apache-2.0
#include "session/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <tendon/session/limits.hpp>

#include "core/fd.hpp"
#include "session/resolve.hpp"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using tendon::ErrorCode;
using tendon::detail::find_rendezvous;
using tendon::detail::is_none;
using tendon::detail::Nonce128;
using tendon::detail::OwnedFd;
using tendon::detail::random_nonce;
using tendon::detail::rendezvous_path;
using tendon::detail::runtime_directory;
using tendon::detail::sweep_stale_sockets;
using testing::HasSubstr;

TEST(Machine, TokensDiffer) {
  std::set<Nonce128> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(random_nonce().value());
  EXPECT_EQ(tokens.size(), 100u);
  EXPECT_FALSE(tokens.contains(Nonce128{}));
}

TEST(Machine, HexIsLowerCaseTwoDigitsAByte) {
  const std::array<std::byte, 3> bytes = {std::byte{0x00}, std::byte{0x9F}, std::byte{0xAB}};
  EXPECT_EQ(tendon::detail::to_hex(bytes), "009fab");
}

TEST(Machine, BootIdIsTheKernels) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  if (!(file >> text)) {
    EXPECT_TRUE(is_none(tendon::detail::boot_id()));
    return;
  }
  std::erase(text, '-');
  EXPECT_EQ(tendon::detail::to_hex(tendon::detail::boot_id()), text);
}

TEST(Machine, FactsOfThisProcess) {
  EXPECT_EQ(tendon::detail::process_id(), getpid());
  EXPECT_EQ(tendon::detail::user_id(), geteuid());
  EXPECT_FALSE(tendon::detail::host_name().empty());
  EXPECT_LE(tendon::detail::host_name().size(), tendon::kMaxIdentityTextBytes);
}

// A private XDG_RUNTIME_DIR for each test, put back afterwards.
class RuntimeDirectory : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("XDG_RUNTIME_DIR")) former_ = value;
    std::string pattern = (fs::temp_directory_path() / "tendon-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  }
  void TearDown() override {
    if (former_) {
      setenv("XDG_RUNTIME_DIR", former_->c_str(), 1);
    } else {
      unsetenv("XDG_RUNTIME_DIR");
    }
    std::error_code ignored;
    fs::remove_all(base_, ignored);
  }
  std::string ours() const { return base_ + "/tendon"; }
  static std::string fallback() { return "/tmp/tendon-" + std::to_string(geteuid()); }

  std::string base_;
  std::optional<std::string> former_;
};

OwnedFd bound_socket(const std::string& path) {
  OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = tendon::detail::unix_socket_address(path).value();
  EXPECT_EQ(bind(fd.get(), address.get(), address.length), 0);
  return fd;
}

TEST_F(RuntimeDirectory, IsMadePrivate) {
  EXPECT_EQ(runtime_directory().value(), ours());
  struct stat facts {};
  ASSERT_EQ(lstat(ours().c_str(), &facts), 0);
  EXPECT_TRUE(S_ISDIR(facts.st_mode));
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  EXPECT_EQ(runtime_directory().value(), ours()) << "a second time it is there already";
}

TEST_F(RuntimeDirectory, SymbolicLinkIsRefused) {
  fs::create_directory(base_ + "/elsewhere");
  fs::permissions(base_ + "/elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(base_ + "/elsewhere", ours());
  const auto found = runtime_directory();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(found.error().detail, HasSubstr(ours()));
  EXPECT_THAT(found.error().detail, HasSubstr("symbolic link"));
}

TEST_F(RuntimeDirectory, OpenToOthersIsRefused) {
  ASSERT_EQ(mkdir(ours().c_str(), 0700), 0);
  for (const auto mode : {0710u, 0701u, 0770u, 01700u}) {
    ASSERT_EQ(chmod(ours().c_str(), mode), 0);
    const auto found = runtime_directory();
    ASSERT_FALSE(found) << std::oct << mode;
    EXPECT_EQ(found.error().code, ErrorCode::permission_denied);
    EXPECT_THAT(found.error().detail, HasSubstr("0700"));
  }
  ASSERT_EQ(chmod(ours().c_str(), 0700), 0);
  EXPECT_TRUE(runtime_directory());
}

TEST_F(RuntimeDirectory, AFileIsRefused) {
  std::ofstream(ours()) << "x";
  const auto found = runtime_directory();
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().detail, HasSubstr("no directory"));
}

TEST_F(RuntimeDirectory, SomebodyElsesIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(mkdir(ours().c_str(), 0700), 0);
  ASSERT_EQ(chown(ours().c_str(), 12345, 12345), 0);
  const auto found = runtime_directory();
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().detail, HasSubstr("belongs to uid 12345"));
  // A base of another user is what sudo leaves in the environment: it is not used at all.
  ASSERT_EQ(chown(base_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(runtime_directory().value(), fallback());
}

TEST_F(RuntimeDirectory, FallsBackToTmp) {
  setenv("XDG_RUNTIME_DIR", (base_ + "/missing").c_str(), 1);
  EXPECT_EQ(runtime_directory().value(), fallback());
  setenv("XDG_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(runtime_directory().value(), fallback());
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(runtime_directory().value(), fallback());
}

TEST_F(RuntimeDirectory, TooLongForASocketFallsBack) {
  // "/tendon", "/" and 32 digits must fit behind it.
  const std::size_t longest = tendon::kMaxUnixPathBytes - 33 - 7;
  const std::string fits = base_ + "/" + std::string(longest - base_.size() - 1, 'd');
  ASSERT_TRUE(fs::create_directory(fits));
  setenv("XDG_RUNTIME_DIR", fits.c_str(), 1);
  EXPECT_EQ(runtime_directory().value(), fits + "/tendon");
  ASSERT_TRUE(fs::create_directory(fits + "d"));
  setenv("XDG_RUNTIME_DIR", (fits + "d").c_str(), 1);
  EXPECT_EQ(runtime_directory().value(), fallback());
}

TEST_F(RuntimeDirectory, PeersFindEachOtherWithAndWithoutTheVariable) {
  const Nonce128 token = random_nonce().value();
  const auto missing = find_rendezvous(token);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().detail, HasSubstr(fallback()));

  unsetenv("XDG_RUNTIME_DIR");
  const std::string path = rendezvous_path(runtime_directory().value(), token);
  const OwnedFd socket = bound_socket(path);
  setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  EXPECT_EQ(find_rendezvous(token).value(), path);
  unlink(path.c_str());
}

TEST_F(RuntimeDirectory, OnlyASocketIsARendezvous) {
  const Nonce128 token = random_nonce().value();
  const std::string path = rendezvous_path(runtime_directory().value(), token);
  std::ofstream(path) << "x";
  EXPECT_FALSE(find_rendezvous(token));
  fs::remove(path);
  const OwnedFd socket = bound_socket(path);
  EXPECT_EQ(find_rendezvous(token).value(), path);
  // In a directory that others can enter anybody could have put it there.
  ASSERT_EQ(chmod(ours().c_str(), 0777), 0);
  EXPECT_FALSE(find_rendezvous(token));
}

TEST_F(RuntimeDirectory, SweepTakesOnlyWhatNobodyListensOn) {
  const std::string directory = runtime_directory().value();
  const auto fresh_path = [&] { return rendezvous_path(directory, random_nonce().value()); };
  const std::string dead = fresh_path();
  { const OwnedFd closed = bound_socket(dead); }
  const std::string alive = fresh_path();
  const OwnedFd listener = bound_socket(alive);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const std::string file = fresh_path();
  std::ofstream(file) << "x";
  const std::string other_name = directory + "/service.sock";
  { const OwnedFd closed = bound_socket(other_name); }
  const std::string link = fresh_path();
  fs::create_symlink(other_name, link);

  EXPECT_EQ(sweep_stale_sockets(directory, 3600s), 0u) << "all are younger than that";
  EXPECT_TRUE(fs::exists(dead));
  EXPECT_EQ(sweep_stale_sockets(directory, 0s), 1u);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(fs::exists(other_name));
  EXPECT_TRUE(fs::is_symlink(link));
  // The probe filled the backlog of the living one: it still counts as alive.
  EXPECT_EQ(sweep_stale_sockets(directory, 0s), 0u);
  EXPECT_EQ(sweep_stale_sockets(directory + "/missing", 0s), 0u);
}

}  // namespace
