// SPDX-License-Identifier: Apache-2.0
// `tendon launch` from a user's view: the environment of each rank, the output on each stream, the
// rank that is blamed. Nothing outlives the command.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/session/address.hpp>
#include <vector>

#include "process/command.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;
using namespace std::string_literals;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// `tendon launch FLAGS -- sh -c SCRIPT`.
Words script_words(Words flags, const std::string& script) {
  Words words = {"launch"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"--", "/bin/sh", "-c", script});
  return words;
}
Ended run_script(const Words& flags, const std::string& script) {
  return run_tendon(script_words(flags, script));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
/// The lines of one rank, without their tag.
std::vector<std::string> lines_of_rank(const std::string& text, int rank) {
  const std::string tag = "[rank " + std::to_string(rank) + "] ";
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(text))
    if (line.starts_with(tag)) lines.push_back(line.substr(tag.size()));
  return lines;
}
std::map<std::string, std::string> variables_of(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : lines)
    variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return variables;
}
std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Wakes a process that waits for a line: `read line <PATH`.
class Fifo {
 public:
  Fifo() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    // Opened for both directions, so that nobody waits for the other one to open it.
    fd_ = detail::OwnedFd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void hold_one_page() const { EXPECT_EQ(fcntl(fd_.get(), F_SETPIPE_SZ, 4096), 4096); }
  void tell(const std::string& word) const {
    EXPECT_EQ(write(fd_.get(), (word + "\n").data(), word.size() + 1),
              static_cast<ssize_t>(word.size() + 1));
  }
  /// Reads up to the end of the first line with `word`.
  [[nodiscard]] std::string read_until(const std::string& word) const {
    std::string text;
    for (auto at = text.npos; at == text.npos || text.find('\n', at) == text.npos;
         at = text.find(word)) {
      pollfd ready{fd_.get(), POLLIN, 0};
      std::array<char, 4096> buffer;
      if (poll(&ready, 1, std::chrono::milliseconds(kPatience).count()) != 1) {
        ADD_FAILURE() << "no line with '" << word << "' in " << text.size() << " bytes";
        return text;
      }
      const ssize_t size = read(fd_.get(), buffer.data(), buffer.size());
      if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
    }
    return text;
  }

 private:
  ScratchDir folder_;
  std::string path_ = (folder_.path() / "fifo").string();
  detail::OwnedFd fd_;
};

/// A launcher that writes to `out`, which only the test reads.
Command launcher_into(const Fifo& out, const Words& flags, const std::string& script) {
  Words words = {"-c", "out=$1; shift; exec \"$@\" >$out", "sh", out.path(), TENDON_CLI_PATH};
  const Words launch = script_words(flags, script);
  words.insert(words.end(), launch.begin(), launch.end());
  return Command(words, "/bin/sh");
}

// Environment ---------------------------------------------------------------------------------

TEST(Launch, EachRankIsToldItsPlace) {
  setenv("RANK", "77", 1);
  setenv("LAUNCH_TEST_KEPT", "a=b", 1);
  unsetenv("OMP_NUM_THREADS");
  const Ended ended = run_script({"-n", "3"}, "env");
  unsetenv("RANK");
  unsetenv("LAUNCH_TEST_KEPT");
  ASSERT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_EQ(ended.err, "");
  std::set<std::string> rendezvous;
  std::set<std::string> ports;
  std::set<std::string> runs;
  for (int rank = 0; rank < 3; ++rank) {
    auto seen = variables_of(lines_of_rank(ended.out, rank));
    EXPECT_EQ(seen["RANK"], std::to_string(rank));
    EXPECT_EQ(seen["LOCAL_RANK"], std::to_string(rank));
    EXPECT_EQ(seen["WORLD_SIZE"], "3");
    EXPECT_EQ(seen["LOCAL_WORLD_SIZE"], "3");
    EXPECT_EQ(seen["MASTER_ADDR"], "127.0.0.1");
    EXPECT_EQ(seen["TENDON_RESTART"], "0");
    EXPECT_EQ(seen["OMP_NUM_THREADS"], "1");
    EXPECT_EQ(seen["LAUNCH_TEST_KEPT"], "a=b");
    EXPECT_TRUE(succeeds(Address::parse(seen["TENDON_RENDEZVOUS"])));
    EXPECT_EQ(seen["TENDON_RUN_ID"].size(), 32U);
    rendezvous.insert(seen["TENDON_RENDEZVOUS"]);
    ports.insert(seen["MASTER_PORT"]);
    runs.insert(seen["TENDON_RUN_ID"]);
  }
  EXPECT_EQ(rendezvous.size(), 1U);
  EXPECT_EQ(ports.size(), 1U);
  EXPECT_EQ(runs.size(), 1U);
  const Ended again = run_script({"-n", "1"}, "env");
  auto seen = variables_of(lines_of_rank(again.out, 0));
  EXPECT_FALSE(rendezvous.contains(seen["TENDON_RENDEZVOUS"]));
  EXPECT_FALSE(runs.contains(seen["TENDON_RUN_ID"]));
  EXPECT_FALSE(seen.contains("OMP_NUM_THREADS")) << "one rank may use every core";
}

