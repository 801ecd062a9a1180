// SPDX-License-Identifier: Apache-2.0
// `tendon bench` for collectives: ranks of its own and of a launcher, its output, and the uses that
// it refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tendon/core/error.hpp>
#include <utility>
#include <vector>

#include "process/command.hpp"

namespace tendon::test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words operator+(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

testing::AssertionResult succeeded(const Ended& ended) {
  if (ended.code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << testing::PrintToString(ended);
}

const Words kFewCalls = {"-n", "3", "-w", "1"};

/// One rank of two, as a launcher would start it.
class LaunchedRank {
 public:
  LaunchedRank(int rank, const std::string& meeting, const Words& arguments)
      : command_(
            Words{"RANK=" + std::to_string(rank), "WORLD_SIZE=2",
                  "TENDON_RENDEZVOUS=unix:@tendon-bench-test-" + std::to_string(getpid()) + meeting,
                  TENDON_CLI_PATH, "bench"} +
                arguments,
            "/usr/bin/env") {}
  Ended finish() { return command_.finish(); }

 private:
  Command command_;
};

struct Verb {
  std::string name;
  bool has_blocks;
  bool reduces;
  double bus_factor;  // with 2 ranks
};
void PrintTo(const Verb& verb, std::ostream* stream) { *stream << verb.name; }

class BenchCollective : public testing::TestWithParam<Verb> {};

TEST_P(BenchCollective, FindsNothingWrongInEitherMemory) {
  const Verb& verb = GetParam();
  // A few bytes, and more bytes than a slot of the shared memory has.
  const Ended ended = run_tendon(Words{"bench", verb.name, "--json", "-b", "8", "-e", "1M", "-f",
                                       "131072", "--memory", "both"} +
                                 kFewCalls);
  ASSERT_TRUE(succeeded(ended));
  const Json document = Json::parse(ended.out);
  EXPECT_EQ(document["benchmark"], verb.name);
  EXPECT_TRUE(document["machine"].contains("cpu"));
  const Json& rows = document["results"];
  ASSERT_EQ(rows.size(), 4U) << "two sizes in two memories";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const std::uint64_t size = i % 2 == 0 ? 8 : 1 << 20;
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["path"], "shm");
    EXPECT_EQ(row["mode"], verb.name);
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["memory"], i < 2 ? "ordinary" : "pool");
    EXPECT_EQ(row["size_bytes"], size);
    EXPECT_EQ(row["count"], size / 4 / (verb.has_blocks ? 2 : 1));
    EXPECT_EQ(row["type"], "f32");
    EXPECT_EQ(row["redop"], verb.reduces ? "sum" : "none");
    EXPECT_EQ(row["root"], verb.name == "broadcast" ? 0 : -1);
    EXPECT_GT(row["latency_us_min"].get<double>(), 0);
    EXPECT_GE(row["latency_us_p50"].get<double>(), row["latency_us_min"].get<double>());
    EXPECT_GE(row["latency_us_p99"].get<double>(), row["latency_us_p50"].get<double>());
    EXPECT_GT(row["latency_us_mean"].get<double>(), 0);
    const double algbw = static_cast<double>(size) / row["latency_us_p50"].get<double>() / 1e3;
    EXPECT_NEAR(row["bandwidth_gb_per_s"].get<double>(), algbw, algbw * 1e-6);
    EXPECT_NEAR(row["bus_bandwidth_gb_per_s"].get<double>(), algbw * verb.bus_factor, algbw * 1e-6);
    EXPECT_TRUE(row["ratio"].is_object());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, BenchCollective,
    testing::Values(Verb{"allreduce", false, true, 1}, Verb{"allgather", true, false, 0.5},
                    Verb{"reducescatter", true, true, 0.5}, Verb{"alltoall", true, false, 0.5},
                    Verb{"broadcast", false, false, 1}, Verb{"sendrecv", false, false, 1}),
    [](const auto& test) { return test.param.name; });

