// SPDX-License-Identifier: Apache-2.0
#include "secure/key_file.hpp"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/fd.hpp"
#include "secure/credential_file.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using detail::SharedKey;
using Keys = std::vector<SharedKey>;

const std::string kOne = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const std::string kTwo = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

std::string line_of(const std::string& label, const std::string& key) {
  return "tendon-key-v1 " + label + " " + key + "\n";
}
Result<Keys> parse(std::string_view text) {
  return detail::parse_keys(as_bytes(text), "fleet.key");
}
/// True if the error names the file, the line and `why`, and contains no key.
testing::AssertionResult refused(std::string_view text, std::size_t line, std::string_view why) {
  const auto keys = parse(text);
  const std::string place = "'fleet.key' line " + std::to_string(line) + ": ";
  if (auto as_said = fails_with(keys, ErrorCode::corrupt_data, place); !as_said) return as_said;
  if (keys.error().detail.find(kOne.substr(0, 8)) != std::string::npos)
    return testing::AssertionFailure() << "shows a key: " << keys.error().detail;
  return fails_with(keys, ErrorCode::corrupt_data, why);
}

TEST(KeyFile, HasKeysCommentsAndBlankLines) {
  const Keys keys = parse("# all of us\n\n\t # indented\n" + line_of("fleet", kOne) +
                          "# made 2026-11-30T09:29:15Z\n  tendon-key-v1\tnext   " + kTwo + " ")
                        .value();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].label, "fleet");
  EXPECT_EQ(keys[0].made, "");
  EXPECT_EQ(keys[1].label, "next");
  EXPECT_EQ(keys[1].made, "2026-11-30T09:29:15Z");
  for (std::size_t i = 0; i < detail::kSharedKeyBytes; ++i) {
    EXPECT_EQ(keys[0].secret.bytes()[i], std::byte(i));
    EXPECT_EQ(keys[1].secret.bytes()[i], std::byte(i + 1));
  }
}

TEST(KeyFile, ADateIsThatOfTheLineBelowAlone) {
  const std::string made = "# made 2026-11-30T09:29:15Z\n";
  EXPECT_EQ(parse(made + "\n" + line_of("a", kOne)).value()[0].made, "");
  EXPECT_EQ(parse(made + "# more\n" + line_of("a", kOne)).value()[0].made, "");
  EXPECT_EQ(parse("# made yesterday, at noon!\n" + line_of("a", kOne)).value()[0].made, "");
  EXPECT_EQ(parse(made + line_of("a", kOne) + line_of("b", kTwo)).value()[1].made, "");
}

TEST(KeyFile, AFileWithoutAKeyIsRefused) {
  for (const std::string text : {"", "\n\n", "# nothing\n"})
    EXPECT_TRUE(fails_with(parse(text), ErrorCode::corrupt_data, "has no key"));
}

TEST(KeyFile, ALineThatIsNoneIsNamed) {
  EXPECT_TRUE(refused("\n" + kOne + "\n", 2, "does not begin with 'tendon-key-v1'"));
  EXPECT_TRUE(refused("tendon-key-v2 a " + kOne, 1, "the only version that this build reads"));
  EXPECT_TRUE(refused("Tendon-key-v1 a " + kOne, 1, "does not begin"));
  EXPECT_TRUE(refused("-----BEGIN PRIVATE KEY-----\n", 1, "as certificates and their keys do"));
  EXPECT_TRUE(refused("tendon-key-v1 " + kOne, 1, "has not three words"));
  EXPECT_TRUE(refused("tendon-key-v1 a " + kOne + " # mine", 1, "has not three words"));
  EXPECT_TRUE(refused("tendon-key-v1 " + kOne + " a\n", 1, "its second word is no label"));
  EXPECT_TRUE(refused("tendon-key-v1 a/b " + kOne, 1, "its second word is no label"));
}

