// SPDX-License-Identifier: Apache-2.0
// The command from a user's view: which stream its output is on, its exit codes, and that a
// transfer leaves the same file or none.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <tendon/core/version.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/pipe/server.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "core/text.hpp"
#include "process/command.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/variable.hpp"

namespace tendon::test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

int exit_code_of(ErrorCode code) { return error_info(code).exit_code; }

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A safetensors file written by hand: its header may differ from those that Tendon writes.
std::string foreign_file(const std::string& header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  return text.append(header).append(data);
}
static_assert(std::endian::native == std::endian::little);

/// Expects that the command failed with this error: its code on stderr, and its exit code.
testing::AssertionResult ended_with(const Ended& ended, ErrorCode code,
                                    std::string_view text = {}) {
  if (ended.code == exit_code_of(code) && ended.err.find(error_id(code)) != std::string::npos &&
      ended.err.find(text) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "wanted " << error_id(code) << " (exit code " << exit_code_of(code) << ") with '"
         << text << "', got " << testing::PrintToString(ended);
}
testing::AssertionResult succeeded(const Ended& ended) {
  if (ended.code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << testing::PrintToString(ended);
}

/// Expects no hidden character (core/text.hpp) except the ends of lines.
testing::AssertionResult shows_all(const Ended& ended) {
  for (const std::string& text : {ended.out, ended.err})
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      if (!detail::is_clean(std::string_view(text).substr(begin, end - begin)))
        return testing::AssertionFailure() << "a hidden character in: " << text;
    }
  return testing::AssertionSuccess();
}

// Output --------------------------------------------------------------------------------------

TEST(Cli, VersionAndHelpAreDataAndSucceed) {
  EXPECT_EQ(run_tendon({"--version"}).out, "tendon " + std::string(kVersion) + "\n");
  const Ended help = run_tendon({"--help"});
  EXPECT_TRUE(succeeded(help));
  for (const char* verb : {"send", "recv", "bench", "launch", "topic", "node", "call", "key",
                           "info", "explain", "completion"})
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
  EXPECT_EQ(help.out.find("make-checkpoint"), std::string::npos) << "a hidden verb is shown";
}

TEST(Cli, AWrongCommandLineIsTalkAndExitCodeTwo) {
  for (const Words& words :
       {Words{}, Words{"sned"}, Words{"send"}, Words{"info", "--no-such-flag"},
        Words{"send", "a", "b", "--timeout", "soon"}, Words{"send", "a", "b", "--timeout", "-1"},
        Words{"bench", "pipe", "--path", "pigeon"}, Words{"bench", "pipe", "-b", "0"},
        Words{"bench", "pipe", "-b", "64", "-e", "8"}}) {
    const Ended ended = run_tendon(words);
    EXPECT_EQ(ended.code, 2) << testing::PrintToString(words);
    EXPECT_EQ(ended.out, "") << testing::PrintToString(words);
    EXPECT_NE(ended.err, "") << testing::PrintToString(words);
  }
}

TEST(Cli, AnUnknownVerbIsNamedWithThoseThereAre) {
  struct Case {
    Words words;
    std::string begin;
    std::string one_of_them;
  };
  for (const auto& [words, begin, one_of_them] :
       {Case{{"sned", "a", "b"}, "tendon: there is no verb 'sned'; its verbs", " send, recv,"},
        Case{
            {"bench", "allreduc"}, "tendon bench: there is no verb 'allreduc'; its", " allreduce,"},
        Case{{"completion", "zsh"}, "tendon completion: there is no verb 'zsh'; its", " bash\n"}}) {
    const Ended ended = run_tendon(words);
    EXPECT_EQ(ended.code, 2) << begin;
    EXPECT_TRUE(ended.err.starts_with(begin)) << ended.err;
    EXPECT_NE(ended.err.find(one_of_them), std::string::npos) << ended.err;
  }
  const std::string shown = run_tendon({"bench", "allreduc"}).err;
  EXPECT_EQ(shown.find("peer"), std::string::npos) << "a hidden verb is shown";
}

/// Runs the command in a shell, with the rest of `words` after it.
Ended run_in_shell(const std::string& words) {
  return Command({"-c", std::string(TENDON_CLI_PATH) + " " + words}, "/bin/sh").finish();
}

TEST(Cli, DataThatCannotBeWrittenIsAnError) {
  for (const std::string verb : {"info", "info --json", "explain TD-E0003", "completion bash"}) {
    EXPECT_TRUE(ended_with(run_in_shell(verb + " >/dev/full"), ErrorCode::storage_full, "stdout"));
    EXPECT_TRUE(ended_with(run_in_shell(verb + " >&-"), ErrorCode::system, "stdout"));
  }
  // A closed pipe is not an error: the reader has seen enough.
  const Ended ended = run_in_shell("explain TD-E0003 | true");
  EXPECT_EQ(ended.err, "");
}

TEST(Cli, OutputOfRanksThatCannotBeWrittenIsAnError) {
  for (const std::string flags : {"-n 1", "-n 1 --json"}) {
    const Ended ended = run_in_shell("launch " + flags + " -- echo a line >/dev/full");
    EXPECT_TRUE(ended_with(ended, ErrorCode::storage_full, "stdout"));
  }
  // A failed job reports its own exit code.
  EXPECT_EQ(run_in_shell("launch -n 1 -- sh -c 'echo a line; exit 3' >/dev/full").code, 3);
}

TEST(Cli, WithoutStderrTheExitCodeSaysIt) {
  for (const char* where : {"2>/dev/full", "2>&-"}) {
    const std::string sink = where;
    EXPECT_EQ(run_in_shell("explain NO-SUCH " + sink).code, exit_code_of(ErrorCode::not_found));
    EXPECT_EQ(run_in_shell("bench nothing " + sink).code, 2);
    EXPECT_EQ(run_in_shell("recv 127.0.0.1:0 --timeout 0.01 " + sink).code,
              exit_code_of(ErrorCode::timeout));
  }
}

TEST(Cli, WhatItRepeatsHidesNothing) {
  const std::string text =
      "a\x1b[2J\xC2\x9B"
      "2J\u202e\u200b\U000e0041z";
  for (const std::string& name : {text, text + "\xff"}) {
    for (const Words& words :
         {Words{name}, Words{"info", "--" + name}, Words{"explain", name},
          Words{"send", name, "127.0.0.1:1"}, Words{"send", "--json", name, "127.0.0.1:1"}}) {
      const Ended ended = run_tendon(words);
      EXPECT_NE(ended.code, 0);
      EXPECT_NE(ended.err.find("z"), std::string::npos);
      EXPECT_TRUE(shows_all(ended));
      EXPECT_TRUE(ended.out.empty() || Json::accept(ended.out)) << ended.out;
    }
  }
  setenv("TENDON_NAME", text.c_str(), 1);
  const Ended info = run_tendon({"info", "--json"});
  unsetenv("TENDON_NAME");
  EXPECT_TRUE(shows_all(info));
  EXPECT_EQ(Json::parse(info.out)["settings"]["name"]["value"], text) << "JSON spells what it is";
}

/// The words about GPUs that `tendon info` prints with this variable.
Json gpus_with(const char* variable, const char* value) {
  const Variable chosen(variable, value);
  const Ended ended = run_tendon({"info", "--json"});
  const Ended text = run_tendon({"info"});
  EXPECT_TRUE(succeeded(ended) && succeeded(text));
  EXPECT_NE(text.out.find("\ngpus"), std::string::npos);
  return Json::parse(ended.out)["gpus"];
}

TEST(Cli, InfoShowsGpusOrWhyThereAreNone) {
  const Json found = gpus_with("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  EXPECT_EQ(found["library"], TENDON_CUDA_DOUBLE);
  EXPECT_EQ(found["driver"], "13.0");
  ASSERT_EQ(found["devices"].size(), 1u) << found;
  EXPECT_EQ(found["devices"][0]["device"], "cuda:0");
  EXPECT_TRUE(found["devices"][0]["lacks"].empty());
  const auto why = [](const Json& gpus) { return gpus["error"].get<std::string>(); };
  EXPECT_NE(why(gpus_with("TENDON_CUDA_LIBRARY", "/nowhere.so")).find("/nowhere.so"),
            std::string::npos);
  EXPECT_NE(why(gpus_with("TENDON_CUDA", "off")).find("TENDON_CUDA=off"), std::string::npos);
}

TEST(Cli, InfoShowsSettingsAndWhereTheyComeFrom) {
  const Ended ended = run_tendon({"info", "--json"});
  ASSERT_TRUE(succeeded(ended));
  const Json info = Json::parse(ended.out);
  EXPECT_EQ(info["version"], std::string(kVersion));
  EXPECT_EQ(info["limits"]["kMaxLeaves"], kMaxLeaves);
  EXPECT_EQ(info["limits"]["kPipeWindowBytes"], kPipeWindowBytes);
  EXPECT_EQ(info["limits"]["kMaxTensorBytes"], kMaxTensorBytes);
  EXPECT_EQ(info["limits"]["kFlowHandshakeTimeout"], 2) << "seconds";
  EXPECT_FALSE(info["limits"].contains("kMaxPlaces")) << "no limit of a public header";
  EXPECT_EQ(info["settings"]["streams"]["source"], "default");
  EXPECT_TRUE(info["paths"]["shm"]["available"].get<bool>());
  EXPECT_EQ(info["settings"]["name"]["source"], "default");
  setenv("TENDON_NAME", "chosen", 1);
  const Json named = Json::parse(run_tendon({"info", "--json"}).out);
  unsetenv("TENDON_NAME");
  EXPECT_EQ(named["settings"]["name"]["value"], "chosen");
  EXPECT_EQ(named["settings"]["name"]["source"], "environment");
}

// docs/environment.md promises the effective settings. A variable of a part that is not built has
// no effect.
TEST(Cli, InfoShowsEachSettingThatTheEnvironmentDecides) {
  struct Said {
    const char* variable;
    const char* text;
    const char* setting;
    Json shown;
  };
  const std::vector<Said> all = {
      {"TENDON_TRANSPORT", "tcp", "transport", "tcp"},
      {"TENDON_LISTEN", "10.0.0.5:0", "listen", "10.0.0.5:0"},
      {"TENDON_RENDEZVOUS", "10.0.0.7:7000", "rendezvous", "10.0.0.7:7000"},
      {"TENDON_COLLECTIVES", "tree=1M", "collectives", "tree=1M"},
      {"TENDON_DOMAIN", "arms", "domain", "arms"},
      {"TENDON_KEY", "/nowhere/fleet.key", "key", "/nowhere/fleet.key"},
      {"TENDON_CERT", "/nowhere/a.crt", "cert", "/nowhere/a.crt"},
      {"TENDON_CERT_KEY", "/nowhere/a.key", "cert_key", "/nowhere/a.key"},
      {"TENDON_CA", "/nowhere/ca.crt", "ca", "/nowhere/ca.crt"},
      {"TENDON_CUDA", "off", "cuda", "off"},
      {"TENDON_CUDA_LIBRARY", "/nowhere/libcuda.so.1", "cuda_library", "/nowhere/libcuda.so.1"},
      {"TENDON_EXPLAIN_SEGV", "off", "explain_segv", false},
      {"TENDON_ROUTER", "10.0.0.7,10.0.0.8:7448", "routers", "10.0.0.7,10.0.0.8:7448"},
      {"ZENOH_CONFIG_OVERRIDE", "mode=\"peer\"", "zenoh_config", "mode=\"peer\""},
      {"TENDON_FAILPOINT_REPORT", "/nowhere/report", "failpoint_report", "/nowhere/report"},
  };
  const Json before = Json::parse(run_tendon({"info", "--json"}).out);
  for (const Said& said : all) setenv(said.variable, said.text, 1);
  const Json info = Json::parse(run_tendon({"info", "--json"}).out);
  for (const Said& said : all) unsetenv(said.variable);
  const bool has_zenoh = before["settings"].contains("routers");
  EXPECT_EQ(has_zenoh, before["settings"].contains("zenoh_config"));
  for (const Said& said : all) {
    SCOPED_TRACE(said.variable);
    const std::string name = said.setting;
    if (!has_zenoh && (name == "routers" || name == "zenoh_config")) continue;
    ASSERT_TRUE(info["settings"].contains(name));
    EXPECT_EQ(before["settings"][name]["source"], "default");
    EXPECT_EQ(info["settings"][name]["source"], "environment");
    EXPECT_EQ(info["settings"][name]["value"], said.shown);
    EXPECT_EQ(info["settings"][name]["variable"], said.variable);
  }
}

TEST(Cli, InfoShowsWhereALauncherLetsItsRanksMeet) {
  const std::map<const char*, const char*> launcher = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fd00::7"}, {"MASTER_PORT", "7000"}};
  for (const auto& [name, text] : launcher) setenv(name, text, 1);
  const Json info = Json::parse(run_tendon({"info", "--json"}).out);
  for (const auto& [name, text] : launcher) unsetenv(name);
  EXPECT_EQ(info["settings"]["rendezvous"]["value"], "[fd00::7]:7000");
  EXPECT_EQ(info["settings"]["rendezvous"]["variable"], "MASTER_ADDR");
}

// docs/environment.md: "An empty value counts as unset."
TEST(Cli, AnEmptyValueOfTheEnvironmentSetsNothing) {
  const Words words = {"bench", "allreduce", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1"};
  setenv("TENDON_COLLECTIVES", "colour=red", 1);  // the library warns about it
  setenv("TENDON_LOG", "warn", 1);
  const Ended warned = run_tendon(words);
  for (const char* const name : {"TENDON_LOG", "RANK", "WORLD_SIZE"}) setenv(name, "", 1);
  const Ended quiet = run_tendon(words);
  for (const char* const name : {"TENDON_COLLECTIVES", "TENDON_LOG", "RANK", "WORLD_SIZE"})
    unsetenv(name);
  EXPECT_TRUE(succeeded(warned));
  EXPECT_NE(warned.err.find("group.tuning"), std::string::npos) << "nothing shows it otherwise";
  EXPECT_TRUE(succeeded(quiet)) << "RANK is empty, so nothing launched it";
  EXPECT_EQ(quiet.err.find("group.tuning"), std::string::npos) << quiet.err;
}

TEST(Cli, InfoShowsEveryOptionOfAContext) {
  const Json settings = Json::parse(run_tendon({"info", "--json"}).out)["settings"];
  for (const char* const option :
       {"name", "progress", "wait_policy", "transport", "link_cap_bytes", "pool_cap_bytes",
        "streams", "linger_ms", "lease_ms", "publish_bytes", "protocol_minor"})
    EXPECT_TRUE(settings.contains(option)) << option;
}

TEST(Cli, InfoShowsHowLargeCopiesGoAndByWhichFigures) {
  const Ended ended = run_tendon({"info", "--json"});
  ASSERT_TRUE(succeeded(ended));
  const Json info = Json::parse(ended.out);
  ASSERT_FALSE(info["copies"].empty());
  std::uint64_t last_bytes = 0;
  for (const Json& row : info["copies"]) {
    EXPECT_GT(row["from_bytes"].get<std::uint64_t>(), last_bytes) << row;
    last_bytes = row["from_bytes"];
    EXPECT_EQ(row["gb_per_s"].size(), 3U) << row;
    // Disturbances of every part of a trial leave the way undecided.
    if (row["way"].is_null()) continue;
    EXPECT_TRUE(row["gb_per_s"].contains(row["way"].get<std::string>())) << row;
    for (const Json& rate : row["gb_per_s"]) EXPECT_GT(rate.get<double>(), 0) << row;
  }
  const Ended text = run_tendon({"info"});
  EXPECT_NE(text.out.find("large copies"), std::string::npos);
  EXPECT_NE(text.out.find(std::to_string(last_bytes)), std::string::npos) << text.out;
}

TEST(Cli, InfoCollectivesShowsTheTableWhatOverridesItAndTheChoices) {
  const Json plain = Json::parse(run_tendon({"info", "collectives", "--json"}).out);
  ASSERT_EQ(plain["layouts"].size(), 2U);
  EXPECT_EQ(plain["layouts"][0]["reach"], "boards");
  EXPECT_EQ(plain["layouts"][1]["hosts"], 8);
  for (const Json& row : plain["sizes"]) {
    EXPECT_EQ(row["source"], "default");
    EXPECT_EQ(row["value"], row["default"]);
  }
  for (const Json& row : plain["forced"]) EXPECT_TRUE(row["forced"].is_null());

  setenv("TENDON_COLLECTIVES", "few_steps_max=64,broadcast=chain,colour=red", 1);
  const Ended ended =
      run_tendon({"info", "collectives", "--ranks", "4", "--hosts", "4", "--size", "1K", "--json"});
  const Ended text = run_tendon({"info", "collectives", "--ranks", "4", "--hosts", "4"});
  unsetenv("TENDON_COLLECTIVES");
  ASSERT_TRUE(succeeded(ended));
  EXPECT_NE(ended.err.find("'colour=red'"), std::string::npos) << ended.err;
  const Json info = Json::parse(ended.out);
  EXPECT_EQ(info["complaints"].size(), 1U);
  for (const Json& row : info["sizes"]) {
    const bool overridden = row["name"] == "few_steps_max";
    EXPECT_EQ(row["source"], overridden ? "environment" : "default") << row;
    EXPECT_EQ(row["value"] == 64, overridden) << row;
  }
  ASSERT_EQ(info["layouts"].size(), 1U);
  EXPECT_EQ(info["layouts"][0]["ranks"], 4);
  std::map<std::string, std::string> choices;
  for (const Json& row : info["layouts"][0]["operations"]) {
    ASSERT_EQ(row["by_size"].size(), 1U);
    EXPECT_EQ(row["by_size"][0]["from_bytes"], 1024);
    choices[row["operation"]] = row["by_size"][0]["algorithm"];
  }
  EXPECT_EQ(choices["all_reduce"], "halving_doubling");
  EXPECT_EQ(choices["broadcast"], "chain");
  EXPECT_EQ(choices["reduce"], "tree");

  EXPECT_NE(text.out.find("few_steps_max"), std::string::npos);
  EXPECT_NE(text.out.find("chain (environment)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("4 ranks on 4 hosts, over links"), std::string::npos);

  const Ended wrong = run_tendon({"info", "collectives", "--ranks", "2", "--hosts", "3"});
  EXPECT_TRUE(ended_with(wrong, ErrorCode::invalid_argument, "--hosts"));
  EXPECT_EQ(run_tendon({"info", "collectives", "--ranks", "0"}).code, 2);
}

TEST(Cli, AWrongEnvironmentIsAnErrorThatNamesTheVariable) {
  setenv("TENDON_TRANSPORT", "pigeon", 1);
  const Ended ended = run_tendon({"info", "--json"});
  unsetenv("TENDON_TRANSPORT");
  EXPECT_TRUE(ended_with(ended, ErrorCode::invalid_argument, "TENDON_TRANSPORT"));
  EXPECT_EQ(Json::parse(ended.out)["error"]["name"], "invalid_argument");
}

TEST(Cli, ExplainHasAPageForEveryError) {
  const Json list = Json::parse(run_tendon({"explain", "--json"}).out)["errors"];
  EXPECT_EQ(list.size(), error_table().size());
  for (const ErrorInfo& row : error_table()) {
    const Ended ended = run_tendon({"explain", std::string(row.name)});
    EXPECT_TRUE(succeeded(ended)) << row.name;
    EXPECT_TRUE(ended.out.starts_with("# " + error_id(row.code))) << ended.out;
    EXPECT_NE(ended.out.find("## What to do"), std::string::npos) << row.name;
  }
  EXPECT_EQ(run_tendon({"explain", "107"}).out, run_tendon({"explain", "TD-E0107"}).out);
  EXPECT_TRUE(ended_with(run_tendon({"explain", "TD-E0999"}), ErrorCode::not_found, "TD-E0999"));
}

// Transfers -----------------------------------------------------------------------------------

/// A receiver that listens, and the folder that it writes to.
struct Receiver {
  explicit Receiver(Words flags = {}) {
    Words words = {"recv", "127.0.0.1:0", "-o", folder.path().string()};
    words.insert(words.end(), flags.begin(), flags.end());
    command.emplace(words);
    address = command->wait_for_err("tendon: listening on ");
  }
  ScratchDir folder;
  std::optional<Command> command;
  std::string address;
};

class CliFiles : public testing::Test {
 protected:
  std::string save(const std::string& name, const TensorDict& dict, SaveOptions options = {}) {
    const std::string path = (folder_.path() / name).string();
    EXPECT_TRUE(succeeds(save_safetensors(path, dict, options)));
    return path;
  }
  std::string save(const std::string& name, std::string_view text) {
    const std::string path = (folder_.path() / name).string();
    write_file(path, text);
    return path;
  }
  /// Large enough that a slow sender is in the middle of it for as long as a test needs.
  std::string save_large() { return save("large.safetensors", patterned(1, 40'000'000)); }

  ScratchDir folder_;
};

/// Files with every shape that the format allows.
std::vector<std::pair<std::string, std::string>> sample_files(const std::filesystem::path& folder) {
  std::vector<std::pair<std::string, std::string>> files;
  const auto add = [&](const std::string& name, const TensorDict& dict, SaveOptions options = {}) {
    const auto path = folder / (name + ".safetensors");
    EXPECT_TRUE(succeeds(save_safetensors(path, dict, options)));
    files.emplace_back(name, path.string());
  };
  const auto add_foreign = [&](const std::string& name, std::string_view text) {
    const auto path = folder / name;
    write_file(path, text);
    files.emplace_back(name, path.string());
  };
  TensorDict nested(Shape{2});
  nested.set("observation/image", Tensor::of<std::uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  nested.set("observation/a%2Fb", Tensor::of<float>({2}, {1, 2}));
  nested.set("info/step", 7);
  nested.set("info/empty", Tensor::zeros(DType::f32, {2, 0}).value());
  add("nested", nested, {.metadata = {{"format", "pt"}, {"author", "Zo\u00eb"}}});
  add("no_tensors", TensorDict());
  TensorDict hollow;
  for (int i = 0; i < 5; ++i)
    hollow.set("empty" + std::to_string(i), Tensor::zeros(DType::i64, {0, 7}).value());
  add("only_empty_tensors", hollow);
  // More bytes than fit in one message of any kind, next to small ones.
  TensorDict large = patterned(3, 21'000'007);
  large.set("after", Tensor::of<double>({1}, {0.5}));
  add("cut_in_slices", large);
  TensorDict many;
  for (int i = 0; i < 3000; ++i)
    many.set("leaf." + std::to_string(i), Tensor::of<std::int16_t>({1}, {static_cast<short>(i)}));
  add("many_leaves", many);
  // Odd spaces, an odd order and a header of odd length, as other writers make them.
  add_foreign("foreign.safetensors",
              foreign_file("{ \"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
                           "\"__metadata__\":{\"x\":\"y\"},"
                           "\"a\":{\"dtype\":\"F32\", \"shape\":[1],\"data_offsets\":[0,4]}}   ",
                           "\1\2\3\4\5\6\7"));
  return files;
}

struct TransferWay {
  std::string path;
  std::string mode;
};
class CliTransfer : public testing::TestWithParam<TransferWay> {};

TEST_P(CliTransfer, EveryFileArrivesByteForByte) {
  ScratchDir folder;
  for (const auto& [name, file] : sample_files(folder.path())) {
    SCOPED_TRACE(name);
    Receiver receiver({"--json", "--path", GetParam().path});
    const Ended sent = run_tendon({"send", file, receiver.address, "--json", "--path",
                                   GetParam().path, "--mode", GetParam().mode});
    const Ended received = receiver.command->finish();
    ASSERT_TRUE(succeeded(sent));
    ASSERT_TRUE(succeeded(received));
    const std::string target = std::filesystem::path(file).filename().string();
    EXPECT_EQ(receiver.folder.names(), Words{target});
    EXPECT_EQ(read_file(receiver.folder.path() / target), read_file(file));
    const Json result = Json::parse(received.out);
    EXPECT_EQ(result["path"], GetParam().path);
    EXPECT_EQ(result["size_bytes"], std::filesystem::file_size(file));
    EXPECT_EQ(result["sha256"], Json::parse(sent.out)["sha256"]);
    EXPECT_TRUE(result["verified"].get<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CliTransfer,
                         testing::Values(TransferWay{"shm", "loan"}, TransferWay{"shm", "copy"},
                                         TransferWay{"tcp", "copy"}),
                         [](const auto& test) { return test.param.path + "_" + test.param.mode; });

TEST_F(CliFiles, SendWaitsForAReceiverThatStartsLater) {
  const std::string file = save("late.safetensors", numbered(1));
  const std::string address = "unix:" + (folder_.path() / "socket").string();
  Command sender({"send", file, address});
  sender.wait_for_err("tendon: nobody listens at ");
  ScratchDir target;
  const Ended received = run_tendon({"recv", address, "-o", target.path().string()});
  EXPECT_TRUE(succeeded(received));
  EXPECT_TRUE(succeeded(sender.finish()));
  EXPECT_EQ(target.names(), Words{"late.safetensors"});
}

TEST_F(CliFiles, KeepTakesOneFileAfterTheOtherAndSurvivesABadOne) {
  Receiver receiver({"--keep", "--json"});
  const std::string first = save("first.safetensors", numbered(1));
  const std::string second = save("second.safetensors", numbered(2));
  EXPECT_TRUE(succeeded(run_tendon({"send", first, receiver.address})));
  EXPECT_TRUE(ended_with(run_tendon({"send", first, receiver.address}),
                         ErrorCode::permission_denied, "exists"));
  EXPECT_TRUE(succeeded(run_tendon({"send", second, receiver.address})));
  receiver.command->signal(SIGINT);
  EXPECT_EQ(receiver.command->finish().code, 130);
  EXPECT_EQ(receiver.folder.names(), (Words{"first.safetensors", "second.safetensors"}));
}

TEST_F(CliFiles, NameIsTheNameAtTheReceiver) {
  Receiver receiver;
  const std::string file = save("here.safetensors", numbered(1));
  EXPECT_TRUE(succeeded(run_tendon({"send", file, receiver.address, "--name", "there.st"})));
  EXPECT_TRUE(succeeded(receiver.command->finish()));
  EXPECT_EQ(receiver.folder.names(), Words{"there.st"});
}

TEST_F(CliFiles, AnExistingFileIsReplacedOnlyByForce) {
  const std::string file = save("model.safetensors", numbered(1));
  Receiver careful;
  write_file(careful.folder.path() / "model.safetensors", "precious");
  EXPECT_TRUE(ended_with(run_tendon({"send", file, careful.address}), ErrorCode::permission_denied,
                         "exists"));
  EXPECT_TRUE(ended_with(careful.command->finish(), ErrorCode::permission_denied, "--force"));
  EXPECT_EQ(read_file(careful.folder.path() / "model.safetensors"), "precious");

  Receiver bold({"--force"});
  write_file(bold.folder.path() / "model.safetensors", "worthless");
  EXPECT_TRUE(succeeded(run_tendon({"send", file, bold.address})));
  EXPECT_TRUE(succeeded(bold.command->finish()));
  EXPECT_EQ(read_file(bold.folder.path() / "model.safetensors"), read_file(file));
}

// Wrong input ---------------------------------------------------------------------------------

TEST_F(CliFiles, SendRefusesWhatIsNoWholeSafetensorsFile) {
  const std::string whole = read_file(save("whole.safetensors", patterned(1, 1000)));
  EXPECT_TRUE(ended_with(run_tendon({"send", (folder_.path() / "missing").string(), "127.0.0.1:1"}),
                         ErrorCode::file_not_found, "missing"));
  EXPECT_TRUE(ended_with(run_tendon({"send", folder_.path().string(), "127.0.0.1:1"}),
                         ErrorCode::invalid_argument));
  for (const std::string& text :
       {std::string("Dear all, this is a letter and no checkpoint."), std::string(),
        whole.substr(0, 5), whole.substr(0, 40), whole.substr(0, whole.size() - 1), whole + "x"}) {
    const Ended ended = run_tendon({"send", save("broken.safetensors", text), "127.0.0.1:1"});
    EXPECT_TRUE(ended.code == exit_code_of(ErrorCode::corrupt_data) ||
                ended.code == exit_code_of(ErrorCode::limit_exceeded))
        << testing::PrintToString(ended);
  }
}

TEST_F(CliFiles, NobodyListeningIsUnreachableAfterTheTimeout) {
  const std::string file = save("a.safetensors", numbered(1));
  const std::string nowhere = "unix:" + (folder_.path() / "nobody").string();
  EXPECT_TRUE(ended_with(run_tendon({"send", file, nowhere, "--timeout", "0.2"}),
                         ErrorCode::unreachable, "nobody"));
}

TEST_F(CliFiles, RecvRefusesAnAddressInUseAForeignOneAndAMissingFolder) {
  Receiver first;
  EXPECT_TRUE(
      ended_with(run_tendon({"recv", first.address}), ErrorCode::address_in_use, first.address));
  EXPECT_TRUE(ended_with(run_tendon({"recv", "0.0.0.0:0"}), ErrorCode::permission_denied));
  EXPECT_TRUE(
      ended_with(run_tendon({"recv", "nonsense"}), ErrorCode::invalid_argument, "nonsense"));
  const std::string missing = (folder_.path() / "missing").string();
  EXPECT_TRUE(ended_with(run_tendon({"recv", "127.0.0.1:0", "-o", missing}),
                         ErrorCode::file_not_found, "missing"));
  const std::string file = save("file", "no folder");
  EXPECT_TRUE(ended_with(run_tendon({"recv", "127.0.0.1:0", "-o", file}), ErrorCode::file_not_found,
                         "file"));
  const std::string loop = (folder_.path() / "loop").string();
  std::filesystem::create_symlink(loop, loop);
  EXPECT_TRUE(
      ended_with(run_tendon({"recv", "127.0.0.1:0", "-o", loop}), ErrorCode::system, "loop"));
  const std::string endless(300, 'n');
  EXPECT_TRUE(
      ended_with(run_tendon({"recv", "127.0.0.1:0", "-o", endless}), ErrorCode::system, "nnn"));
}

TEST_F(CliFiles, RecvGivesUpWhenNobodyConnects) {
  EXPECT_TRUE(ended_with(run_tendon({"recv", "127.0.0.1:0", "--timeout", "0.05"}),
                         ErrorCode::timeout, "nobody connected"));
}

TEST_F(CliFiles, AFullDiskIsNamedOnBothSidesAndLeavesNothing) {
  ScratchDir target;
  if (mount("tendon-test", target.path().c_str(), "tmpfs", 0, "size=8m") != 0)
    GTEST_SKIP() << "only root can mount a small file system: " << std::strerror(errno);
  Command receiver({"recv", "127.0.0.1:0", "-o", target.path().string()});
  const std::string address = receiver.wait_for_err("tendon: listening on ");
  const Ended sent = run_tendon({"send", save_large(), address});
  const Ended received = receiver.finish();
  const Words left = target.names();
  EXPECT_EQ(umount2(target.path().c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(ended_with(received, ErrorCode::storage_full));
  EXPECT_TRUE(ended_with(sent, ErrorCode::storage_full, "refused"));
  EXPECT_EQ(left, Words{});
}

/// A shell in which a file may have this number of blocks of 512 bytes.
std::string with_file_limit(int blocks, const std::string& words) {
  return "ulimit -f " + std::to_string(blocks) + "; exec " + TENDON_CLI_PATH + " " + words;
}

TEST_F(CliFiles, BeyondTheLimitOfFilesIsNamedOnBothSidesAndLeavesNothing) {
  const ScratchDir target;
  const int blocks = 8192;
  Command receiver({"-c", with_file_limit(blocks, "recv 127.0.0.1:0 -o " + target.path().string())},
                   "/bin/sh");
  const std::string address = receiver.wait_for_err("tendon: listening on ");
  const Ended sent = run_tendon({"send", save_large(), address});
  const Ended received = receiver.finish();
  const std::string limit = "may have " + std::to_string(blocks * 512) + " (raise RLIMIT_FSIZE";
  EXPECT_TRUE(ended_with(received, ErrorCode::storage_full, limit));
  EXPECT_NE(received.err.find(target.path().string() + "/"), std::string::npos) << received.err;
  EXPECT_TRUE(ended_with(sent, ErrorCode::storage_full, "refused"));
  EXPECT_EQ(target.names(), Words{});
  const std::string output = (target.path() / "output").string();
  EXPECT_TRUE(ended_with(Command({"-c", with_file_limit(0, "info >" + output)}, "/bin/sh").finish(),
                         ErrorCode::storage_full, "stdout"));
  const std::string program = (target.path() / "rank").string();
  const Ended launched =
      Command({"-c", with_file_limit(0, "launch -n 1 -- sh -c 'echo x >" + program + "'")},
              "/bin/sh")
          .finish();
  EXPECT_EQ(launched.code, 128 + SIGXFSZ) << "a rank has its signals as usual: " << launched.err;
}

// Hostile senders ------------------------------------------------------------------------------

/// A sender of the test, which may send anything.
class BadSender {
 public:
  explicit BadSender(const std::string& address, std::string name = "bad sender")
      : context_(Context::create({.name = std::move(name)}).value()),
        pipe_(Pipe::connect(context_, address, kPatience).value()) {}

  void announce(const std::string& json, std::string_view header) { say(1, json, header); }
  void say(std::uint32_t tag, const std::string& json, std::string_view bytes = {}) {
    EXPECT_TRUE(succeeds(pipe_.send(
        as_bytes(bytes), {.tag = tag, .header = as_bytes(std::string_view(json))}, kPatience)));
  }
  Pipe& pipe() { return pipe_; }
  /// The code of the receiver's refusal.
  int verdict() {
    auto message = pipe_.recv_message(kPatience);
    if (!message) return -1;
    return Json::parse(as_text(message->header.bytes())).value("code", 0);
  }

 private:
  Context context_;
  Pipe pipe_;
};

std::string announcement(const std::string& name, std::uint64_t size_bytes, int tensors) {
  return Json({{"name", name}, {"size_bytes", size_bytes}, {"tensor_count", tensors}}).dump();
}

/// "a": four bytes.
const std::string& small_header() {
  static const std::string kHeader =
      foreign_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "");
  return kHeader;
}
TensorDict small_tensor() {
  TensorDict batch;
  batch.set("a", Tensor::of<std::uint8_t>({4}, {1, 2, 3, 4}));
  return batch;
}

TEST(CliHostile, NamesThatLeaveTheFolderAreRefused) {
  for (const std::string name :
       {"../evil", "/etc/evil", "a/b", "..", ".", ".hidden", "", "line\nbreak", "\x1b[2J",
        "\xC2\x9B"
        "2J",
        "gpj\u202e.exe", "model\u200b.st", "model\ufeff", "\u2028", "model\ufe0f",
        "model\U000e0041"}) {
    SCOPED_TRACE(name);
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(announcement(name, small_header().size() + 4, 1), small_header());
    EXPECT_EQ(sender.verdict(), static_cast<int>(ErrorCode::permission_denied));
    const Ended ended = receiver.command->finish();
    EXPECT_TRUE(ended_with(ended, ErrorCode::permission_denied));
    EXPECT_TRUE(shows_all(ended));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
  Receiver receiver;
  BadSender sender(receiver.address);
  sender.announce(announcement(std::string(201, 'n'), small_header().size() + 4, 1),
                  small_header());
  EXPECT_TRUE(ended_with(receiver.command->finish(), ErrorCode::permission_denied, "201"));
}

// The name of the sender reverses the direction of the line, or is invisible.
TEST(CliHostile, TheNameOfThePeerHidesNothing) {
  for (const Words& flags : {Words{}, Words{"--json"}}) {
    Receiver receiver(flags);
    BadSender bad(receiver.address, "bad\u202e\u200bsender");
    bad.announce(announcement("a.safetensors", small_header().size() + 4, 1), small_header());
    EXPECT_TRUE(succeeds(bad.pipe().close(kPatience)));
    const Ended ended = receiver.command->finish();
    EXPECT_TRUE(ended_with(ended, ErrorCode::protocol_violation, "bad  sender"));
    EXPECT_TRUE(shows_all(ended));
  }
}

// The directory of the receiver is part of its message, and may not be valid UTF-8.
TEST_F(CliFiles, TheReasonArrivesWhateverTheDirectoryIsCalled) {
  ScratchDir parent;
  const auto folder = parent.path() / "caf\xe9";
  std::filesystem::create_directory(folder);
  const std::string file = save("model.safetensors", numbered(1));
  write_file(folder / "model.safetensors", "precious");
  Command receiver({"recv", "127.0.0.1:0", "-o", folder.string()});
  const std::string address = receiver.wait_for_err("tendon: listening on ");
  const Ended sent = run_tendon({"send", file, address});
  EXPECT_TRUE(ended_with(sent, ErrorCode::permission_denied, "exists"));
  EXPECT_TRUE(ended_with(receiver.finish(), ErrorCode::permission_denied, "exists"));
}

TEST(CliHostile, AnAnnouncementThatDoesNotFitItsHeaderIsRefused) {
  const std::uint64_t whole = small_header().size() + 4;
  struct Case {
    std::string json;
    std::string header;
    ErrorCode code;
  };
  for (const Case& c : {
           Case{announcement("a", whole + 1, 1), small_header(), ErrorCode::corrupt_data},
           Case{announcement("a", ~0ull >> 1, 1), small_header(), ErrorCode::corrupt_data},
           Case{announcement("a", whole, 2), small_header(), ErrorCode::corrupt_data},
           Case{announcement("a", whole, 1), small_header() + "xxxx", ErrorCode::corrupt_data},
           Case{announcement("a", whole, 1), small_header().substr(0, 12), ErrorCode::corrupt_data},
           Case{announcement("a", whole, 1), "", ErrorCode::corrupt_data},
           Case{"{}", small_header(), ErrorCode::protocol_violation},
           Case{"{\"name\": 7}", small_header(), ErrorCode::protocol_violation},
           Case{"{\"name\":\"a\",\"size_bytes\":-1,\"tensor_count\":1}", small_header(),
                ErrorCode::protocol_violation},
           Case{"not JSON", small_header(), ErrorCode::corrupt_data},
       }) {
    SCOPED_TRACE(c.json);
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(c.json, c.header);
    EXPECT_EQ(sender.verdict(), static_cast<int>(c.code));
    EXPECT_TRUE(ended_with(receiver.command->finish(), c.code));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
}

TEST(CliHostile, TensorsThatTheHeaderDoesNotHaveAreRefused) {
  TensorDict other_name;
  other_name.set("b", Tensor::of<std::uint8_t>({4}, {1, 2, 3, 4}));
  TensorDict other_type;
  other_type.set("a", Tensor::of<float>({1}, {1}));
  TensorDict too_long;
  too_long.set("a", Tensor::of<std::uint8_t>({5}, {1, 2, 3, 4, 5}));
  TensorDict too_many = small_tensor();
  too_many.set("b", Tensor::of<std::uint8_t>({1}, {1}));
  TensorDict empty_slice;
  empty_slice.set("a", Tensor::zeros(DType::u8, {0}).value());
  for (const TensorDict& batch : {other_name, other_type, too_long, too_many, empty_slice}) {
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(announcement("a.safetensors", small_header().size() + 4, 1), small_header());
    EXPECT_TRUE(succeeds(sender.pipe().send(batch, kPatience)));
    EXPECT_EQ(sender.verdict(), static_cast<int>(ErrorCode::schema_mismatch));
    EXPECT_TRUE(
        ended_with(receiver.command->finish(), ErrorCode::schema_mismatch, "a.safetensors"));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
}

TEST(CliHostile, AnotherHashAnEarlyEndAndSilenceLeaveNoFile) {
  const std::string json = announcement("a.safetensors", small_header().size() + 4, 1);
  {
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(json, small_header());
    EXPECT_TRUE(succeeds(sender.pipe().send(small_tensor(), kPatience)));
    sender.say(2, Json({{"sha256", std::string(64, '0')}}).dump());
    EXPECT_EQ(sender.verdict(), static_cast<int>(ErrorCode::corrupt_data));
    EXPECT_TRUE(ended_with(receiver.command->finish(), ErrorCode::corrupt_data, "SHA-256"));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
  {
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(json, small_header());
    sender.say(2, Json({{"sha256", std::string(64, '0')}}).dump());  // sent before the tensors
    EXPECT_TRUE(ended_with(receiver.command->finish(), ErrorCode::protocol_violation));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
  {
    Receiver receiver;
    BadSender sender(receiver.address);
    sender.announce(json, small_header());
    EXPECT_TRUE(succeeds(sender.pipe().close(kPatience)));
    EXPECT_TRUE(
        ended_with(receiver.command->finish(), ErrorCode::protocol_violation, "bad sender"));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
  {
    Receiver receiver({"--timeout", "4"});
    BadSender sender(receiver.address);
    sender.announce(json, small_header());
    EXPECT_TRUE(ended_with(receiver.command->finish(), ErrorCode::timeout, "bad sender"));
    EXPECT_EQ(receiver.folder.names(), Words{});
  }
}

// The words of a hostile receiver are printed on the terminal of the sender.
class CliHostileWords : public CliFiles {};

TEST_F(CliHostileWords, ARefusalHidesNothing) {
  Context context = Context::create({.name = "bad receiver"}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  Command sender({"send", save("small.safetensors", small_tensor()), listener.address()});
  Pipe pipe = listener.accept(kPatience).value();
  ASSERT_TRUE(succeeds(pipe.recv_message(kPatience)));
  const std::string json = Json({{"code", 901},
                                 {"detail",
                                  "no\x1b[2J\n\xC2\x9B"
                                  "2J\x7F room\u202e\u2066!"}})
                               .dump();
  ASSERT_TRUE(succeeds(
      pipe.send(Bytes(), {.tag = 3, .header = as_bytes(std::string_view(json))}, kPatience)));
  const Ended ended = sender.finish();
  EXPECT_NE(ended.err.find("refused: no [2J  2J  room  !"), std::string::npos)
      << testing::PrintToString(ended);
  EXPECT_TRUE(shows_all(ended));
}

TEST_F(CliHostileWords, TheReasonOfAnEndedPipeHidesNothing) {
  Context context = Context::create({.name = "bad server"}).value();
  Server server = Server::serve(context, "127.0.0.1:0", [](Pipe pipe) {
                    (void)pipe.recv_message(kPatience);
                    throw std::runtime_error(
                        "model\x1b[2J\n\xC2\x9B"
                        "2J\u202e lost");
                  }).value();
  const Ended ended =
      run_tendon({"send", save("small.safetensors", small_tensor()), server.address()});
  EXPECT_NE(ended.err.find("lost"), std::string::npos) << testing::PrintToString(ended);
  EXPECT_TRUE(shows_all(ended));
}

// Death and Ctrl-C ----------------------------------------------------------------------------

class CliDeath : public CliFiles, public testing::WithParamInterface<std::string> {
 protected:
  /// Starts a sender that stays in the middle of its file for seconds.
  void start() {
    receiver_.emplace(Words{"--path", GetParam()});
    sender_.emplace(Words{"send", save_large(), receiver_->address, "--max-rate", "4", "--path",
                          GetParam(), "--progress", "lines"});
    sender_->wait_for_err("progress ");
    sender_->wait_for_err("progress ");
  }
  std::optional<Receiver> receiver_;
  std::optional<Command> sender_;
};

TEST_P(CliDeath, AKilledSenderIsNamedAndLeavesNoFile) {
  start();
  sender_->signal(SIGKILL);
  const Ended received = receiver_->command->finish();
  EXPECT_TRUE(ended_with(received, ErrorCode::peer_lost, "tendon send"));
  EXPECT_NE(received.err.find("large.safetensors"), std::string::npos) << received.err;
  EXPECT_EQ(receiver_->folder.names(), Words{});
}

TEST_P(CliDeath, AKilledReceiverIsNamed) {
  start();
  receiver_->command->signal(SIGKILL);
  EXPECT_TRUE(ended_with(sender_->finish(), ErrorCode::peer_lost, "tendon recv"));
}

TEST_P(CliDeath, CtrlCAtTheReceiverEndsBothCleanly) {
  start();
  receiver_->command->signal(SIGINT);
  EXPECT_EQ(receiver_->command->finish().code, 130);
  EXPECT_TRUE(ended_with(sender_->finish(), ErrorCode::cancelled, "tendon recv"));
  EXPECT_EQ(receiver_->folder.names(), Words{});
}

TEST_P(CliDeath, CtrlCAtTheSenderEndsBothCleanly) {
  start();
  sender_->signal(SIGINT);
  EXPECT_EQ(sender_->finish().code, 130);
  EXPECT_TRUE(ended_with(receiver_->command->finish(), ErrorCode::cancelled, "tendon send"));
  EXPECT_EQ(receiver_->folder.names(), Words{});
}

INSTANTIATE_TEST_SUITE_P(Paths, CliDeath, testing::Values("shm", "tcp"),
                         [](const auto& test) { return test.param; });

TEST_F(CliFiles, CtrlCWhileWaitingEndsEither) {
  Receiver receiver;
  receiver.command->signal(SIGINT);
  EXPECT_EQ(receiver.command->finish().code, 130);
  Command sender(
      {"send", save("a.safetensors", numbered(1)), "unix:" + (folder_.path() / "nobody").string()});
  sender.wait_for_err("tendon: nobody listens at ");
  sender.signal(SIGTERM);
  EXPECT_EQ(sender.finish().code, 128 + SIGTERM);
}

// Benchmarks ----------------------------------------------------------------------------------

TEST(CliBench, PipePrintsTheAgreedShapeAndFindsNothingWrong) {
  const Ended ended = run_tendon({"bench", "pipe", "--json", "--check", "-b", "1", "-e", "16K",
                                  "-f", "128", "-n", "5", "-w", "2"});
  ASSERT_TRUE(succeeded(ended));
  const Json document = Json::parse(ended.out);
  EXPECT_EQ(document["benchmark"], "pipe");
  EXPECT_TRUE(document["machine"].contains("cpu"));
  ASSERT_EQ(document["results"].size(), 9U) << "three sizes on three ways";
  for (const Json& row : document["results"]) {
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["latency_us_p50"].get<double>(), 0);
    EXPECT_GE(row["latency_us_p99"].get<double>(), row["latency_us_p50"].get<double>());
    EXPECT_GT(row["bandwidth_gb_per_s"].get<double>(), 0);
    EXPECT_GT(row["first_us"].get<double>(), 0);
    EXPECT_GT(row["ratio"]["memcpy"].get<double>(), 0);
  }
  EXPECT_EQ(document["results"][0]["path"], "shm");
  EXPECT_EQ(document["results"][0]["mode"], "loan");
  EXPECT_EQ(document["results"][8]["path"], "tcp");
  EXPECT_EQ(document["results"][8]["size_bytes"], 16384);
}

bool has_benchmark_shape(const Json& row) {
  return row.contains("path") && row.contains("mode") && row.contains("size_bytes") &&
         row.contains("latency_us_p50") && row.contains("latency_us_p99") &&
         row.contains("bandwidth_gb_per_s") && row["ratio"].is_object();
}

bool is_of_the_double(const Json& row) {
  return row["device"] == "cuda:0" && row["driver"] == "13.0" &&
         !row["gpu"].get<std::string>().empty();
}

TEST(CliBench, PipeMeasuresBatchesOnAGpu) {
  const Variable double_of_the_driver("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  const Ended ended = run_tendon({"bench", "pipe", "--json", "--device", "cuda:0", "-b", "16", "-e",
                                  "1M", "-f", "65536", "-n", "3", "-w", "1"});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  ASSERT_EQ(results.size(), 6U) << "two sizes: loans, copies, copies over tcp";
  for (const Json& row : results) {
    EXPECT_TRUE(has_benchmark_shape(row)) << row;
    EXPECT_TRUE(is_of_the_double(row)) << row;
    const bool is_direct = row["path"] == "shm";
    EXPECT_EQ(row["device_path"], is_direct ? "direct" : "staged");
    EXPECT_EQ(row["copies_through_host"] == 0, is_direct) << row;
    EXPECT_GT(row["arrival_us_p50"].get<double>(), 0);
    EXPECT_GE(row["arrival_us_p99"].get<double>(), row["arrival_us_p50"].get<double>());
    EXPECT_EQ(row["wrong"], 0) << "contents are compared without --check";
  }
  EXPECT_EQ(results[0]["mode"], "loan");
  EXPECT_EQ(results[2]["mode"], "copy");
  const Ended text = run_tendon({"bench", "pipe", "--device", "cuda:0", "--path", "shm", "-b", "8",
                                 "-e", "8", "-n", "1", "-w", "1"});
  ASSERT_TRUE(succeeded(text));
  EXPECT_NE(text.out.find("# batches lie on cuda:0, "), std::string::npos) << text.out;
  EXPECT_TRUE(text.out.ends_with("  direct\n")) << text.out;
}

TEST(CliBench, PipeSaysWhyNoGpuCanBeMeasured) {
  const auto refused = [](const Words& more) {
    Words words{"bench", "pipe", "-n", "1", "--device"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tendon(words);
  };
  const auto says = [](const Ended& ended, ErrorCode code, std::string_view text) {
    return ended.code == error_info(code).exit_code && ended.err.find(text) != std::string::npos;
  };
  {
    const Variable off("TENDON_CUDA", "off");
    const Ended ended = refused({"cuda:0"});
    EXPECT_TRUE(says(ended, ErrorCode::not_supported, "TENDON_CUDA=off")) << ended.err;
  }
  const Variable double_of_the_driver("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  Ended ended = refused({"cuda:7"});
  EXPECT_TRUE(says(ended, ErrorCode::unsupported_device, "cuda:7")) << ended.err;
  for (const char* const none : {"gpu", "cpu"}) {
    ended = refused({none});
    EXPECT_TRUE(says(ended, ErrorCode::invalid_argument, "legal are GPUs")) << ended.err;
  }
}

TEST(CliBench, TopicMeasuresSamplesOnAGpu) {
  const Variable double_of_the_driver("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  const Ended ended = run_tendon({"bench", "topic", "--json", "--device", "cuda:0", "--readers",
                                  "2", "-b", "1M", "-e", "1M", "-n", "4"});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  ASSERT_EQ(results.size(), 2U) << "two paths, copies alone";
  for (const Json& row : results) {
    EXPECT_TRUE(has_benchmark_shape(row)) << row;
    EXPECT_TRUE(is_of_the_double(row)) << row;
    const bool is_direct = row["path"] == "shm";
    EXPECT_EQ(row["copies_d2d"], is_direct ? row["published"] : Json(0)) << "one for all readers";
    EXPECT_EQ(row["copies_d2h"], is_direct ? Json(0) : row["published"]) << row;
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["lost"], 0);
  }
  const Ended text = run_tendon(
      {"bench", "topic", "--device", "cuda:0", "--path", "shm", "-b", "8", "-e", "8", "-n", "1"});
  ASSERT_TRUE(succeeded(text));
  EXPECT_NE(text.out.find("# samples lie on cuda:0, "), std::string::npos) << text.out;
  const Ended loan = run_tendon({"bench", "topic", "--device", "cuda:0", "--mode", "loan"});
  EXPECT_EQ(loan.code, error_info(ErrorCode::invalid_argument).exit_code);
  EXPECT_NE(loan.err.find("copies samples that lie on a GPU"), std::string::npos) << loan.err;
}

TEST_F(CliFiles, BenchCheckpointVerifiesEveryWay) {
  const Ended ended = run_processes(
      {"checkpoint", "--json", "-n", "2", save("a.safetensors", patterned(5, 3'000'000))});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0]["mode"], "loan");
  EXPECT_LT(results[0]["copies"].get<double>(), 0.1) << "a loan is handed over, not copied";
  EXPECT_NEAR(results[1]["copies"].get<double>(), 1, 0.1);
  for (const Json& row : results) EXPECT_TRUE(row["verified"].get<bool>());
}

TEST(CliBench, DetectNamesEveryVictim) {
  const Ended ended = run_processes({"detect", "--json", "-n", "2"});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  EXPECT_FALSE(results.empty());
  for (const Json& row : results) {
    EXPECT_EQ(row["named"], 2);
    EXPECT_TRUE(has_benchmark_shape(row)) << row;
  }
}

TEST(CliBench, DeadlineRunsEveryCallIntoIt) {
  const Ended ended = run_processes({"deadline", "--json", "-n", "1"});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  EXPECT_GE(results.size(), 10U);
  for (const Json& row : results) {
    EXPECT_GE(row["latency_us_p50"].get<double>(), 0) << row;
    EXPECT_TRUE(has_benchmark_shape(row)) << row;
  }
}

// With runtime directories of their own, the readers look to the publisher like those of another
// host.
TEST(CliBench, TopicStartsItsReadersByACommand) {
  const ScratchDir folder;
  const std::string other_host = "env TENDON_RUNTIME_DIR=" + (folder.path() / "run").string();
  const Ended ended = run_tendon({"bench", "topic", "--json", "--path", "tcp", "--mode", "copy",
                                  "--policy", "blocking", "-b", "64", "-e", "64", "-n", "5",
                                  "--listen", "127.0.0.1:0", "--readers-by", other_host});
  ASSERT_TRUE(succeeded(ended));
  const Json results = Json::parse(ended.out)["results"];
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0]["lost"], 0);
  EXPECT_TRUE(results[0]["link"].get<std::string>().starts_with("tcp: ")) << results[0];
  EXPECT_TRUE(has_benchmark_shape(results[0])) << results[0];
  EXPECT_NE(run_tendon({"bench", "topic", "-n", "1", "--readers-by", "/no/such/program"}).code, 0);
}

TEST(Cli, CompletionCompletesVerbsAndFlags) {
  ScratchDir folder;
  const std::string script = (folder.path() / "tendon.bash").string();
  write_file(script, run_tendon({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words, int index) {
    const std::string program = "source " + script + "; COMP_WORDS=(" TENDON_CLI_PATH " " + words +
                                "); COMP_CWORD=" + std::to_string(index) +
                                "; _tendon; echo \"${COMPREPLY[*]}\"";
    return Command({"-c", program}, "/bin/bash").finish().out;
  };
  EXPECT_EQ(complete("se", 1), "send\n");
  EXPECT_EQ(complete("recv --kee", 2), "--keep\n");
  EXPECT_EQ(complete("bench al", 2), "allreduce allgather alltoall\n");
  EXPECT_EQ(complete("bench topic --re", 3), "--readers --readers-by\n");
  EXPECT_EQ(complete("bench alltoall --me", 3), "--memory\n");
  EXPECT_EQ(complete("topic e", 2), "echo\n");
  EXPECT_EQ(complete("topic pub --su", 3), "--subscribers\n");
  EXPECT_EQ(complete("info co", 2), "collectives\n");
  EXPECT_EQ(complete("info collectives --ho", 3), "--hosts\n");
  EXPECT_EQ(complete("key ch", 2), "check\n");
  EXPECT_EQ(complete("key cert --na", 3), "--name\n");
  EXPECT_EQ(complete("explain peer_", 2), "peer_lost\n");
  EXPECT_EQ(complete("send file --path ''", 4), "automatic shm tcp\n");
  EXPECT_EQ(complete("bench allreduce --policy bl", 4), "blocking\n");
}

}  // namespace
}  // namespace tendon::test
