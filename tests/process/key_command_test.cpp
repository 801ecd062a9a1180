// SPDX-License-Identifier: Apache-2.0
// The verbs `tendon key` from a user's view.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "core/failpoint.hpp"
#include "process/command.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/variable.hpp"

namespace tendon::test {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr const char* kId = "[0-9a-f]+\n";

class KeyCommand : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] mode_t mode_of(const std::string& name) const {
    struct stat facts {};
    stat(path(name).c_str(), &facts);
    return facts.st_mode & 07777;
  }
  /// The third word of each key of a file.
  [[nodiscard]] std::vector<std::string> secrets_of(const std::string& name) const {
    std::ifstream file(path(name));
    std::vector<std::string> secrets;
    for (std::string word; file >> word;)
      if (word.size() == 44 && word.back() == '=') secrets.push_back(word);
    return secrets;
  }
  /// Runs `tendon key` with these words; expects that it prints no key of a file.
  [[nodiscard]] Ended key(std::vector<std::string> words, const std::string& file = "fleet.key") {
    words.insert(words.begin(), "key");
    Ended ended = run_tendon(words);
    for (const std::string& secret : secrets_of(file))
      EXPECT_THAT(ended.out + ended.err, Not(HasSubstr(secret)));
    return ended;
  }
  /// Expects that it fails with `code`, and prints `text` on stderr.
  static testing::AssertionResult failed(const Ended& ended, ErrorCode code,
                                         const std::string& text) {
    if (ended.code == error_info(code).exit_code && ended.err.find(text) != std::string::npos)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "wanted " << to_string(code) << " with '" << text
                                       << "', got " << testing::PrintToString(ended);
  }
  void make_ca_and_member() {
    ASSERT_EQ(key({"ca", path("ca")}).code, 0);
    const Ended made = key({"cert", "--ca", path("ca"), "--name", "worker-3", "--dns", "a.example",
                            "--dns", "b.example", "--ip", "10.0.0.5", path("out")});
    ASSERT_EQ(made.code, 0) << testing::PrintToString(made);
  }

  ScratchDir folder_;
};

TEST_F(KeyCommand, NewShowAndIdAgreeAndShowNoKey) {
  const Ended made = key({"new", path("fleet.key")});
  ASSERT_EQ(made.code, 0) << testing::PrintToString(made);
  EXPECT_EQ(mode_of("fleet.key"), 0600u);
  ASSERT_EQ(secrets_of("fleet.key").size(), 1u);
  EXPECT_THAT(made.out, Not(HasSubstr(secrets_of("fleet.key")[0])));
  const std::string id = key({"id", path("fleet.key")}).out;
  EXPECT_THAT(id, MatchesRegex(kId));
  EXPECT_EQ(id.size(), 17u);
  EXPECT_EQ(made.out, path("fleet.key") + "  fleet  id " + id);
  const Ended shown = key({"show", path("fleet.key")});
  EXPECT_THAT(shown.out, HasSubstr("fleet "));
  EXPECT_THAT(shown.out, HasSubstr(id.substr(0, 16)));
  EXPECT_THAT(shown.out, MatchesRegex("(.|\n)*  20[0-9-]+T[0-9:]+Z\n"));
}

TEST_F(KeyCommand, WithoutNamelessFilesAKeyIsForItsOwnerTooAndNothingIsLeft) {
  const Variable failpoints("TENDON_FAILPOINTS", "atomic_file.nameless=error");
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  ASSERT_EQ(key({"new", path("fleet.key"), "--add"}).code, 0);
  EXPECT_EQ(mode_of("fleet.key"), 0600u);
  EXPECT_EQ(folder_.names(), std::vector<std::string>({"fleet.key"}));
}

