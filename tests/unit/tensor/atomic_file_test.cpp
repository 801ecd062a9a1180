// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon {
namespace {

using test::fails_with;
using test::ScratchDir;
using test::succeeds;

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(AtomicFile, AppearsWholeAtCommitOnly) {
  const ScratchDir dir;
  const auto path = dir.path() / "file";
  AtomicFile file = AtomicFile::create(path).value();
  ASSERT_TRUE(succeeds(file.write(as_bytes("hello "))));
  const std::vector<Bytes> pieces = {as_bytes("w"), as_bytes(""), as_bytes("orld")};
  ASSERT_TRUE(succeeds(file.write(pieces)));
  EXPECT_EQ(file.written_bytes(), 11u);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(succeeds(file.commit()));
  EXPECT_EQ(contents(path), "hello world");
  EXPECT_EQ(dir.names(), std::vector<std::string>({"file"}));
  EXPECT_TRUE(fails_with(file.commit(), ErrorCode::invalid_argument, "before"));
}

TEST(AtomicFile, DroppedItLeavesNothing) {
  const ScratchDir dir;
  {
    AtomicFile file = AtomicFile::create(dir.path() / "file").value();
    ASSERT_TRUE(succeeds(file.write(as_bytes("half"))));
  }
  EXPECT_TRUE(dir.names().empty());
}

TEST(AtomicFile, KilledItLeavesNothing) {
  const ScratchDir dir;
  const int status = test::run_in_child([&]() -> int {
    AtomicFile file = AtomicFile::create(dir.path() / "file").value();
    static_cast<void>(file.write(as_bytes("half")));
    raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(dir.names().empty());
}

TEST(AtomicFile, ReplacesWhatWasThere) {
  const ScratchDir dir;
  const auto path = dir.path() / "file";
  for (const char* text : {"first", "second"}) {
    AtomicFile file = AtomicFile::create(path).value();
    ASSERT_TRUE(succeeds(file.write(as_bytes(text))));
    ASSERT_TRUE(succeeds(file.commit()));
    EXPECT_EQ(contents(path), text);
    EXPECT_EQ(dir.names().size(), 1u);
  }
}

TEST(AtomicFile, KeepsWhatExistsWhenToldTo) {
  const ScratchDir dir;
  const auto path = dir.path() / "file";
  AtomicFile first = AtomicFile::create(path, ExistingFile::keep).value();
  AtomicFile second = AtomicFile::create(path, ExistingFile::keep).value();
  ASSERT_TRUE(succeeds(second.write(as_bytes("second"))));
  ASSERT_TRUE(succeeds(second.commit()));
  const auto refused = first.commit();
  ASSERT_TRUE(fails_with(refused, ErrorCode::permission_denied, "exists"));
  EXPECT_EQ(refused.error().system_errno, EEXIST);
  EXPECT_TRUE(fails_with(AtomicFile::create(path, ExistingFile::keep), ErrorCode::permission_denied,
                         "exists"));
  EXPECT_EQ(contents(path), "second");

  const auto link = dir.path() / "link";
  AtomicFile third = AtomicFile::create(link, ExistingFile::keep).value();
  std::filesystem::create_symlink(dir.path() / "nowhere", link);
  EXPECT_TRUE(fails_with(third.commit(), ErrorCode::permission_denied, "exists"));
  EXPECT_TRUE(fails_with(AtomicFile::create(link, ExistingFile::keep), ErrorCode::permission_denied,
                         "exists"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

// Before commit, the directory may be renamed and another one may take its name.
TEST(AtomicFile, StaysInItsDirectory) {
  const ScratchDir dir;
  const auto before = dir.path() / "before";
  const auto after = dir.path() / "after";
  std::filesystem::create_directory(before);
  for (const char* text : {"first", "second"}) {
    AtomicFile file = AtomicFile::create(before / "file").value();
    ASSERT_TRUE(succeeds(file.write(as_bytes(text))));
    std::filesystem::rename(before, after);
    std::filesystem::create_directory(before);
    ASSERT_TRUE(succeeds(file.commit()));
    EXPECT_EQ(contents(after / "file"), text);
    EXPECT_TRUE(std::filesystem::is_empty(before));
    std::filesystem::remove(before);
    std::filesystem::rename(after, before);
  }
}

// In another container a process may have the pid of the killed one.
TEST(AtomicFile, HiddenFilesOfTheDeadAreInNobodysWay) {
  const ScratchDir dir;
  for (int count = 1; count < 1000; ++count) {
    std::ofstream(dir.path() /
                  (".file.tendon-" + std::to_string(getpid()) + "-" + std::to_string(count)));
  }
  std::ofstream(dir.path() / "file") << "old";
  AtomicFile file = AtomicFile::create(dir.path() / "file").value();
  ASSERT_TRUE(succeeds(file.write(as_bytes("new"))));
  ASSERT_TRUE(succeeds(file.commit()));
  EXPECT_EQ(contents(dir.path() / "file"), "new");
}

TEST(AtomicFile, KeepsToTheUmask) {
  const ScratchDir dir;
  const mode_t before = umask(027);
  AtomicFile file = AtomicFile::create(dir.path() / "file").value();
  umask(before);
  ASSERT_TRUE(succeeds(file.commit()));
  struct stat status {};
  ASSERT_EQ(stat((dir.path() / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, IsForItsOwnerAloneWhereThatIsAsked) {
  const ScratchDir dir;
  const auto path = dir.path() / "file";
  // The old file may be readable by all.
  std::ofstream(path) << "old";
  const mode_t before = umask(0);
  AtomicFile file =
      AtomicFile::create(path, ExistingFile::replace, FileReaders::owner_only).value();
  umask(before);
  ASSERT_TRUE(succeeds(file.commit()));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST(AtomicFile, IsReadByEverybodyAndWrittenByItsOwnerWhereThatIsAsked) {
  const ScratchDir dir;
  const auto path = dir.path() / "file";
  for (const auto& [mask, mode] : {std::pair{0u, 0644u}, {002u, 0644u}, {077u, 0600u}}) {
    const mode_t before = umask(mask);
    AtomicFile file =
        AtomicFile::create(path, ExistingFile::replace, FileReaders::everybody).value();
    umask(before);
    ASSERT_TRUE(succeeds(file.commit()));
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode) << std::oct << mask;
  }
}

TEST(AtomicFile, NamesWhereItCannotBe) {
  const ScratchDir dir;
  EXPECT_TRUE(fails_with(AtomicFile::create(dir.path() / "no" / "file"), ErrorCode::file_not_found,
                         "no/file"));
  EXPECT_TRUE(fails_with(AtomicFile::create(dir.path()), ErrorCode::invalid_argument, "regular"));
  EXPECT_TRUE(
      fails_with(AtomicFile::create("/dev/null"), ErrorCode::invalid_argument, "/dev/null"));
}

TEST(AtomicFile, MorePiecesThanOneCallTakes) {
  const ScratchDir dir;
  AtomicFile file = AtomicFile::create(dir.path() / "file").value();
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  std::vector<Bytes> pieces;
  std::string expected;
  for (std::size_t i = 0; i < 5000; ++i) {
    const std::string_view piece = std::string_view(letters).substr(i % 20, i % 7);
    pieces.push_back(as_bytes(piece));
    expected += piece;
  }
  ASSERT_TRUE(succeeds(file.write(pieces)));
  ASSERT_TRUE(succeeds(file.commit()));
  EXPECT_EQ(contents(dir.path() / "file"), expected);
}

// A file system that is full, without filling one: the size of a file may have a limit.
TEST(AtomicFile, AFullDiskLeavesNothing) {
  const ScratchDir dir;
  const int status = test::run_in_child([&]() -> int {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    auto file = AtomicFile::create(dir.path() / "file");
    if (!file) return 3;
    const std::vector<std::byte> bytes(5000);
    const auto written = file->write(bytes);
    if (written) return 4;
    return written.error().system_errno == EFBIG ? 0 : 5;
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(dir.names().empty());
}

TEST(AtomicFile, BeyondTheLimitOfThisProcessIsAnErrorAndNoSignal) {
  const ScratchDir dir;
  const int status = test::run_in_child([&]() -> int {
    test::die_plainly_of(SIGXFSZ);
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    auto file = AtomicFile::create(dir.path() / "large");
    if (!file) return 3;
    if (!file->check_size(1000) || file->check_size(1001)) return 4;
    const std::vector<std::byte> most(1000);
    if (!file->write(most)) return 5;
    const auto beyond = file->write(Bytes(most).first(1));
    if (beyond || beyond.error().code != ErrorCode::storage_full) return 6;
    const std::string& says = beyond.error().detail;
    if (says.find("large' with a size of 1001 bytes") == std::string::npos) return 7;
    if (says.find("may have 1000 (raise RLIMIT_FSIZE") == std::string::npos) return 8;
    const auto saved = save_safetensors(dir.path() / "saved", test::patterned(1, 2000));
    return saved || saved.error().code != ErrorCode::storage_full ? 9 : 0;
  });
  EXPECT_TRUE(test::exited_with(status, 0)) << status;
  EXPECT_TRUE(dir.names().empty());
}

TEST(AtomicFile, AForkedChildDoesNotTakeItAway) {
  const ScratchDir dir;
  AtomicFile file = AtomicFile::create(dir.path() / "file").value();
  ASSERT_TRUE(succeeds(file.write(as_bytes("whole"))));
  const int status = test::run_in_child([&]() -> int {
    const AtomicFile mine = std::move(file);
    return 0;
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(succeeds(file.commit()));
  EXPECT_EQ(contents(dir.path() / "file"), "whole");
}

}  // namespace
}  // namespace tendon