TEST(Launch, WhatTheUserSetsIsKept) {
  setenv("OMP_NUM_THREADS", "3", 1);
  const Ended ended = run_script({"-n", "2", "--rendezvous", "127.0.0.1:7011"},
                                 "echo $OMP_NUM_THREADS $TENDON_RENDEZVOUS");
  unsetenv("OMP_NUM_THREADS");
  EXPECT_THAT(lines_of(ended.out),
              UnorderedElementsAre("[rank 0] 3 127.0.0.1:7011", "[rank 1] 3 127.0.0.1:7011"));
}

TEST(Launch, RanksOfSeveralNodesCountOn) {
  const Ended ended = run_script(
      {"-n", "2", "--nodes", "3", "--node-rank", "1", "--rendezvous", "10.1.2.3:500"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $TENDON_RENDEZVOUS $MASTER_ADDR "
      "$MASTER_PORT");
  EXPECT_THAT(lines_of(ended.out),
              UnorderedElementsAre("[rank 2] 2 6 0 2 10.1.2.3:500 10.1.2.3 501",
                                   "[rank 3] 3 6 1 2 10.1.2.3:500 10.1.2.3 501"));
}

TEST(Launch, ThePortIsFreeForARankAndForNobodyElse) {
  Command launcher(script_words({"-n", "1"}, "echo port $MASTER_PORT >&2; exec tail -f /dev/null"));
  const std::string port = launcher.wait_for_err("[rank 0] port ");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  const auto bound = [&](int reuse) {
    const detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
           listen(fd.get(), 1) == 0;
  };
  EXPECT_FALSE(bound(0));
  EXPECT_TRUE(bound(1)) << "a server that sets SO_REUSEADDR, as torch's store does";
}

// Output --------------------------------------------------------------------------------------

TEST(Launch, EachStreamIsTaggedLineByLine) {
  const Ended ended =
      run_script({"-n", "2"}, "echo to out; echo; echo to err >&2; printf 'no end'");
  EXPECT_EQ(ended.code, 0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(lines_of_rank(ended.out, rank), (Words{"to out", "", "no end"}));
    EXPECT_EQ(lines_of_rank(ended.err, rank), (Words{"to err"}));
  }
  EXPECT_THAT(ended.out, EndsWith("no end\n"));
}

TEST(Launch, LinesOfSeveralRanksNeverMix) {
  // Written in pieces, on both streams, into one pipe.
  const std::string script =
      "exec 2>&1; i=0; while [ $i -lt 300 ]; do printf 'a%s' $RANK; printf 'b%s' $RANK; "
      "echo c$RANK; i=$((i+1)); done";
  const Ended ended = run_script({"-n", "3"}, script);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string digit = std::to_string(rank);
    const auto lines = lines_of_rank(ended.out, rank);
    EXPECT_EQ(lines.size(), 300U);
    EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()),
              std::set<std::string>{"a" + digit + "b" + digit + "c" + digit});
  }
  EXPECT_EQ(lines_of(ended.out).size(), 900U);
}