TEST(KeyFile, AKeyThatIsNotThirtyTwoBytesInBase64IsNamed) {
  const std::string why = "is not 32 bytes in base64";
  EXPECT_TRUE(refused("tendon-key-v1 a password", 1, why));
  EXPECT_TRUE(refused("tendon-key-v1 a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", 1, why));
  EXPECT_TRUE(refused("tendon-key-v1 a " + kOne.substr(0, 43), 1, why));
  EXPECT_TRUE(refused("tendon-key-v1 a " + kOne + "A", 1, why));
  EXPECT_TRUE(refused("tendon-key-v1 a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", 1, why))
      << "a second spelling of the same key";
  EXPECT_TRUE(refused("tendon-key-v1 a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8h", 1, why))
      << "33 bytes";
  EXPECT_TRUE(refused("tendon-key-v1 a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaG-wdHh8=", 1, why))
      << "the alphabet of URLs";
  EXPECT_TRUE(refused("tendon-key-v1 a AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 1,
                      "one byte over and over"));
}

TEST(KeyFile, ALabelOrAKeyTwiceIsNamedWithItsFirstLine) {
  EXPECT_TRUE(refused(line_of("a", kOne) + "\n" + line_of("a", kTwo), 3,
                      "has the label 'a' of line 1 again"));
  EXPECT_TRUE(
      refused("#\n" + line_of("a", kOne) + line_of("b", kOne), 3, "has the key of line 2 again"));
}

TEST(KeyFile, ControlCharactersAreNamed) {
  EXPECT_TRUE(refused("tendon-key-v1 a " + kOne + "\r\n", 1, "not with CR LF"));
  EXPECT_TRUE(refused("# a\n# \x1b[2J\n", 2, "control character \\x1b"));
  const std::string zero("#\0\n", 3);
  EXPECT_TRUE(refused(zero + line_of("a", kOne), 1, "control character \\x00"));
}

TEST(KeyFile, MoreKeysThanOneFileHasAreRefused) {
  std::string text;
  for (std::size_t i = 0; i <= detail::kMaxKeysOfFile; ++i) {
    std::string key = kOne;
    key[0] = static_cast<char>('A' + i / 26);
    key[1] = static_cast<char>('A' + i % 26);
    if (i == detail::kMaxKeysOfFile) {
      EXPECT_TRUE(succeeds(parse(text)));
    }
    text += line_of("a" + std::to_string(i), key);
  }
  EXPECT_TRUE(fails_with(parse(text), ErrorCode::limit_exceeded, "line 65: is a key more than 64"));
}

// Files -----------------------------------------------------------------------------------------

class KeyFiles : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path(const std::string& name = "fleet.key") const {
    return folder_.path() / name;
  }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path(), std::ios::binary) << text;
    set_mode(path(), mode);
  }
  static void set_mode(const std::filesystem::path& path, mode_t mode) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] mode_t mode() const {
    struct stat facts {};
    stat(path().c_str(), &facts);
    return facts.st_mode & 07777;
  }

  ScratchDir folder_;
};

TEST_F(KeyFiles, ANewOneIsReadAgainAndOnlyItsOwnerMay) {
  const mode_t before = umask(0);
  const auto made = detail::make_key_file(path(), "");
  umask(before);
  ASSERT_TRUE(succeeds(made));
  EXPECT_EQ(mode(), 0600u);
  EXPECT_EQ(folder_.names(), std::vector<std::string>({"fleet.key"}));
  const Keys keys = detail::load_keys(path()).value();
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].label, "fleet");
  EXPECT_FALSE(keys[0].made.empty());
  EXPECT_EQ(keys[0].made, made->made);
  EXPECT_TRUE(std::ranges::equal(keys[0].secret.bytes(), made->secret.bytes()));
}

TEST_F(KeyFiles, NothingIsOverwritten) {
  write("something else");
  EXPECT_TRUE(
      fails_with(detail::make_key_file(path(), "a"), ErrorCode::permission_denied, "exists"));
  EXPECT_EQ(text(), "something else");
}

TEST_F(KeyFiles, ALabelThatTheNameDoesNotGiveIsAskedFor) {
  EXPECT_TRUE(fails_with(detail::make_key_file(path("my key"), ""), ErrorCode::invalid_argument,
                         "--label"));
  EXPECT_TRUE(succeeds(detail::make_key_file(path("my key"), "mine")));
}

