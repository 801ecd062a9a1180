// SPDX-License-Identifier: Apache-2.0
// A file appears under its name only when it is whole, and replaces another file only on demand.
// This holds whichever process dies, if another process makes a file of that name, and on limited
// file systems.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "core/failpoint.hpp"
#include "process/command.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using Words = std::vector<std::string>;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Arms failpoints in the commands that are started before disarm().
class Armed {
 public:
  explicit Armed(const std::string& failpoints) {
    setenv("TENDON_FAILPOINTS", failpoints.c_str(), 1);
    setenv("TENDON_FAILPOINT_REPORT", report_.c_str(), 1);
  }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
  ~Armed() { disarm(); }
  static void disarm() {
    unsetenv("TENDON_FAILPOINTS");
    unsetenv("TENDON_FAILPOINT_REPORT");
  }
  /// The failpoints that were passed.
  [[nodiscard]] std::string passed() const { return read_file(report_); }

 private:
  ScratchDir folder_;
  std::string report_ = (folder_.path() / "passed").string();
};

/// The features that a file system may lack, as failpoints.
struct FileSystem {
  std::string name;
  std::string lacks;
};
void PrintTo(const FileSystem& system, std::ostream* stream) { *stream << system.name; }
std::string name_of(const testing::TestParamInfo<FileSystem>& info) { return info.param.name; }
const auto kEveryKind =
    testing::Values(FileSystem{"nameless", ""}, FileSystem{"hidden", "atomic_file.nameless=error"},
                    FileSystem{"linked", "atomic_file.nameless=error,atomic_file.noreplace=error"});

class Commit : public testing::TestWithParam<FileSystem> {
 protected:
  void SetUp() override {
    if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  }
  [[nodiscard]] std::string with(const std::string& failpoint) const {
    return GetParam().lacks.empty() ? failpoint : GetParam().lacks + "," + failpoint;
  }
  [[nodiscard]] std::filesystem::path target() const { return folder_.path() / "m.safetensors"; }
  void put(std::string_view text) const {
    std::ofstream(target(), std::ios::binary | std::ios::trunc) << text;
  }
  static Words make(const std::filesystem::path& file) {
    return {"make-checkpoint", file.string(), "--size-mb", "0.1"};
  }
  /// The bytes that every run of make() writes.
  static std::string whole() {
    const ScratchDir folder;
    const auto path = folder.path() / "whole.safetensors";
    EXPECT_EQ(run_tendon(make(path)).code, 0);
    return read_file(path);
  }
  /// Starts `tendon recv` into the folder; it listens at address().
  Command& receive(const Words& flags = {}) {
    Words words = {"recv", "127.0.0.1:0", "-o", folder_.path().string(), "--timeout", "60"};
    words.insert(words.end(), flags.begin(), flags.end());
    address_ = receiver_.emplace(words).wait_for_err("tendon: listening on ");
    return *receiver_;
  }
  /// The words of a sender of a file that has the name of the target.
  Words send() {
    const auto path = source_.path() / "m.safetensors";
    if (!std::filesystem::exists(path)) {
      EXPECT_EQ(run_tendon(make(path)).code, 0);
    }
    return {"send", path.string(), address_};
  }
  /// Hidden files that a kill has left; nothing else may be beside the target.
  [[nodiscard]] Words residue() const {
    Words left;
    for (const std::string& name : folder_.names()) {
      if (name == "m.safetensors") continue;
      EXPECT_TRUE(name.starts_with(".m.safetensors.tendon-")) << name;
      left.push_back(name);
    }
    return left;
  }

  ScratchDir folder_;
  ScratchDir source_;
  std::optional<Command> receiver_;
  std::string address_;
};
INSTANTIATE_TEST_SUITE_P(FileSystems, Commit, kEveryKind, name_of);

struct Kill {
  const char* failpoint;
  bool is_named = false;  ///< the new file has its name by then
};
constexpr Kill kKills[] = {{"atomic_file.written"},
                           {"atomic_file.commit"},
                           {"atomic_file.hidden"},
                           {"atomic_file.named", true}};