TEST(Launch, BothStreamsIntoOnePipeStayWholeLines) {
  const std::string launch = std::string(TENDON_CLI_PATH) +
                             " launch -n 2 -- /bin/sh -c 'yes out-out-out | head -n 20000 & "
                             "yes err-err-err | head -n 20000 >&2; wait' 2>&1";
  const Ended ended = Command({"-c", launch}, "/bin/sh").finish();
  std::map<std::string, int> counts;
  for (const std::string& line : lines_of(ended.out)) ++counts[line];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"[rank 0] out-out-out", 20'000},
                                                {"[rank 0] err-err-err", 20'000},
                                                {"[rank 1] out-out-out", 20'000},
                                                {"[rank 1] err-err-err", 20'000}}));
}

TEST(Launch, BytesPassUnchanged) {
  const Ended ended = run_script({"-n", "1"}, R"(printf '\000\001\033[2J\377\302\233\r\n\000')");
  EXPECT_EQ(ended.out, "[rank 0] \0\x01\x1b[2J\xff\xc2\x9b\r\n[rank 0] \0\n"s);
}

TEST(Launch, ALongLineIsCutIntoPieces) {
  const std::size_t limit = 64 * 1024;
  for (const std::size_t size : {limit - 1, limit, limit + 1, 3 * limit, 3 * limit + 5}) {
    const Ended ended = run_script(
        {"-n", "1"}, "head -c " + std::to_string(size) + " /dev/zero | tr '\\0' x; echo; echo end");
    std::string expected;
    for (std::size_t done = 0; done < size; done += limit)
      expected += "[rank 0] " + std::string(std::min(limit, size - done), 'x') + "\n";
    EXPECT_TRUE(ended.out == expected + "[rank 0] end\n") << size << ": " << ended.out.size();
  }
}

TEST(Launch, MuchOutputArrivesWhole) {
  // More than any pipe or buffer on the way holds.
  const Ended ended = run_script({"-n", "2"}, "seq 400000");
  for (int rank = 0; rank < 2; ++rank) {
    const auto lines = lines_of_rank(ended.out, rank);
    ASSERT_EQ(lines.size(), 400'000U);
    for (std::size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], std::to_string(i + 1));
  }
}

TEST(Launch, WithoutTagsTheRanksWriteThemselves) {
  const Ended ended = run_script({"-n", "1", "--no-tag"}, "printf 'a\\nb'; printf c >&2");
  EXPECT_EQ(ended.out, "a\nb");
  EXPECT_EQ(ended.err, "c");
}

TEST(Launch, FilesTakeTheOutputOfEachRankAndOfEachStart) {
  const ScratchDir folder;
  const std::filesystem::path deep = folder.path() / "a" / "b";
  const Ended ended = run_script({"-n", "2", "--restart", "1", "--output-dir", deep.string()},
                                 "echo out $RANK $TENDON_RESTART; echo err $RANK >&2; "
                                 "[ $RANK$TENDON_RESTART != 10 ]");
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(read_file(deep / "rank_0.out"), "out 0 0\nout 0 1\n");
  EXPECT_EQ(read_file(deep / "rank_1.out"), "out 1 0\nout 1 1\n");
  EXPECT_EQ(read_file(deep / "rank_1.err"), "err 1\nerr 1\n");
  const Ended second = run_script({"-n", "1", "--output-dir", deep.string()}, "echo anew");
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(read_file(deep / "rank_0.out"), "anew\n");
}

TEST(Launch, AReaderThatGoesEndsTheWriters) {
  const std::string launch = std::string(TENDON_CLI_PATH) + " launch -n 2 -- yes";
  const Ended gone =
      Command({"-c", "(" + launch + "; echo code $? >&2) | head -n 1"}, "/bin/sh").finish();
  EXPECT_THAT(gone.out, testing::MatchesRegex("\\[rank [01]\\] y\n"));
  EXPECT_THAT(gone.err, HasSubstr("killed by signal 13 (SIGPIPE)"));
  EXPECT_THAT(gone.err, EndsWith("code 141\n"));
  const Ended closed = Command({"-c", launch + " >&-"}, "/bin/sh").finish();
  EXPECT_EQ(closed.code, 141) << testing::PrintToString(closed);
}

TEST(Launch, OnlyRankZeroGetsTheInput) {
  const std::string launch = std::string(TENDON_CLI_PATH) + " launch -n 3 -- cat";
  const Ended ended = Command({"-c", "printf 'a\\nb\\n' | " + launch}, "/bin/sh").finish();
  EXPECT_EQ(ended.out, "[rank 0] a\n[rank 0] b\n");
  EXPECT_EQ(ended.code, 0);
}

TEST(Launch, AWriterLearnsThatRankZeroClosedItsInput) {
  // This would take for ever if the launcher kept the reading end: rank 0 waits for the writer's
  // end.
  const Fifo fifo;
  const std::string launch = std::string(TENDON_CLI_PATH) +
                             " launch -n 1 -- /bin/sh -c 'exec <&-; read line <" + fifo.path() +
                             "; echo $line'";
  const Ended ended =
      Command({"-c", "(yes; echo writer >" + fifo.path() + ") 2>/dev/null | " + launch}, "/bin/sh")
          .finish();
  EXPECT_EQ(ended.out, "[rank 0] writer\n");
}

// Failures ------------------------------------------------------------------------------------

TEST(Launch, TheFirstFailureIsNamedAndItsCodeIsTheExitCode) {
  // Ranks 0 and 2 wait to be ended; they answer SIGTERM with another failure.
  const Fifo ready;
  const Ended ended = run_script({"-n", "3", "--grace", "0"},
                                 "[ $RANK = 1 ] && { read a; read a; exit 3; } <" + ready.path() +
                                     "; trap 'exit 9' TERM; tail -f /dev/null & echo >" +
                                     ready.path() + "; while :; do wait; done");
  EXPECT_EQ(ended.code, 3);
  const auto lines = lines_of(ended.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0],
              testing::MatchesRegex("tendon: rank 1 \\(pid [0-9]+\\) failed first: exit code 3"));
  // A shell that gets no CPU for two seconds is killed before it answers.
  EXPECT_THAT(ended.err, testing::AnyOf(HasSubstr("tendon: ranks 0, 2: exit code 9\n"),
                                        HasSubstr("killed by signal 9 (SIGKILL) from this")));
}

TEST(Launch, ASignalIsNamedAndCounted) {
  const Ended ended = run_script({"-n", "2"}, "[ $RANK = 1 ] || exit 0; kill -KILL $$");
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ended.err, HasSubstr("failed first: killed by signal 9 (SIGKILL)\n"));
  EXPECT_THAT(ended.err, HasSubstr("tendon: rank 0: exit code 0\n"));
}

TEST(Launch, WhatARankSaidStandsBeforeItsFailure) {
  const Ended ended = run_script({"-n", "1"}, "echo reason >&2; exit 1");
  EXPECT_THAT(ended.err, StartsWith("[rank 0] reason\ntendon: rank 0 "));
}

TEST(Launch, OthersMayEndByThemselvesWithinTheGrace) {
  const Fifo fifo;
  Command launcher(
      script_words({"-n", "2", "--grace", "1000000"},
                   "[ $RANK = 1 ] && exit 4; read line <" + fifo.path() + "; echo $line; exit 5"));
  launcher.wait_for_err("tendon: the other ranks have ");
  fifo.tell("survived");
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.out, "[rank 0] survived\n");
  EXPECT_THAT(ended.err, HasSubstr("tendon: rank 0: exit code 5\n"));
  EXPECT_EQ(ended.code, 4);
}