TEST(BenchCollectives, TextHasTheColumnsOfNcclTests) {
  const Ended ended = run_tendon(
      Words{"bench", "allreduce", "-b", "8", "-e", "24", "-i", "8", "-d", "int64", "-o", "max"} +
      kFewCalls);
  ASSERT_TRUE(succeeded(ended));
  std::vector<Words> lines;
  std::istringstream text(ended.out);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::string>(words),
                       std::istream_iterator<std::string>());
  }
  ASSERT_EQ(lines.size(), 5U) << ended.out;
  EXPECT_EQ(lines[0], (Words{"size", "count", "type", "redop", "root", "memory", "time", "min",
                             "p99", "algbw", "busbw", "#wrong"}));
  EXPECT_EQ(lines[1], (Words{"(B)", "(elements)", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)"}));
  for (std::size_t i = 0; i < 3; ++i) {
    const Words& row = lines[2 + i];
    ASSERT_EQ(row.size(), 12U) << ended.out;
    EXPECT_EQ(row[0], std::to_string(8 * (i + 1)));
    EXPECT_EQ(Words(row.begin() + 1, row.begin() + 6),
              (Words{std::to_string(i + 1), "i64", "max", "-1", "ordinary"}));
    EXPECT_EQ(row[11], "0");
  }
}

TEST(BenchCollectives, WithoutACheckNothingIsSaidToBeRight) {
  const Words words = Words{"bench", "allreduce", "-b", "8", "-e", "8", "-c", "0"} + kFewCalls;
  const Ended text = run_tendon(words);
  ASSERT_TRUE(succeeded(text));
  EXPECT_TRUE(text.out.ends_with("N/A\n")) << text.out;
  const Ended json = run_tendon(words + Words{"--json"});
  ASSERT_TRUE(succeeded(json));
  EXPECT_FALSE(Json::parse(json.out)["results"][0].contains("wrong"));
}

TEST(BenchCollectives, ThreeRanksEveryTypeAndOperation) {
  struct Case {
    std::string verb, dtype, op, path;
  };
  for (const Case& each :
       {Case{"allreduce", "i8", "sum", "shm"}, Case{"allreduce", "f8_e4m3fn", "avg", "shm"},
        Case{"allreduce", "bfloat16", "prod", "tcp"}, Case{"reducescatter", "half", "min", "tcp"},
        Case{"allreduce", "bf16", "avg", "tcp"}, Case{"reducescatter", "f8_e4m3fn", "avg", "tcp"},
        Case{"reducescatter", "u16", "bit_xor", "shm"}, Case{"alltoall", "f64", "sum", "tcp"}}) {
    const Ended ended =
        run_tendon(Words{"bench", each.verb, "--json", "--ranks", "3", "-d", each.dtype, "-o",
                         each.op, "--path", each.path, "-b", "1", "-e", "5000", "-f", "5000"} +
                   kFewCalls);
    ASSERT_TRUE(succeeded(ended)) << each.verb << ' ' << each.dtype << ' ' << each.op;
    const Json rows = Json::parse(ended.out)["results"];
    ASSERT_EQ(rows.size(), 2U);
    for (const Json& row : rows) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_EQ(row["ranks"], 3);
      EXPECT_EQ(row["path"], each.path);
      EXPECT_GT(row["size_bytes"], 0) << "one element at least";
    }
  }
}

TEST(BenchCollectives, EveryWayBetweenStagesBringsTheSame) {
  for (const auto& [way, mode] : {std::pair{"chunks", "stage"}, std::pair{"whole", "stage_whole"},
                                  std::pair{"first", "stage_first"}}) {
    for (const std::string path : {"shm", "tcp"}) {
      // One element, and several chunks with a tail.
      const Ended ended = run_processes(Words{"stage", "--json", "--way", way, "--path", path, "-b",
                                              "4", "-e", "5000004", "-i", "5000000"} +
                                        kFewCalls);
      ASSERT_TRUE(succeeded(ended)) << way << ' ' << path;
      const Json rows = Json::parse(ended.out)["results"];
      ASSERT_EQ(rows.size(), 2U);
      for (const Json& row : rows) {
        EXPECT_EQ(row["wrong"], 0) << row;
        EXPECT_EQ(row["mode"], mode);
        EXPECT_EQ(row["ranks"], 4);
      }
    }
  }
}

TEST(BenchCollectives, UnderALauncherItJoinsAndRankZeroAloneSpeaks) {
  const Words words = Words{"broadcast", "--json", "-b", "8", "-e", "8", "-r", "1"} + kFewCalls;
  LaunchedRank second(1, "-speaks", words);
  LaunchedRank first(0, "-speaks", words);
  const Ended ended = first.finish();
  ASSERT_TRUE(succeeded(ended));
  const Json rows = Json::parse(ended.out)["results"];
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["ranks"], 2);
  EXPECT_EQ(rows[0]["root"], 1);
  EXPECT_EQ(rows[0]["wrong"], 0);
  const Ended quiet = second.finish();
  EXPECT_TRUE(succeeded(quiet));
  EXPECT_EQ(quiet.out, "");
}

TEST(BenchCollectives, RanksThatCallDifferentThingsAreNamed) {
  const Words words = Words{"allreduce", "--json", "-b", "8", "-e", "8"} + kFewCalls;
  LaunchedRank second(1, "-differs", words + Words{"-d", "f64"});
  LaunchedRank first(0, "-differs", words);
  for (LaunchedRank* rank : {&first, &second}) {
    const Ended ended = rank->finish();
    EXPECT_EQ(ended.code, error_info(ErrorCode::mismatch).exit_code)
        << testing::PrintToString(ended);
    EXPECT_NE(ended.err.find("rank 0 ("), std::string::npos);
    EXPECT_NE(ended.err.find("rank 1 ("), std::string::npos);
    EXPECT_NE(ended.err.find("f64"), std::string::npos);
  }
}