TEST_P(Commit, AKillLeavesTheOldFileOrTheWholeNewOne) {
  const std::string expected = whole();
  for (const std::string_view old : {"", "what was there"}) {
    for (const Kill& kill : kKills) {
      SCOPED_TRACE(std::string(kill.failpoint) + (old.empty() ? ", fresh" : ", over another"));
      std::filesystem::remove(target());
      if (!old.empty()) put(old);
      bool was_killed = false;
      {
        const Armed armed(with(std::string(kill.failpoint) + "=kill"));
        was_killed = run_tendon(make(target())).code == 128 + SIGKILL;
        EXPECT_EQ(was_killed, armed.passed().find(kill.failpoint) != std::string::npos);
      }
      // A nameless file gets a hidden name only when another file has the name that it wants.
      const bool has_hidden_name = !GetParam().lacks.empty() || !old.empty();
      EXPECT_EQ(was_killed, kill.failpoint != std::string("atomic_file.hidden") ||
                                (GetParam().lacks.empty() && has_hidden_name));
      if (was_killed && !kill.is_named) {
        EXPECT_EQ(read_file(target()), old);
      } else {
        EXPECT_TRUE(read_file(target()) == expected);
      }
      if (!has_hidden_name) {
        EXPECT_EQ(residue(), Words{});
      }
      EXPECT_EQ(run_tendon(make(target())).code, 0) << "what is left is in nobody's way";
      EXPECT_TRUE(read_file(target()) == expected);
      for (const std::string& name : residue()) std::filesystem::remove(folder_.path() / name);
    }
  }
}

TEST_P(Commit, AKilledReceiverLeavesNoFileOrTheWholeOne) {
  const std::string expected = whole();
  for (const Kill& kill : kKills) {
    SCOPED_TRACE(kill.failpoint);
    if (kill.failpoint == std::string("atomic_file.hidden")) continue;  // not passed there
    std::filesystem::remove(target());
    const Armed armed(with(std::string(kill.failpoint) + "=kill"));
    Command& receiver = receive();
    Armed::disarm();
    EXPECT_NE(run_tendon(send()).code, 0) << "nobody confirmed it";
    EXPECT_EQ(receiver.finish().code, 128 + SIGKILL);
    EXPECT_EQ(std::filesystem::exists(target()), kill.is_named);
    if (kill.is_named) {
      EXPECT_TRUE(read_file(target()) == expected);
    }
    if (GetParam().lacks.empty()) {
      EXPECT_EQ(residue(), Words{});
    }
    for (const std::string& name : residue()) std::filesystem::remove(folder_.path() / name);
  }
}

TEST_P(Commit, AFileMadeMeanwhileIsKept) {
  const Armed armed(with("atomic_file.commit=stop"));
  Command& receiver = receive();
  Armed::disarm();
  Command sender(send());
  receiver.wait_until_stopped();
  put("precious");
  receiver.signal(SIGCONT);
  const int refused = error_info(ErrorCode::permission_denied).exit_code;
  const Ended received = receiver.finish();
  EXPECT_EQ(received.code, refused) << testing::PrintToString(received);
  EXPECT_NE(received.err.find("--force"), std::string::npos) << received.err;
  EXPECT_EQ(sender.finish().code, refused);
  EXPECT_EQ(read_file(target()), "precious");
  EXPECT_EQ(residue(), Words{});
}

TEST_P(Commit, ALinkThatLeadsNowhereIsKept) {
  const auto nowhere = folder_.path() / ".nowhere";
  std::filesystem::create_symlink(nowhere, target());
  const Armed armed(with("none=error"));
  Command& receiver = receive();
  const int refused = error_info(ErrorCode::permission_denied).exit_code;
  EXPECT_EQ(run_tendon(send()).code, refused);
  EXPECT_EQ(receiver.finish().code, refused);
  EXPECT_TRUE(std::filesystem::is_symlink(target()));
  EXPECT_FALSE(std::filesystem::exists(nowhere));
}

TEST_P(Commit, ForceReplacesTheLinkAndNotWhatItLeadsTo) {
  const auto other = source_.path() / "other";
  std::ofstream(other) << "precious";
  std::filesystem::create_symlink(other, target());
  const Armed armed(with("none=error"));
  Command& receiver = receive({"--force"});
  EXPECT_EQ(run_tendon(send()).code, 0);
  EXPECT_EQ(receiver.finish().code, 0);
  EXPECT_FALSE(std::filesystem::is_symlink(target()));
  EXPECT_TRUE(read_file(target()) == whole());
  EXPECT_EQ(read_file(other), "precious");
  EXPECT_EQ(residue(), Words{});
}

}  // namespace
}  // namespace tendon::test