TEST(Launch, WhoIgnoresSigtermIsKilled) {
  const Fifo ready;
  const Ended ended = run_script({"-n", "2", "--grace", "0"},
                                 "[ $RANK = 1 ] && { read a; exit 4; } <" + ready.path() +
                                     "; trap '' TERM; echo >" + ready.path() +
                                     "; while :; do tail -f /dev/null; done");
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err,
              HasSubstr("tendon: rank 0: killed by signal 9 (SIGKILL) from this launcher\n"));
}

TEST(Launch, AStoppedRankIsEndedToo) {
  const Ended ended =
      run_script({"-n", "2", "--grace", "0"}, "[ $RANK = 1 ] && exit 4; kill -STOP $$; exit 5");
  EXPECT_EQ(ended.code, 4);
  EXPECT_THAT(ended.err,
              testing::AnyOf(HasSubstr("tendon: rank 0: killed by signal 15 (SIGTERM)"),
                             HasSubstr("tendon: rank 0: killed by signal 9 (SIGKILL) from this")));
}

TEST(Launch, KeepGoingLetsTheSurvivorsFinish) {
  const Fifo fifo;
  // Rank 0 continues only after the launcher has said that rank 1 failed.
  Command launcher(
      script_words({"-n", "2", "--keep-going", "--grace", "0"},
                   "[ $RANK = 1 ] && kill -KILL $$; read line <" + fifo.path() + "; echo $line"));
  launcher.wait_for_err("tendon: the other ranks go on");
  fifo.tell("done");
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.out, "[rank 0] done\n");
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_THAT(ended.err, HasSubstr("failed first: killed by signal 9"));
  const Ended all = run_script({"-n", "2", "--keep-going"}, "exit 5");
  EXPECT_EQ(all.code, 5) << "nobody finished";
}

TEST(Launch, TheSummaryIsOneLineOfJson) {
  const Ended ended =
      run_script({"-n", "2", "--json"}, "echo data; [ $RANK = 0 ] || kill -ABRT $$");
  const auto lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 3U) << ended.out;
  const Json summary = Json::parse(lines.back());
  EXPECT_EQ(summary["exit_code"], 128 + SIGABRT);
  EXPECT_EQ(summary["first_failed"], 1);
  EXPECT_EQ(summary["restarts"], 0);
  EXPECT_EQ(summary["ranks"][0]["exit_code"], 0);
  EXPECT_TRUE(summary["ranks"][0]["signal"].is_null());
  EXPECT_TRUE(summary["ranks"][1]["exit_code"].is_null());
  EXPECT_EQ(summary["ranks"][1]["signal"], SIGABRT);
}

// Restarts ------------------------------------------------------------------------------------

TEST(Launch, ARestartStartsAllRanksAfresh) {
  const Ended ended = run_script({"-n", "2", "--restart", "5"},
                                 "echo $TENDON_RESTART $TENDON_RUN_ID $TENDON_RENDEZVOUS; "
                                 "[ $RANK = 0 ] || [ $TENDON_RESTART = 2 ]");
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  std::set<std::string> rendezvous;
  std::set<std::string> runs;
  for (int rank = 0; rank < 2; ++rank) {
    const auto lines = lines_of_rank(ended.out, rank);
    ASSERT_EQ(lines.size(), 3U) << ended.out;
    for (int restart = 0; restart < 3; ++restart) {
      std::istringstream words(lines[static_cast<std::size_t>(restart)]);
      int seen = -1;
      std::string run;
      std::string address;
      words >> seen >> run >> address;
      EXPECT_EQ(seen, restart);
      runs.insert(run);
      rendezvous.insert(address);
    }
  }
  EXPECT_EQ(runs.size(), 1U);
  EXPECT_EQ(rendezvous.size(), 3U) << "each start meets at an address of its own";
  EXPECT_THAT(ended.err, HasSubstr("tendon: restart 2 of 5\n"));
}

TEST(Launch, RestartsAreCounted) {
  const Ended ended = run_script({"-n", "1", "--restart", "2"}, "echo try; exit 6");
  EXPECT_EQ(ended.code, 6);
  EXPECT_EQ(lines_of(ended.out).size(), 3U);
}