TEST(BenchCollectives, WhatCannotBeMeasuredIsRefusedAtOnce) {
  struct Case {
    Words words;
    std::string says;
  };
  for (const Case& each :
       {Case{{"allreduce", "-d", "f33"}, "f33"}, Case{{"allreduce", "-o", "mean"}, "mean"},
        Case{{"allreduce", "-b", "0"}, "1 <= b"}, Case{{"all_reduce", "-b", "-5"}, "negative"},
        Case{{"allreduce", "-b", "64", "-e", "8"}, "-e 8"},
        Case{{"allreduce", "-f", "1"}, "stepfactor"},
        Case{{"allreduce", "-i", "8", "-f", "2"}, "excludes"},
        Case{{"allreduce", "-c", "2"}, "check"}, Case{{"allreduce", "--memory", "gpu"}, "gpu"},
        Case{{"allreduce", "--ranks", "0"}, "1 to 256"},
        Case{{"allreduce", "--ranks", "257"}, "1 to 256"}, Case{{"broadcast", "-r", "2"}, "0 to 1"},
        Case{{"sendrecv", "--ranks", "1"}, "at least 2"},
        Case{{"allreduce", "-d", "f8_e5m2", "--ranks", "16"}, "not exact"},
        Case{{"allreduce", "-d", "f8_e5m2", "-o", "avg", "--ranks", "3"}, "not exact"}}) {
    const Ended ended = run_tendon(Words{"bench"} + each.words);
    EXPECT_EQ(ended.code, 2) << testing::PrintToString(each.words);
    EXPECT_EQ(ended.out, "") << testing::PrintToString(each.words);
    EXPECT_NE(ended.err.find(each.says), std::string::npos)
        << testing::PrintToString(each.words) << ": " << ended.err;
  }
  const Ended no_average = run_tendon(
      Words{"bench", "allreduce", "--json", "-d", "i32", "-o", "avg", "-b", "8", "-e", "8"} +
      kFewCalls);
  EXPECT_EQ(no_average.code, error_info(ErrorCode::unsupported_dtype).exit_code);
  EXPECT_EQ(Json::parse(no_average.out)["error"]["name"], "unsupported_dtype");
}

TEST(BenchCollectives, DevelopersGetTheSameRefusals) {
  struct Case {
    Words words;
    std::string says;
  };
  for (const Case& each :
       {Case{{"stage", "--ranks", "3"}, "even number"}, Case{{"stage", "--way", "all"}, "all"},
        Case{{"group-detect", "--ranks", "2"}, "3"},
        Case{{"stages"}, "processes: there is no verb 'stages'; its verbs are: fabric,"}}) {
    const Ended ended = run_processes(each.words);
    EXPECT_EQ(ended.code, 2) << testing::PrintToString(each.words);
    EXPECT_EQ(ended.out, "") << testing::PrintToString(each.words);
    EXPECT_NE(ended.err.find(each.says), std::string::npos)
        << testing::PrintToString(each.words) << ": " << ended.err;
  }
}

TEST(BenchCollectives, HalfALauncherIsNoReasonToStartRanks) {
  const auto with = [](const Words& variables, const Words& arguments) {
    return Command(variables + Words{TENDON_CLI_PATH, "bench", "allreduce"} + arguments,
                   "/usr/bin/env")
        .finish();
  };
  const Ended no_size = with({"RANK=0"}, {});
  EXPECT_EQ(no_size.code, 2);
  EXPECT_NE(no_size.err.find("WORLD_SIZE"), std::string::npos) << no_size.err;
  const Ended nowhere = with({"RANK=0", "WORLD_SIZE=2"}, {});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_NE(nowhere.err.find("TENDON_RENDEZVOUS"), std::string::npos) << nowhere.err;
  const Ended both = with({"RANK=0", "WORLD_SIZE=2"}, {"--ranks", "3"});
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--ranks 3 inside a launcher"), std::string::npos) << both.err;
}

TEST(BenchCollectives, GroupDetectNamesTheDeadAndGoesOn) {
  const Ended ended = run_processes({"group-detect", "--json", "-n", "2"});
  ASSERT_TRUE(succeeded(ended));
  const Json rows = Json::parse(ended.out)["results"];
  ASSERT_EQ(rows.size(), 4U) << "until the error and until the next collective, on two paths";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["path"], i < 2 ? "shm" : "tcp");
    EXPECT_EQ(rows[i]["mode"], i % 2 == 0 ? "sigkill" : "shrunk");
    EXPECT_EQ(rows[i]["named"], 2);
    EXPECT_EQ(rows[i]["ranks"], 3);
    EXPECT_EQ(rows[i]["rounds"], 2);
    EXPECT_GT(rows[i]["latency_us_p50"].get<double>(), 0);
  }
  EXPECT_GT(rows[1]["latency_us_max"], rows[0]["latency_us_p50"]);
}

}  // namespace
}  // namespace tendon::test