TEST_F(KeyCommand, AddedKeysStandBehindTheFirst) {
  ASSERT_EQ(key({"new", path("fleet.key"), "--label", "a"}).code, 0);
  const std::string id = key({"id", path("fleet.key")}).out;
  ASSERT_EQ(key({"new", path("fleet.key"), "--add"}).code, 0);
  ASSERT_EQ(key({"new", path("fleet.key"), "--add", "--label", "b"}).code, 0);
  EXPECT_THAT(key({"id", path("fleet.key")}).out, testing::StartsWith(id));
  const Json shown = Json::parse(key({"show", path("fleet.key"), "--json"}).out);
  ASSERT_EQ(shown.at("keys").size(), 3u);
  EXPECT_EQ(shown.at("keys").at(0).at("label"), "a");
  EXPECT_EQ(shown.at("keys").at(0).at("id"), id.substr(0, 16));
  EXPECT_EQ(shown.at("keys").at(1).at("label"), "a-2");
  EXPECT_EQ(shown.at("keys").at(2).at("label"), "b");
  EXPECT_EQ(Json::parse(key({"id", path("fleet.key"), "--json"}).out).at("ids").size(), 3u);
}

TEST_F(KeyCommand, ErrorsSayWhatToDo) {
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  const std::string before = text_of("fleet.key");
  EXPECT_TRUE(failed(key({"new", path("fleet.key")}), ErrorCode::permission_denied,
                     "exists, and nothing replaces it; --add adds a key"));
  EXPECT_TRUE(failed(key({"new", path("fleet.key"), "--add", "--label", "fleet"}),
                     ErrorCode::invalid_argument, "give another one by --label"));
  EXPECT_EQ(text_of("fleet.key"), before);
  EXPECT_TRUE(failed(key({"new", path("none"), "--add"}), ErrorCode::file_not_found, "none"));
  EXPECT_TRUE(
      failed(key({"new", path("x"), "--label", "a b"}), ErrorCode::invalid_argument, "'a b'"));
  chmod(path("fleet.key").c_str(), 0644);
  for (const std::string verb : {"show", "id"})
    EXPECT_TRUE(failed(key({verb, path("fleet.key")}), ErrorCode::permission_denied, "chmod 600"));
  const Ended as_json = key({"show", path("fleet.key"), "--json"});
  EXPECT_EQ(Json::parse(as_json.out).at("error").at("name"), "permission_denied");
}

TEST_F(KeyCommand, ACertificateOfAPrivateAuthorityPassesItsCheck) {
  make_ca_and_member();
  EXPECT_EQ(mode_of("ca/ca.key"), 0600u);
  EXPECT_EQ(mode_of("out/worker-3.key"), 0600u);
  EXPECT_EQ(text_of("out/ca.crt"), text_of("ca/ca.crt"));
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  const Ended checked = key({"check", path("fleet.key"), path("out/worker-3.crt"),
                             path("out/worker-3.key"), path("out/ca.crt")});
  EXPECT_EQ(checked.code, 0) << testing::PrintToString(checked);
  EXPECT_EQ(checked.err, "");
  EXPECT_THAT(checked.out, HasSubstr("ok     " + path("fleet.key") + ": key fleet (id "));
  EXPECT_THAT(checked.out,
              HasSubstr("certificate of tendon:worker-3, dns:a.example, dns:b.example, "
                        "ip:10.0.0.5, 20"));
  EXPECT_THAT(checked.out, HasSubstr(path("out/worker-3.key") + ": private key\n"));
  EXPECT_THAT(checked.out, HasSubstr(path("out/ca.crt") + ": CA, 20"));
  const Json files =
      Json::parse(key({"check", path("out/worker-3.crt"), "--json", path("ca/ca.crt")}).out);
  EXPECT_EQ(files.at("files").at(0).at("certificate").at("ca"), false);
  EXPECT_EQ(files.at("files").at(0).at("certificate").at("names").at(0), "tendon:worker-3");
  EXPECT_EQ(files.at("files").at(1).at("certificate").at("ca"), true);
  EXPECT_TRUE(files.at("files").at(0).at("faults").empty());
}

TEST_F(KeyCommand, UnderAUmaskForGroupsCertificatesAreTakenToo) {
  const mode_t before = umask(002);
  make_ca_and_member();
  umask(before);
  for (const char* const name : {"ca/ca.crt", "out/ca.crt", "out/worker-3.crt"})
    EXPECT_EQ(mode_of(name), 0644u) << name;
  EXPECT_EQ(key({"check", path("out/worker-3.crt"), path("out/ca.crt")}).code, 0);
}