// Signals -------------------------------------------------------------------------------------

/// Prints on stderr that it is ready, then waits; a signal of `name` makes it print and end.
std::string waits_for(const std::string& name) {
  return "trap 'echo got " + name + "; exit 0' " + name +
         "; tail -f /dev/null & echo ready >&2; while :; do wait; done";
}

TEST(Launch, SignalsReachEveryRank) {
  for (const auto& [number, name] : std::map<int, std::string>{{SIGINT, "INT"},
                                                               {SIGTERM, "TERM"},
                                                               {SIGHUP, "HUP"},
                                                               {SIGQUIT, "QUIT"},
                                                               {SIGUSR1, "USR1"}}) {
    // A shell's child ignores SIGINT and SIGQUIT if its parent did.
    signal(number, SIG_DFL);
    Command launcher(script_words({"-n", "2", "--grace", "0"}, waits_for(name)));
    for (int rank = 0; rank < 2; ++rank) launcher.wait_for_err("[rank ");
    launcher.signal(number);
    const Ended ended = launcher.finish();
    EXPECT_THAT(lines_of(ended.out),
                UnorderedElementsAre("[rank 0] got " + name, "[rank 1] got " + name));
    EXPECT_EQ(ended.code, 0) << "all ranks ended well after " << name;
  }
}

TEST(Launch, WhatTheCallerIgnoresStaysIgnored) {
  // Among pending signals the lower number is taken first.
  Words words = {"-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh", TENDON_CLI_PATH};
  const Words launch = script_words({"-n", "1"}, waits_for("TERM"));
  words.insert(words.end(), launch.begin(), launch.end());
  Command launcher(words, "/bin/sh");
  launcher.wait_for_err("[rank 0] ready");
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) launcher.signal(number);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "[rank 0] got TERM\n");
  EXPECT_EQ(ended.err,
            "[rank 0] ready\n"
            "tendon: SIGTERM: passed on to the ranks; a second one kills them\n");
}

TEST(Launch, ARankThatDiesOfThePassedSignalGivesTheExitCode) {
  Command launcher(
      script_words({"-n", "2", "--restart", "3"}, "echo ready >&2; exec tail -f /dev/null"));
  for (int rank = 0; rank < 2; ++rank) launcher.wait_for_err("[rank ");
  launcher.signal(SIGTERM);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_THAT(ended.err, Not(HasSubstr("restart"))) << "the user wants an end";
}

TEST(Launch, ASecondSignalKills) {
  signal(SIGINT, SIG_DFL);
  Command launcher(script_words({"-n", "2"},
                                "trap 'echo deaf >&2' INT; tail -f /dev/null & echo ready >&2; "
                                "while :; do wait; done"));
  for (int rank = 0; rank < 2; ++rank) launcher.wait_for_err("[rank ");
  launcher.signal(SIGINT);
  for (int rank = 0; rank < 2; ++rank) launcher.wait_for_err("[rank ");
  // Signals that arrive soon after the first count as the same request.
  EXPECT_TRUE(eventually([&] { return launcher.has_said("SIGINT again: killing the ranks"); },
                         [&] { launcher.signal(SIGINT); }));
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 128 + SIGINT);
}

TEST(Launch, ATerminalThatClosesAsksOnce) {
  // A shell that ends sends SIGHUP to its jobs, and the kernel does so after the shell has ended.
  signal(SIGHUP, SIG_DFL);
  Command launcher(script_words(
      {"-n", "1"},
      "trap 'echo hung up >&2' HUP; trap 'echo saved; exit 0' USR1; "
      "(trap '' HUP; exec tail -f /dev/null) & echo ready >&2; while :; do wait; done"));
  launcher.wait_for_err("[rank 0] ready");
  launcher.signal(SIGHUP);
  launcher.wait_for_err("[rank 0] hung up");
  launcher.signal(SIGHUP);
  launcher.signal(SIGUSR1);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_EQ(ended.out, "[rank 0] saved\n");
}

TEST(Launch, TwoSignalsAtOnceAreOneRequest) {
  // As timeout(1) does: to the process, then to its group. Two signals of one number could merge.
  using Clock = std::chrono::steady_clock;
  signal(SIGINT, SIG_DFL);
  Ended ended;
  Clock::duration took{};
  do {
    Command launcher(script_words({"-n", "1"},
                                  "trap : INT; trap 'echo saved; exit 0' TERM; tail -f /dev/null & "
                                  "echo ready >&2; while :; do wait; done"));
    launcher.wait_for_err("[rank 0] ready");
    const auto start = Clock::now();
    launcher.signal(SIGINT);
    launcher.signal(SIGTERM);
    ended = launcher.finish();
    took = Clock::now() - start;
    // A machine that took that long may have passed them on as two requests.
  } while (ended.code != 0 && took >= std::chrono::milliseconds(500));
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_EQ(ended.out, "[rank 0] saved\n");
}

