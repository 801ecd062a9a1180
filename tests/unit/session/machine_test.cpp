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
using tendon::ErrorCode;
using tendon::detail::find_rendezvous;
using tendon::detail::is_none;
using tendon::detail::Nonce128;
using tendon::detail::OwnedFd;
using tendon::detail::random_nonce;
using tendon::detail::rendezvous_path;
using tendon::detail::runtime_directory;
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

// A private TENDON_RUNTIME_DIR for each test, restored afterwards.
class RuntimeDirectory : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("TENDON_RUNTIME_DIR")) former_ = value;
    std::string pattern = (fs::temp_directory_path() / "tendon-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    ask_for(ours());
  }
  void TearDown() override {
    if (former_) {
      ask_for(*former_);
    } else {
      unsetenv("TENDON_RUNTIME_DIR");
    }
    std::error_code ignored;
    fs::remove_all(base_, ignored);
  }
  static void ask_for(const std::string& directory) {
    setenv("TENDON_RUNTIME_DIR", directory.c_str(), 1);
  }
  std::string ours() const { return base_ + "/own"; }

  std::string base_;
  std::optional<std::string> former_;
};

// The directories of a user without TENDON_RUNTIME_DIR, who exists in no other test.
class DefaultDirectory : public RuntimeDirectory {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to become a user without files";
    RuntimeDirectory::SetUp();
    uid_ = static_cast<uid_t>(57000 + getpid() % 4000);
    user_base_ = "/run/user/" + std::to_string(uid_);
    in_tmp_ = "/tmp/tendon-" + std::to_string(uid_);
    ASSERT_FALSE(fs::exists(user_base_)) << "somebody has that uid";
    ASSERT_FALSE(fs::exists(in_tmp_)) << "somebody has that uid";
    unsetenv("TENDON_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);  // which has no effect
    ASSERT_EQ(seteuid(uid_), 0);
  }
  void TearDown() override {
    if (in_tmp_.empty()) return;
    ASSERT_EQ(seteuid(0), 0);
    unsetenv("XDG_RUNTIME_DIR");
    std::error_code ignored;
    fs::remove_all(user_base_, ignored);
    fs::remove_all(in_tmp_, ignored);
    RuntimeDirectory::TearDown();
  }
  /// Does what a login does.
  void make_user_base(uid_t owner) const {
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_TRUE(fs::create_directories(user_base_));
    ASSERT_EQ(chown(user_base_.c_str(), owner, owner), 0);
    ASSERT_EQ(seteuid(uid_), 0);
  }

  uid_t uid_ = 0;
  std::string user_base_;
  std::string in_tmp_;
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
}

// Nothing replaces the requested directory.
TEST_F(RuntimeDirectory, WhatCannotBeHadIsAnErrorThatNamesTheVariable) {
  const auto refused = [](const std::string& value, ErrorCode code, std::string_view reason) {
    ask_for(value);
    for (const auto& found : {runtime_directory(), find_rendezvous(random_nonce().value())}) {
      ASSERT_FALSE(found) << value;
      EXPECT_EQ(found.error().code, code) << found.error().detail;
      EXPECT_THAT(found.error().detail, HasSubstr("TENDON_RUNTIME_DIR"));
      EXPECT_THAT(found.error().detail, HasSubstr(value));
      EXPECT_THAT(found.error().detail, HasSubstr(reason));
    }
  };
  refused("relative", ErrorCode::invalid_argument, "absolute");
  refused(base_ + "/missing/own", ErrorCode::file_not_found, "mkdir");
  std::ofstream(base_ + "/file") << "x";
  refused(base_ + "/file", ErrorCode::permission_denied, "no directory");
  fs::create_directory_symlink(base_, base_ + "/link");
  refused(base_ + "/link", ErrorCode::permission_denied, "symbolic link");
}

TEST_F(RuntimeDirectory, ASlashAtTheEndHidesNoLink) {
  ask_for(ours() + "//");
  EXPECT_EQ(runtime_directory().value(), ours());
  fs::create_directory_symlink(ours(), base_ + "/link");
  ask_for(base_ + "/link/");
  ASSERT_FALSE(runtime_directory());
  EXPECT_THAT(runtime_directory().error().detail, HasSubstr("symbolic link"));
}

TEST_F(RuntimeDirectory, AnEmptyVariableIsUnset) {
  unsetenv("TENDON_RUNTIME_DIR");
  const std::string by_default = runtime_directory().value();
  ask_for("");
  EXPECT_EQ(runtime_directory().value(), by_default);
  EXPECT_FALSE(tendon::detail::runtime_directory_is_asked_for());
}