TEST_F(KeyCommand, CheckSaysWhyAPeerWouldRefuse) {
  make_ca_and_member();
  ASSERT_EQ(key({"ca", path("other")}).code, 0);
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  const int denied = error_info(ErrorCode::permission_denied).exit_code;
  const Ended foreign = key({"check", path("out/worker-3.crt"), path("other/ca.crt")});
  EXPECT_EQ(foreign.code, denied);
  EXPECT_THAT(foreign.out, HasSubstr("refuse " + path("out/worker-3.crt")));
  EXPECT_THAT(foreign.out, HasSubstr("it is of another CA than the one that was given"));
  const Ended wrong_key = key({"check", path("out/worker-3.crt"), path("other/ca.key")});
  EXPECT_EQ(wrong_key.code, denied);
  EXPECT_THAT(wrong_key.out, HasSubstr("is the key of none of the certificates"));
  EXPECT_THAT(wrong_key.err, HasSubstr("no CA was given"));

  chmod(path("fleet.key").c_str(), 0604);
  chmod(path("out/worker-3.key").c_str(), 0640);
  chmod(path("out/ca.crt").c_str(), 0646);
  for (const std::string name : {"fleet.key", "out/worker-3.key", "out/ca.crt"}) {
    const Ended open = key({"check", path(name)});
    EXPECT_EQ(open.code, denied) << name;
    EXPECT_THAT(open.out, HasSubstr("TD-E0104 permission_denied: '" + path(name) + "' has mode"));
  }
  std::ofstream(path("weights")) << "no key\n";
  chmod(path("weights").c_str(), 0666);
  EXPECT_THAT(key({"check", path("weights")}).out, Not(HasSubstr("has mode")));
  std::ofstream(path("fleet.key")) << "tendon-key-v1 a b\n";
  chmod(path("fleet.key").c_str(), 0600);
  const Ended bent = key({"check", path("fleet.key"), path("none"), "--json"});
  EXPECT_EQ(bent.code, error_info(ErrorCode::corrupt_data).exit_code);
  const Json files = Json::parse(bent.out).at("files");
  EXPECT_EQ(files.at(0).at("faults").at(0).at("name"), "corrupt_data");
  EXPECT_EQ(files.at(1).at("faults").at(0).at("name"), "file_not_found");
}

TEST_F(KeyCommand, WhatFailsHalfwayLeavesNothing) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  make_ca_and_member();
  for (const char* const point : {"atomic_file.commit=error@2", "atomic_file.commit=error@3"}) {
    const Variable failpoints("TENDON_FAILPOINTS", point);
    const Ended failed = key({"cert", "--ca", path("ca"), "--name", "a", path("half")});
    EXPECT_EQ(failed.code, error_info(ErrorCode::system).exit_code) << failed.err;
    EXPECT_TRUE(std::filesystem::is_empty(path("half"))) << point;
  }
}

TEST_F(KeyCommand, CertRefusesWhatItCannotKeep) {
  make_ca_and_member();
  const auto cert = [&](const std::string& name, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"cert", "--ca", path("ca"), "--name", name, path("out")});
    return key(more);
  };
  EXPECT_TRUE(failed(cert("worker-3"), ErrorCode::permission_denied,
                     "worker-3.key' exists, and nothing replaces it; another folder takes"));
  EXPECT_TRUE(failed(key({"ca", path("ca")}), ErrorCode::permission_denied,
                     "ca.key' exists, and nothing replaces it; `tendon key cert --ca DIR`"));
  EXPECT_TRUE(failed(cert("a b"), ErrorCode::invalid_argument, "the name 'a b'"));
  EXPECT_TRUE(failed(cert("a", {"--dns", "*.example"}), ErrorCode::invalid_argument, "wildcards"));
  EXPECT_TRUE(failed(cert("a", {"--ip", "10.0.0"}), ErrorCode::invalid_argument, "10.0.0.5"));
  EXPECT_TRUE(failed(cert("a", {"--days", "0"}), ErrorCode::invalid_argument, "days"));
  EXPECT_TRUE(failed(cert("a", {"--days", "826"}), ErrorCode::invalid_argument, "days"));
  EXPECT_EQ(cert("a", {"--days", "825"}).code, 0);
}