TEST_F(KeyFiles, ALabelThatIsTooLongIsShownWhole) {
  const std::string label(detail::kMaxLabelBytes + 1, 'a');
  EXPECT_TRUE(fails_with(detail::make_key_file(path(), label), ErrorCode::invalid_argument,
                         "'" + label + "' (65 bytes)"));
  EXPECT_TRUE(fails_with(detail::make_key_file(path(label + ".key"), ""),
                         ErrorCode::invalid_argument,
                         "'" + label + "', from the name of the file, (65 bytes)"));
}

TEST_F(KeyFiles, AnAddedKeyStandsBehindTheOthers) {
  write("# ours\n" + line_of("fleet", kOne).substr(0, 14 + 6 + 44));  // without an end of line
  ASSERT_TRUE(succeeds(detail::add_key(path(), "")));
  ASSERT_TRUE(succeeds(detail::add_key(path(), "")));
  ASSERT_TRUE(succeeds(detail::add_key(path(), "spare")));
  EXPECT_TRUE(text().starts_with("# ours\n" + line_of("fleet", kOne)));
  EXPECT_EQ(mode(), 0600u);
  std::vector<std::string> labels;
  for (const SharedKey& key : detail::load_keys(path()).value()) labels.push_back(key.label);
  EXPECT_EQ(labels, std::vector<std::string>({"fleet", "fleet-2", "fleet-3", "spare"}));
}

TEST_F(KeyFiles, AKeyThatCannotBeAddedChangesNothing) {
  EXPECT_TRUE(fails_with(detail::add_key(path(), "a"), ErrorCode::file_not_found));
  write(line_of("fleet", kOne));
  EXPECT_TRUE(fails_with(detail::add_key(path(), "fleet"), ErrorCode::invalid_argument, "'fleet'"));
  EXPECT_EQ(text(), line_of("fleet", kOne));
  write("tendon-key-v1 broken\n");
  EXPECT_TRUE(fails_with(detail::add_key(path(), "a"), ErrorCode::corrupt_data, "line 1"));
  const std::string full =
      line_of("fleet", kOne) + std::string(detail::kMaxCredentialFileBytes - 100, '#');
  write(full);
  EXPECT_TRUE(fails_with(detail::add_key(path(), "a"), ErrorCode::limit_exceeded, "65536"));
  EXPECT_EQ(text(), full);
}

TEST_F(KeyFiles, TwoProgramsAreNotAddingAtOnce) {
  write(line_of("fleet", kOne));
  const detail::OwnedFd other(open(path().c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  EXPECT_TRUE(fails_with(detail::add_key(path(), "a"), ErrorCode::busy));
}

TEST_F(KeyFiles, AFileThatWasReplacedMeanwhileIsLeftAlone) {
  write(line_of("fleet", kOne));
  const auto opened = detail::CredentialFile::open(path());
  ASSERT_TRUE(succeeds(detail::add_key(path(), "a")));
  EXPECT_TRUE(fails_with(opened->claim(), ErrorCode::busy));
}

TEST_F(KeyFiles, AModeThatLetsOthersInIsNamed) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0644, 0666, 0777}) {
    write(line_of("a", kOne), mode);
    EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::permission_denied, "chmod 600"))
        << std::oct << mode;
  }
  for (const mode_t mode : {0600, 0700, 0400}) {
    write(line_of("a", kOne), 0600);
    set_mode(path(), mode);
    EXPECT_TRUE(succeeds(detail::load_keys(path()))) << std::oct << mode;
  }
}

TEST(KeyFileModes, RootMayHandAFileToAGroupAndNobodyElseMay) {
  struct Row {
    mode_t mode;
    uid_t owner;
    gid_t group;
    uid_t user;
    bool may;
  };
  constexpr std::array<gid_t, 2> kGroups{7, 2000};
  for (const auto& [mode, owner, group, user, may] : {
           Row{0440, 0, 2000, 1000, true},
           Row{0640, 0, 7, 1000, true},
           Row{0440, 0, 3, 1000, false},        // of a group of others
           Row{0440, 1000, 2000, 1000, false},  // a file of this user needs no group
           Row{0440, 1001, 2000, 1000, false},
           Row{0440, 0, 2000, 0, false},  // nor does root
           Row{0460, 0, 2000, 1000, false},
           Row{0450, 0, 2000, 1000, false},
           Row{0444, 0, 2000, 1000, false},
           Row{0442, 0, 2000, 1000, false},
           Row{0404, 0, 2000, 1000, false},
       }) {
    struct stat file {};
    file.st_mode = S_IFREG | mode;
    file.st_uid = owner;
    file.st_gid = group;
    EXPECT_EQ(detail::is_for_group(file, user, kGroups), may)
        << std::oct << mode << std::dec << ' ' << owner << ':' << group << " for " << user;
  }
}