TEST(Launch, AfterASignalTheOutputStillArrivesWhole) {
  const Fifo out;
  const Fifo go;
  Command launcher = launcher_into(
      out, {"-n", "1", "--json"},
      "trap '' TERM; echo ready >&2; read line <" + go.path() + "; seq 30000; exit 3");
  launcher.wait_for_err("[rank 0] ready");
  launcher.signal(SIGTERM);
  launcher.wait_for_err("tendon: SIGTERM: passed on");
  go.tell("on");
  // The only rank has ended; only its output is left to write.
  launcher.wait_for_err("tendon: rank 0 (pid ");
  const std::string text = out.read_until("\"exit_code\"");
  EXPECT_EQ(launcher.finish().code, 3);
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 30'001U);
  EXPECT_EQ(lines[29'999], "[rank 0] 30000");
  EXPECT_EQ(Json::parse(lines.back())["exit_code"], 3);
}

TEST(Launch, ASignalDropsOutputThatNobodyReadsAtTheEndOfALine) {
  signal(SIGINT, SIG_DFL);
  const Fifo out;
  Command launcher = launcher_into(out, {"-n", "1", "--json"}, "seq 30000; exit 3");
  launcher.wait_for_err("tendon: rank 0 (pid ");
  launcher.signal(SIGINT);
  launcher.wait_for_err("tendon: SIGINT: the rest of the output is dropped");
  const std::string text = out.read_until("\"exit_code\"");
  EXPECT_EQ(launcher.finish().code, 3);
  const auto lines = lines_of(text);
  ASSERT_LT(lines.size(), 30'001U);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i)
    ASSERT_EQ(lines[i], "[rank 0] " + std::to_string(i + 1));
  EXPECT_TRUE(Json::accept(lines.back())) << lines.back();
}

// Nothing is left -------------------------------------------------------------------------------

/// A process that loses its parent becomes a child of this process, where the test can see it.
class LaunchOrphans : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }
  void TearDown() override {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    for (const pid_t pid : living_children()) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
  }

  static std::vector<pid_t> living_children() { return living_children_of(getpid()); }
  static std::optional<pid_t> child_of(pid_t parent) {
    const auto children = living_children_of(parent);
    return children.empty() ? std::nullopt : std::optional(children.front());
  }
  static std::vector<pid_t> living_children_of(pid_t wanted) {
    std::vector<pid_t> pids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "stat");
      std::string text;
      std::getline(file, text);
      const auto end = text.rfind(") ");
      if (end == std::string::npos) continue;
      std::istringstream rest(text.substr(end + 2));
      char state = 0;
      pid_t parent = 0;
      rest >> state >> parent;
      if (parent == wanted && state != 'Z') pids.push_back(std::stoi(text));
    }
    return pids;
  }
  /// Each rank has a child in its process group and one in a session of its own, and prints the
  /// pids of all three.
  static std::string family() {
    return "tail -f /dev/null & a=$!; setsid tail -f /dev/null & "
           "echo \"$$ $a $!\" >&2; ";
  }
  static std::vector<pid_t> read_family(Command& launcher, int rank_count) {
    std::vector<pid_t> pids;
    for (int i = 0; i < rank_count; ++i) {
      std::istringstream line(launcher.wait_for_err("[rank "));
      std::string tag;
      line >> tag;
      for (pid_t pid = 0; line >> pid;) pids.push_back(pid);
    }
    EXPECT_EQ(pids.size(), static_cast<std::size_t>(3 * rank_count));
    return pids;
  }
  static bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }
  /// The pid of the parent of `pid`.
  static pid_t parent_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    std::istringstream rest(text.substr(text.rfind(") ") + 2));
    char state = 0;
    pid_t parent = -1;
    rest >> state >> parent;
    return parent;
  }
};

TEST_F(LaunchOrphans, NoneIsLeftWhenTheLauncherIsKilled) {
  Command launcher(script_words({"-n", "2"}, family() + "wait"));
  const std::vector<pid_t> family = read_family(launcher, 2);
  const pid_t inner = parent_of(family[0]);
  launcher.signal(SIGKILL);
  // The inner process is the last: it ends the rest, and then itself.
  EXPECT_EQ(launcher.finish().code, 128 + SIGKILL);
  wait_for(inner);
  EXPECT_THAT(living_children(), IsEmpty());
  for (const pid_t pid : family) EXPECT_TRUE(is_gone(pid)) << pid;
}

TEST_F(LaunchOrphans, NothingIsStartedAgainWhenTheLauncherIsKilled) {
  const Fifo out;
  Command launcher = launcher_into(out, {"-n", "1", "--restart", "1"}, "seq 30000; exit 3");
  // The inner process then waits for a reader of the rest.
  launcher.wait_for_err("tendon: rank 0 (pid ");
  launcher.signal(SIGKILL);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ended.err, Not(HasSubstr("restart")));
}