TEST_F(RuntimeDirectory, NamesOfSocketsFitBehindIt) {
  // "/", 32 digits and ".node" follow.
  const std::size_t longest = tendon::kMaxUnixPathBytes - 1 - 37;
  const std::string fits = base_ + "/" + std::string(longest - base_.size() - 1, 'd');
  ask_for(fits);
  EXPECT_EQ(runtime_directory().value(), fits);
  ask_for(fits + "d");
  ASSERT_FALSE(runtime_directory());
  EXPECT_EQ(runtime_directory().error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(runtime_directory().error().detail, HasSubstr("legal are 1-69"));
}

TEST_F(RuntimeDirectory, PeersFindEachOtherWithAndWithoutTheVariable) {
  const Nonce128 token = random_nonce().value();
  unsetenv("TENDON_RUNTIME_DIR");
  const std::string path = rendezvous_path(runtime_directory().value(), token);
  ask_for(ours());
  const auto missing = find_rendezvous(token);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  for (const std::string& searched : {ours(), "/run/user/" + std::to_string(geteuid()) + "/tendon",
                                      "/tmp/tendon-" + std::to_string(geteuid())})
    EXPECT_THAT(missing.error().detail, HasSubstr(searched));

  const OwnedFd socket = bound_socket(path);
  EXPECT_EQ(find_rendezvous(token).value(), path);
  unlink(path.c_str());
}

TEST_F(DefaultDirectory, LiesWhereTheLoginHasMadeAPlace) {
  EXPECT_EQ(runtime_directory().value(), in_tmp_);
  make_user_base(uid_);
  EXPECT_EQ(runtime_directory().value(), user_base_ + "/tendon");
  struct stat facts {};
  ASSERT_EQ(lstat((user_base_ + "/tendon").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
  // A process that was started before the login is found as well.
  const Nonce128 token = random_nonce().value();
  const std::string path = rendezvous_path(in_tmp_, token);
  const OwnedFd socket = bound_socket(path);
  EXPECT_EQ(find_rendezvous(token).value(), path);
}

TEST_F(DefaultDirectory, APlaceOfAnotherUserIsNoPlace) {
  make_user_base(0);
  EXPECT_EQ(runtime_directory().value(), in_tmp_);
}

// A directory without the right to write stands for a full or read-only one.
TEST_F(DefaultDirectory, APlaceThatTakesNothingIsReplacedByTmp) {
  make_user_base(uid_);
  ASSERT_EQ(chmod(user_base_.c_str(), 0500), 0);
  EXPECT_EQ(runtime_directory().value(), in_tmp_);
}

TEST_F(DefaultDirectory, AnUnsafeOneIsNotReplaced) {
  make_user_base(uid_);
  const std::string directory = user_base_ + "/tendon";
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  ASSERT_EQ(chmod(directory.c_str(), 0770), 0);
  ASSERT_FALSE(runtime_directory());
  EXPECT_THAT(runtime_directory().error().detail, HasSubstr(directory));
}

TEST_F(RuntimeDirectory, OnlyASocketIsARendezvous) {
  const Nonce128 token = random_nonce().value();
  const std::string path = rendezvous_path(runtime_directory().value(), token);
  std::ofstream(path) << "x";
  EXPECT_FALSE(find_rendezvous(token));
  fs::remove(path);
  const OwnedFd socket = bound_socket(path);
  EXPECT_EQ(find_rendezvous(token).value(), path);
  // In a directory that others can enter, anybody could have put it there.
  ASSERT_EQ(chmod(ours().c_str(), 0777), 0);
  EXPECT_FALSE(find_rendezvous(token));
}

TEST_F(RuntimeDirectory, ErrorsSayWhatToMend) {
  ASSERT_EQ(mkdir(ours().c_str(), 0700), 0);
  ASSERT_EQ(chmod(ours().c_str(), 0755), 0);
  EXPECT_THAT(runtime_directory().error().detail, HasSubstr("mend it, or set TENDON_RUNTIME_DIR"));
  ask_for(base_ + "/missing/own");
  EXPECT_THAT(runtime_directory().error().detail, HasSubstr("make those before it"));
  ask_for("/sys/tendon");  // where no directory can be made
  ASSERT_FALSE(runtime_directory());
  EXPECT_THAT(runtime_directory().error().detail,
              HasSubstr("set TENDON_RUNTIME_DIR to a directory that uid"));
}

// Repeated looks do not follow changes that the program makes to its environment meanwhile.
TEST_F(RuntimeDirectory, IsToldForWhatWasAsked) {
  const std::string asked = tendon::detail::asked_runtime_directory();
  EXPECT_EQ(asked, ours());
  ask_for(base_ + "/later");
  EXPECT_EQ(runtime_directory(asked).value(), ours());
  EXPECT_EQ(runtime_directory().value(), base_ + "/later");
}

}  // namespace