TEST_F(KeyFiles, ASecretOfKubernetesIsReadThroughTheGroupOfItsPod) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to a group";
  constexpr gid_t kPod = 4242;
  constexpr uid_t kUser = 65534;
  set_mode(folder_.path(), 03777);
  std::filesystem::create_directories(path("..dated"));
  set_mode(path("..dated"), 02755);
  std::ofstream(path("..dated/fleet.key")) << line_of("fleet", kOne);
  ASSERT_EQ(chown(path("..dated/fleet.key").c_str(), 0, kPod), 0);
  set_mode(path("..dated/fleet.key"), 0440);
  std::filesystem::create_symlink("..dated", path("..data"));
  std::filesystem::create_symlink("..data/fleet.key", path());
  // Returns the code of the error, or 0.
  const auto load_in = [&](gid_t group) {
    return run_in_child([&] {
      if (setgroups(1, &group) != 0 || setgid(kUser) != 0 || setuid(kUser) != 0) return 255;
      const auto keys = detail::load_keys(path());
      return keys ? 0 : error_info(keys.error().code).exit_code;
    });
  };
  const int refused = error_info(ErrorCode::permission_denied).exit_code;
  EXPECT_TRUE(exited_with(load_in(kPod), 0));
  EXPECT_TRUE(exited_with(load_in(kPod + 1), refused)) << "the kernel";
  EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::permission_denied, "chmod 600"));
  set_mode(path("..dated/fleet.key"), 0444);
  EXPECT_TRUE(exited_with(load_in(kPod), refused));
}

TEST_F(KeyFiles, ADirectoryThatOthersMayWriteIsNamed) {
  write(line_of("a", kOne));
  for (const mode_t mode : {0770, 0707, 0722}) {
    set_mode(folder_.path(), mode);
    EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::permission_denied, "chmod go-w"))
        << std::oct << mode;
    EXPECT_TRUE(fails_with(detail::make_key_file(path("new"), "a"), ErrorCode::permission_denied,
                           "chmod go-w"));
  }
  set_mode(folder_.path(), 01777);  // as /tmp is
  EXPECT_TRUE(succeeds(detail::load_keys(path())));
  set_mode(folder_.path(), 0755);
  EXPECT_TRUE(succeeds(detail::load_keys(path())));
}

TEST_F(KeyFiles, ADirectoryAboveThatOthersMayWriteIsNamed) {
  std::filesystem::create_directories(path("a/b"));
  ASSERT_TRUE(succeeds(detail::make_key_file(path("a/b/key"), "")));
  set_mode(path("a"), 0777);
  EXPECT_TRUE(fails_with(detail::load_keys(path("a/b/key")), ErrorCode::permission_denied,
                         path("a").string()));
}

TEST_F(KeyFiles, AnotherOwnerIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write(line_of("a", kOne));
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(chown(path().c_str(), kNobody, 0), 0);
  EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::permission_denied, "uid 65534"));
  ASSERT_EQ(chown(path().c_str(), 0, 0), 0);
  ASSERT_EQ(chown(folder_.path().c_str(), kNobody, 0), 0);
  EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::permission_denied, "uid 65534"));
}