TEST_F(LaunchOrphans, NoneIsLeftWhenItsOtherProcessIsKilled) {
  Command launcher(script_words({"-n", "2"}, family() + "wait"));
  const std::vector<pid_t> family = read_family(launcher, 2);
  kill(parent_of(family[0]), SIGKILL);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, error_info(ErrorCode::internal).exit_code) << testing::PrintToString(ended);
  EXPECT_THAT(ended.err, HasSubstr("was killed by signal 9"));
  EXPECT_THAT(living_children(), IsEmpty());
  for (const pid_t pid : family) EXPECT_TRUE(is_gone(pid)) << pid;
}

TEST_F(LaunchOrphans, TheRanksDieEvenWhenBothAreKilledAtOnce) {
  Command launcher(script_words({"-n", "2"}, "echo $$ >&2; exec tail -f /dev/null >/dev/null"));
  std::vector<pid_t> ranks;
  for (int i = 0; i < 2; ++i) {
    const std::string line = launcher.wait_for_err("[rank ");
    ranks.push_back(std::stoi(line.substr(line.find(' '))));
  }
  const pid_t inner = parent_of(ranks[0]);
  // While both are stopped, neither can react to the death of the other.
  kill(inner, SIGSTOP);
  launcher.signal(SIGKILL);
  kill(inner, SIGKILL);
  EXPECT_EQ(launcher.finish().code, 128 + SIGKILL);
  wait_for(inner);
  for (const pid_t pid : ranks) {
    wait_for(pid);  // it would take for ever if the process lived
    EXPECT_TRUE(is_gone(pid));
  }
}

// This holds also before there is a rank, or between two.
TEST_F(LaunchOrphans, TheRanksEndWhicheverMomentOfTheStartOneIsKilledIn) {
  constexpr int kRanks = 4;
  enum class Victim : std::uint8_t { outer, inner, both };
  for (const Victim victim : {Victim::outer, Victim::inner, Victim::both}) {
    for (int started = 0; started <= kRanks; ++started) {
      SCOPED_TRACE("victim " + std::to_string(int(victim)) + ", ranks " + std::to_string(started));
      Command launcher(script_words({"-n", std::to_string(kRanks)},
                                    "echo $$ >&2; exec tail -f /dev/null >/dev/null"));
      std::optional<pid_t> inner;
      ASSERT_TRUE(eventually([&] { return (inner = child_of(launcher.pid())).has_value(); }));
      for (int i = 0; i < started; ++i) launcher.wait_for_err("[rank ");
      if (victim != Victim::inner) launcher.signal(SIGKILL);
      if (victim != Victim::outer) kill(*inner, SIGKILL);
      EXPECT_NE(launcher.finish().code, 0);
      EXPECT_TRUE(eventually([] {
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        return living_children().empty();
      }));
    }
  }
}

// The inner process waits for a reader to take the end of a line, or the text after it, and would
// wait for ever.
TEST_F(LaunchOrphans, TheOtherProcessEndsAlthoughNobodyReads) {
  signal(SIGINT, SIG_DFL);
  // With its tag a line has 64 bytes: the pipe, one page, ends with a whole line or with a part.
  const std::string line(54, 'y');
  for (const std::string& first : {line, line + "y"}) {
    const Fifo out;
    out.hold_one_page();
    // In one write: the launcher fills the page with a single write of its own.
    Command launcher = launcher_into(out, {"-n", "1", "--json"},
                                     "{ echo " + first + "; yes " + line +
                                         " | head -n 3000; } | dd bs=1M iflag=fullblock "
                                         "2>/dev/null; exit 3");
    launcher.wait_for_err("tendon: rank 0 (pid ");
    const pid_t inner = child_of(launcher.pid()).value();
    launcher.signal(SIGINT);
    launcher.wait_for_err("tendon: SIGINT: the rest of the output is dropped");
    launcher.signal(SIGKILL);
    EXPECT_EQ(launcher.finish().code, 128 + SIGKILL);
    wait_for(inner);
    EXPECT_TRUE(is_gone(inner));
  }
}

TEST_F(LaunchOrphans, AFailureEndsWhatRanksStarted) {
  const Ended ended = run_script({"-n", "2", "--grace", "0"}, family() + "exit 1");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(living_children(), IsEmpty());
}

TEST_F(LaunchOrphans, SuccessEndsWhatRanksLeftBehindAfterTheGrace) {
  const Ended ended = run_script({"-n", "2", "--grace", "0.01"}, family() + "exit 0");
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_THAT(living_children(), IsEmpty());
}

TEST_F(LaunchOrphans, WhatARankLeftBehindMayFinishItsWork) {
  const Fifo fifo;
  Command launcher(script_words(
      {"-n", "1", "--grace", "1000000"},
      "setsid /bin/sh -c 'read line <" + fifo.path() + "; echo $line' & echo $$ >&2; exit 0"));
  const pid_t rank = std::stoi(launcher.wait_for_err("[rank 0] "));
  // The FIFO is opened when the reader exists; the rank itself may have ended by then.
  fifo.tell("uploaded");
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.code, 0) << testing::PrintToString(ended);
  EXPECT_EQ(ended.out, "[rank 0] uploaded\n");
  EXPECT_TRUE(is_gone(rank));
}

