// SPDX-License-Identifier: Apache-2.0
#include "session/directory_door.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;
using detail::DirectoryDoor;

class Door : public testing::Test {
 protected:
  [[nodiscard]] std::string make(const std::string& name) const {
    const std::string path = (dir_.path() / name).string();
    EXPECT_EQ(mkdir(path.c_str(), 0700), 0);
    std::ofstream(path + "/" + name) << name;
    return path;
  }
  static bool leads(const DirectoryDoor& door, const std::string& file) {
    return fs::exists(door.path() + "/" + file);
  }

  const ScratchDir dir_;
};

TEST_F(Door, LeadsWhereItIsToldUnderOnePath) {
  const std::string one = make("one");
  auto door = DirectoryDoor::open(one).value();
  const std::string path = door.path();
  EXPECT_TRUE(leads(door, "one"));
  ASSERT_TRUE(succeeds(door.lead_to(make("two"))));
  EXPECT_EQ(door.path(), path);
  EXPECT_TRUE(leads(door, "two"));
  EXPECT_FALSE(leads(door, "one"));
  ASSERT_TRUE(succeeds(door.lead_nowhere()));
  EXPECT_FALSE(leads(door, "two"));
  ASSERT_TRUE(succeeds(door.lead_to(one)));
  EXPECT_TRUE(leads(door, "one"));
}

// The door leads to a directory, and to nothing that replaces it.
TEST_F(Door, IsNotMovedByOthers) {
  const std::string one = make("one");
  auto door = DirectoryDoor::open(one).value();
  fs::rename(one, one + "-away");
  const std::string other = make("one");
  std::ofstream(other + "/planted") << "x";
  EXPECT_TRUE(leads(door, "one"));
  EXPECT_FALSE(leads(door, "planted"));
}

TEST_F(Door, LeadsToNoDirectoryThatIsOpenToOthers) {
  auto door = DirectoryDoor::open(make("one")).value();
  const std::string open = make("open");
  ASSERT_EQ(chmod(open.c_str(), 0770), 0);
  EXPECT_TRUE(fails_with(door.lead_to(open), ErrorCode::permission_denied, "0770"));
  EXPECT_TRUE(leads(door, "one"));
  EXPECT_TRUE(fails_with(DirectoryDoor::open(open), ErrorCode::permission_denied));
  fs::create_directory_symlink(dir_.path() / "one", dir_.path() / "link");
  EXPECT_FALSE(DirectoryDoor::open((dir_.path() / "link").string()));
}

}  // namespace
}  // namespace tendon::test