TEST_F(KeyFiles, ASymbolicLinkIsAsGoodAsItsTwoDirectories) {
  std::filesystem::create_directories(path("open"));
  std::filesystem::create_directories(path("safe"));
  ASSERT_TRUE(succeeds(detail::make_key_file(path("safe/key"), "")));
  std::filesystem::create_symlink(path("safe/key"), path("link"));
  EXPECT_TRUE(succeeds(detail::load_keys(path("link"))));
  ASSERT_TRUE(succeeds(detail::add_key(path("link"), "")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(detail::load_keys(path("safe/key")).value().size(), 2u);

  std::filesystem::create_symlink(path("safe/key"), path("open/link"));
  set_mode(path("open"), 0777);
  EXPECT_TRUE(fails_with(detail::load_keys(path("open/link")), ErrorCode::permission_denied));
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  EXPECT_TRUE(fails_with(detail::load_keys(path("dangling")), ErrorCode::file_not_found));
}

TEST_F(KeyFiles, ASymbolicLinkIsAsGoodAsEachDirectoryThatItPasses) {
  for (const char* const folder : {"safe", "evil"}) std::filesystem::create_directory(path(folder));
  ASSERT_TRUE(succeeds(detail::make_key_file(path("safe/c.key"), "")));
  std::filesystem::create_symlink("../evil/b.key", path("safe/a.key"));
  std::filesystem::create_symlink(path("safe/c.key"), path("evil/b.key"));
  std::filesystem::create_symlink(path("evil/folder"), path("safe/folder"));
  std::filesystem::create_symlink("../safe", path("evil/folder"));
  // Links in the middle, of files and of folders.
  for (const std::string name : {"safe/a.key", "safe/folder/c.key", "evil/folder/c.key"}) {
    EXPECT_TRUE(succeeds(detail::load_keys(path(name)))) << name;
    set_mode(path("evil"), 0777);
    EXPECT_TRUE(fails_with(detail::load_keys(path(name)), ErrorCode::permission_denied,
                           "directory '" + path("evil").string() + "'"))
        << name;
    set_mode(path("evil"), 0755);
  }
}

TEST_F(KeyFiles, ASymbolicLinkOfAnotherUserIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a link away";
  ASSERT_TRUE(succeeds(detail::make_key_file(path("key"), "")));
  set_mode(folder_.path(), 01777);
  std::filesystem::create_symlink("key", path("link"));
  EXPECT_TRUE(succeeds(detail::load_keys(path("link"))));
  ASSERT_EQ(lchown(path("link").c_str(), 65534, 0), 0);
  EXPECT_TRUE(fails_with(detail::load_keys(path("link")), ErrorCode::permission_denied,
                         "symbolic link '" + path("link").string() + "' belongs to uid 65534"));
}

TEST_F(KeyFiles, LinksInACircleAreNamed) {
  std::filesystem::create_symlink("b", path("a"));
  std::filesystem::create_symlink("a", path("b"));
  EXPECT_TRUE(fails_with(detail::load_keys(path("a")), ErrorCode::invalid_argument, "in a circle"));
  EXPECT_TRUE(fails_with(detail::make_key_file(path("a/key"), ""), ErrorCode::invalid_argument,
                         "in a circle"));
}

TEST_F(KeyFiles, WhatIsNoFileIsRefusedWithoutAWait) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& name :
       {path("fifo").string(), path("").string(), std::string("/dev/zero")})
    EXPECT_TRUE(fails_with(detail::load_keys(name), ErrorCode::invalid_argument, "no regular file"))
        << name;
  EXPECT_TRUE(fails_with(detail::load_keys(path("fifo")), ErrorCode::invalid_argument, "--key-fd"));
  EXPECT_TRUE(fails_with(detail::load_keys(path("")), ErrorCode::invalid_argument, "a folder"));
  EXPECT_TRUE(fails_with(detail::load_keys(path("none")), ErrorCode::file_not_found));
}

TEST_F(KeyFiles, AFileThatIsTooLargeIsRefused) {
  const std::string line = line_of("a", kOne);
  write(line + std::string(detail::kMaxCredentialFileBytes - line.size(), '#'));
  EXPECT_TRUE(succeeds(detail::load_keys(path())));
  write(line + std::string(detail::kMaxCredentialFileBytes + 1 - line.size(), '#'));
  EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::limit_exceeded, "65536"));
  write(line + std::string(std::size_t{1} << 20, '#'));
  EXPECT_TRUE(fails_with(detail::load_keys(path()), ErrorCode::limit_exceeded, "65536"));
}

}  // namespace
}  // namespace tendon::test