TEST_F(LaunchOrphans, ASignalReachesTheChildrenOfARank) {
  Command launcher(script_words({"-n", "1", "--grace", "0"},
                                "/bin/sh -c \"trap 'echo child; exit 0' TERM; tail -f /dev/null & "
                                "echo ready >&2; while :; do wait; done\" & trap '' TERM; wait"));
  launcher.wait_for_err("[rank 0] ready");
  launcher.signal(SIGTERM);
  const Ended ended = launcher.finish();
  EXPECT_EQ(ended.out, "[rank 0] child\n");
  EXPECT_THAT(living_children(), IsEmpty());
}

// Wrong use -----------------------------------------------------------------------------------

TEST(Launch, AWrongCommandLineStartsNothing) {
  const std::string created = "launch_test_must_not_exist";
  for (const Words& flags :
       {Words{}, Words{"-n", "0"}, Words{"-n", "257"}, Words{"-n", "two"},
        Words{"-n", "2", "--restart", "-1"}, Words{"-n", "2", "--grace", "-1"},
        Words{"-n", "2", "--nodes", "2"}, Words{"-n", "2", "--nodes", "2", "--node-rank", "2"},
        Words{"-n", "2", "--node-rank", "1"}, Words{"-n", "2", "--no-such-flag"},
        Words{"-n", "2", "--nodes", "2", "--rendezvous", "unix:@x"},
        Words{"-n", "2", "--nodes", "2", "--rendezvous", "h:65535"},
        Words{"-n", "2", "--nodes", "2", "--rendezvous", "h:1", "--restart", "1"},
        Words{"-n", "2", "--rendezvous", "nonsense"},
        Words{"-n", "2", "--no-tag", "--output-dir", "."}}) {
    const Ended ended = run_script(flags, "touch " + created);
    EXPECT_EQ(ended.code, 2) << testing::PrintToString(flags) << testing::PrintToString(ended);
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err, "");
  }
  EXPECT_EQ(run_tendon({"launch", "-n", "2"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(created));
}

TEST(Launch, AProgramThatCannotRunIsAnError) {
  const ScratchDir folder;
  const std::string plain = (folder.path() / "plain").string();
  std::ofstream(plain) << "text";
  const Ended missing = run_tendon({"launch", "-n", "2", "--json", "--", "no-such-program-x"});
  EXPECT_EQ(missing.code, error_info(ErrorCode::file_not_found).exit_code);
  EXPECT_THAT(missing.err, HasSubstr("'no-such-program-x'"));
  EXPECT_EQ(Json::parse(missing.out)["error"]["name"], "file_not_found");
  EXPECT_EQ(run_tendon({"launch", "-n", "2", "--", plain}).code,
            error_info(ErrorCode::permission_denied).exit_code);
  EXPECT_EQ(run_tendon({"launch", "-n", "2", "--", folder.path().string()}).code,
            error_info(ErrorCode::permission_denied).exit_code);
  // The file is found and executable, but cannot be run: only exec detects this.
  const std::string broken = (folder.path() / "broken").string();
  std::ofstream(broken) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  const Ended ended = run_tendon({"launch", "-n", "2", "--", broken});
  EXPECT_EQ(ended.code, error_info(ErrorCode::file_not_found).exit_code);
  EXPECT_THAT(ended.err, HasSubstr("broken"));
}

TEST(Launch, TheProgramsOwnFlagsAreItsOwn) {
  EXPECT_EQ(run_tendon({"launch", "-n", "1", "--", "/bin/echo", "-n", "2", "--", "--json"}).out,
            "[rank 0] 2 -- --json\n");
  EXPECT_EQ(run_tendon({"launch", "-n", "1", "/bin/echo", "--grace", "--", "x"}).out,
            "[rank 0] --grace -- x\n");
}

TEST(Launch, ARankFindsTheSignalsOfTheCaller) {
  // main() ignores SIGPIPE and the launcher blocks the signals that it passes on: the rank must
  // inherit neither.
  const std::string script = "grep -E 'Sig(Blk|Ign)' /proc/self/status";
  const auto masks_of = [](const std::vector<std::string>& lines) {
    std::vector<std::uint64_t> masks;
    for (const std::string& line : lines)
      // Only signals 1 to 31: sanitizers change those of the C library.
      masks.push_back(std::stoull(line.substr(line.find('\t')), nullptr, 16) & 0x7fffffff);
    return masks;
  };
  // Ranks start with the default for SIGPIPE. Here it is ignored after a test has made a Peer.
  const auto before = signal(SIGPIPE, SIG_DFL);
  const Ended ended = run_script({"-n", "1"}, script);
  const Ended direct = Command({"-c", script}, "/bin/sh").finish();
  signal(SIGPIPE, before);
  EXPECT_EQ(masks_of(lines_of_rank(ended.out, 0)), masks_of(lines_of(direct.out)));
  EXPECT_EQ(lines_of(direct.out).size(), 2U);
}

}  // namespace
}  // namespace tendon::test