/// The value of a line of /proc/PID/limits or of another such file.
std::string line_of_process(pid_t pid, const std::string& file, const std::string& begin) {
  std::ifstream lines("/proc/" + std::to_string(pid) + "/" + file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(begin)) return line;
  return {};
}

/// The command line of `tendon` in a group of its own: /proc belongs to root and its group only
/// where a process leaves no dump.
std::string in_a_group_of_its_own(const std::string& words) {
  return "exec setpriv --regid=65534 --clear-groups " TENDON_CLI_PATH " " + words;
}
bool may_change_group() { return geteuid() == 0 && access("/usr/bin/setpriv", X_OK) == 0; }

bool leaves_dumps(pid_t pid) {
  struct stat facts {};
  return stat(("/proc/" + std::to_string(pid) + "/status").c_str(), &facts) != 0 ||
         facts.st_gid != 0;
}

TEST_F(KeyCommand, WhatHasReadAKeyLeavesNoDump) {
  if (!may_change_group()) GTEST_SKIP() << "only root can change its group, by setpriv";
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  ASSERT_EQ(mkfifo(path("full").c_str(), 0600), 0);
  // The process has read the key before it writes, and then waits: the FIFO is full.
  const std::string script = "exec 3<>" + path("full") +
                             "; head -c 65536 /dev/zero >&3; echo filled >&2; " +
                             in_a_group_of_its_own("key show " + path("fleet.key") + " >&3");
  Command command({"-c", script}, "/bin/sh");
  command.wait_for_err("filled");
  EXPECT_TRUE(eventually([&] {
    return line_of_process(command.pid(), "comm", "tendon") == "tendon" &&
           !leaves_dumps(command.pid());
  })) << "the process may be dumped";
  EXPECT_THAT(line_of_process(command.pid(), "status", "Gid:"), HasSubstr("65534"));
  EXPECT_THAT(line_of_process(command.pid(), "limits", "Max core file size"),
              MatchesRegex("Max core file size +0 +0 .*"));
}

TEST_F(KeyCommand, WhatListensWithAKeyLeavesNoDump) {
  if (!may_change_group()) GTEST_SKIP() << "only root can change its group, by setpriv";
  ASSERT_EQ(key({"new", path("fleet.key")}).code, 0);
  const std::string recv = "recv 127.0.0.1:0 -o " + folder_.path().string();
  Command with_key({"-c", in_a_group_of_its_own(recv + " --key " + path("fleet.key"))}, "/bin/sh");
  with_key.wait_for_err("tendon: listening on ");
  EXPECT_FALSE(leaves_dumps(with_key.pid()));
  EXPECT_THAT(line_of_process(with_key.pid(), "limits", "Max core file size"),
              MatchesRegex("Max core file size +0 +0 .*"));
  Command without({"-c", in_a_group_of_its_own(recv)}, "/bin/sh");
  without.wait_for_err("tendon: listening on ");
  EXPECT_TRUE(leaves_dumps(without.pid())) << "it has nothing to hide";
}

/// The processes that a process has started; its own id first.
std::vector<pid_t> family_of(pid_t parent) {
  std::vector<pid_t> all{parent};
  const std::string tasks = "/proc/" + std::to_string(parent) + "/task";
  std::error_code gone;
  for (std::filesystem::directory_iterator task(tasks, gone), end; !gone && task != end;
       task.increment(gone)) {
    std::ifstream children(task->path() / "children");
    for (pid_t child = 0; children >> child;) all.push_back(child);
  }
  return all;
}

TEST_F(KeyCommand, BothEndsOfABenchmarkWithKeysLeaveNoDump) {
  if (!may_change_group()) GTEST_SKIP() << "only root can change its group, by setpriv";
  Command bench({"-c", in_a_group_of_its_own("bench secure --messages 64 --rounds 1 -n 10000000")},
                "/bin/sh");
  const auto words_of = [](pid_t pid) { return line_of_process(pid, "cmdline", ""); };
  EXPECT_TRUE(eventually([&] {
    const auto family = family_of(bench.pid());
    // A child that is still a copy of its parent leaves no dump in any case.
    return family.size() == 2 && words_of(family[1]) != words_of(family[0]) &&
           std::ranges::none_of(family, leaves_dumps);
  })) << "a process may be dumped";
}

}  // namespace
}  // namespace tendon::test
