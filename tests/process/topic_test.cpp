// SPDX-License-Identifier: Apache-2.0
// `tendon topic` and `tendon node` with nodes of a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <vector>

#include "process/command.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Words = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

/// Expects this output. The command prints what is announced so far, so a second try may be needed.
testing::AssertionResult comes_to_print(const Words& words, const std::string& wanted) {
  Ended last;
  for (int tries = 0; tries < 5; ++tries) {
    last = run_tendon(words);
    if (last.code == 0 && last.out == wanted) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << testing::PrintToString(last);
}

class Topic : public testing::Test {
 protected:
  [[nodiscard]] Words with_peer(Words words) const {
    words.insert(words.end(), {"--peer", node_.address(), "--domain", "brain", "--timeout", "20"});
    return words;
  }

  Context context_ = Context::create({.name = "vision"}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "vision",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
};

TEST_F(Topic, ListAndInfoSayWhatIsAnnounced) {
  const Publisher objects =
      Publisher::declare(node_, "vision/objects", {.qos = {keep_last(8)}}).value();
  const Publisher frames =
      Publisher::declare(node_, "vision/frames", {.qos = {.overflow = Overflow::block}}).value();
  const Subscriber commands = Subscriber::declare(node_, "pfc/**").value();
  EXPECT_TRUE(comes_to_print(with_peer({"topic", "list"}), "vision/frames\nvision/objects\n"));
  EXPECT_TRUE(comes_to_print(with_peer({"topic", "list", "--json"}),
                             "{\"topics\":[\"vision/frames\",\"vision/objects\"]}\n"));
  EXPECT_TRUE(
      comes_to_print(with_peer({"topic", "info"}),
                     "vision/frames  published by vision  keep_last(1), block  schema any\n"
                     "vision/objects  published by vision  keep_last(8), drop_oldest  schema any\n"
                     "pfc/**  subscribed to by vision  schema any\n"));
  const std::string commands_alone = "pfc/**  subscribed to by vision  schema any\n";
  EXPECT_TRUE(comes_to_print(with_peer({"topic", "info", "pfc/commands"}), commands_alone));
  EXPECT_TRUE(comes_to_print(with_peer({"node", "list"}), "vision\n"));
  EXPECT_TRUE(comes_to_print(
      {"topic", "info", "--domain", "brain", "--peer", node_.address(), "pfc/*"}, commands_alone))
      << "a key behind an address is none";
}

TEST_F(Topic, InfoSaysHowPublishersAreReached) {
  const Publisher objects = Publisher::declare(node_, "vision/objects").value();
  const Ended words = run_tendon(with_peer({"topic", "info", "--why", "vision/**"}));
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_THAT(words.out, HasSubstr("vision/objects  of vision  reached by shm: "));
  const Ended document = run_tendon(with_peer({"topic", "info", "--why", "vision/**", "--json"}));
  EXPECT_EQ(Json::parse(document.out).at("reached"), true);
  const Ended nothing = run_tendon(with_peer({"topic", "info", "--why"}));
  EXPECT_THAT(nothing.err, HasSubstr("name one"));
}

TEST_F(Topic, InfoOfANodeSaysHowItIsReached) {
  const Publisher objects = Publisher::declare(node_, "vision/objects").value();
  const Subscriber commands = Subscriber::declare(node_, "pfc/**").value();
  const Ended words = run_tendon(with_peer({"node", "info", "vision"}));
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_THAT(words.out, HasSubstr("vision  context " + context_.id().to_string() + "\n"));
  EXPECT_THAT(words.out, HasSubstr("  reached by shm: "));
  EXPECT_THAT(words.out, HasSubstr("  vision/objects  published by vision"));
  EXPECT_THAT(words.out, HasSubstr("  pfc/**  subscribed to by vision"));
  const Ended document = run_tendon(with_peer({"node", "info", "vision", "--json"}));
  const Json info = Json::parse(document.out);
  EXPECT_EQ(info.at("link").at("path"), "shm");
  EXPECT_GT(info.at("link").at("messages_received"), 0);
  EXPECT_EQ(info.at("link").at("stray_frames"), 0);
  EXPECT_EQ(info.at("publishers").at(0).at("key"), "vision/objects");
  EXPECT_EQ(info.at("subscribers").size(), 1u);
  const Ended nobody = run_tendon(with_peer({"node", "info", "nobody"}));
  EXPECT_NE(nobody.code, 0);
  EXPECT_THAT(nobody.err, HasSubstr("no node 'nobody'"));
}

TEST_F(Topic, EchoPrintsTensorsWithTheirStatistics) {
  Publisher publisher =
      Publisher::declare(node_, "vision/objects", {.qos = {keep_last(2)}}).value();
  TensorDict sample;
  sample.set("scores", Tensor::of<float>({4}, {1, 2, 3, 6}));
  sample.set("half", Tensor::from_bytes(DType::f16, {2},
                                        std::as_bytes(std::span<const std::uint16_t>(
                                            std::array<std::uint16_t, 2>{0x3c00, 0xc100})))
                         .value());
  sample.set("label", Value("a cup"));
  ASSERT_TRUE(publisher.publish(sample));
  ASSERT_TRUE(publisher.publish(sample));
  const Ended text = run_tendon(with_peer({"topic", "echo", "vision/*", "-n", "2"}));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("vision/objects  vision #1  age "));
  EXPECT_THAT(text.out, HasSubstr("\n  scores  f32 [4]  min 1  mean 3  max 6\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  half  f16 [2]  min -2.5  mean -0.75  max 1\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  label  'a cup'\n"));
  EXPECT_THAT(text.out, HasSubstr("vision #2"));
  const Ended line = run_tendon(with_peer({"topic", "echo", "vision/*", "-n", "1", "--json"}));
  const Json document = Json::parse(line.out);
  EXPECT_EQ(document["sequence"], 1);
  EXPECT_EQ(document["publisher"], "vision");
  EXPECT_EQ(document["tensors"]["scores"],
            Json::parse(R"({"dtype": "f32", "shape": [4], "min": 1.0, "mean": 3.0, "max": 6.0})"));
  EXPECT_EQ(document["values"]["label"], "a cup");
}

// Two rows of pixels are one line of half blocks; a larger image is scaled down.
TEST_F(Topic, EchoShowsImagesOnATerminalAlone) {
  const std::string script = "/usr/bin/script";  // runs its program on a terminal
  if (access(script.c_str(), X_OK) != 0) GTEST_SKIP() << script << " is not installed";
  Publisher publisher = Publisher::declare(node_, "vision/frames").value();
  TensorDict sample;
  sample.set("rgb", Tensor::of<std::uint8_t>({3, 1, 3}, {255, 0, 0, 0, 255, 0, 0, 0, 255}));
  sample.set("rgba", Tensor::of<std::uint8_t>({1, 2, 4}, {200, 100, 50, 255, 200, 100, 50, 0}));
  sample.set("vector", Tensor::of<std::uint8_t>({2}, {1, 2}));
  sample.set("two", Tensor::of<std::uint8_t>({1, 1, 2}, {1, 2}));
  Tensor large = Tensor::empty(DType::u8, {480, 960}).value();
  std::ranges::fill(large.mutable_bytes(), std::byte{77});
  sample.set("gray", std::move(large));
  ASSERT_TRUE(publisher.publish(sample));
  const Words words = with_peer({"topic", "echo", "vision/*", "-n", "1"});
  const auto on_a_terminal = [&](const std::string& tail) {
    std::string line = TENDON_CLI_PATH;
    for (const std::string& word : words) line += " '" + word + "'";
    // Its stderr is another stream.
    return Command({"-qec", line + tail + " 2>/dev/null", "/dev/null"}, script).finish().out;
  };
  const std::string shown = on_a_terminal("");
  const std::string block = "\u2580";
  const std::string end = "\x1b[0m\r\n";
  EXPECT_THAT(shown, HasSubstr("max 255\r\n  \x1b[38;2;255;0;0m\x1b[48;2;0;255;0m" + block + end +
                               "  \x1b[38;2;0;0;255m" + block + end));
  EXPECT_THAT(shown,
              HasSubstr("\r\n  \x1b[38;2;200;100;50m" + block + "\x1b[38;2;0;0;0m" + block + end));
  EXPECT_THAT(shown, HasSubstr("max 2\r\n  "));
  std::string line = "\n  ";
  for (int column = 0; column < 48; ++column)
    line += "\x1b[38;2;77;77;77m\x1b[48;2;77;77;77m" + block;
  EXPECT_THAT(shown, HasSubstr(line + end));
  std::size_t lines = 0;
  for (std::size_t at = shown.find(line); at != std::string::npos; at = shown.find(line, at + 1))
    ++lines;
  EXPECT_EQ(lines, 12u);
  for (const std::string& plain :
       {on_a_terminal(" --json"), on_a_terminal(" | cat"), run_tendon(words).out}) {
    EXPECT_THAT(plain, HasSubstr("gray"));
    EXPECT_EQ(plain.find('\x1b'), std::string::npos) << plain;
  }
}

TEST_F(Topic, MeasuresEndWithTheirFigures) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(3)}}).value();
  for (int n = 0; n < 3; ++n) ASSERT_TRUE(publisher.publish(as_bytes("0123456789")));
  for (const char* verb : {"hz", "bw", "delay"}) {
    const Ended ended = run_tendon(with_peer({"topic", verb, "frames", "-n", "3", "--json"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    const Json figures = Json::parse(ended.out);
    EXPECT_EQ(figures["samples"], 3) << verb;
    EXPECT_EQ(figures["missed"], 0) << verb;
    const std::string unit = std::string(verb) == "bw" ? "mean_bytes" : "mean_s";
    EXPECT_GT(figures[unit].get<double>(), 0) << verb;
    const Ended words = run_tendon(with_peer({"topic", verb, "frames", "-n", "3"}));
    EXPECT_THAT(words.out, HasSubstr("samples 3")) << verb;
  }
}

TEST_F(Topic, PubPublishesAFile) {
  ScratchDir folder;
  const std::string file = (folder.path() / "a.safetensors").string();
  ASSERT_TRUE(save_safetensors(file, patterned(3, 10'000)));
  Subscriber subscriber = Subscriber::declare(node_, "vision/*").value();
  const Ended ended =
      run_tendon(with_peer({"topic", "pub", "vision/objects", file, "-n", "3", "--rate", "1000"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "published 3 samples on vision/objects; the last one was shown to 1\n");
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const Sample sample = subscriber.recv(kPatience).value();
    EXPECT_EQ(sample.sequence, sequence);
    EXPECT_TRUE(is_patterned(*sample.tensors, 3, 10'000));
  }
}

TEST_F(Topic, ASignalEndsWhatHasNoEnd) {
  Publisher publisher = Publisher::declare(node_, "frames").value();
  Command echo(with_peer({"topic", "echo", "frames"}));
  ASSERT_TRUE(publisher.wait_for_subscribers(1, kPatience));
  (void)echo.wait_for_err("tendon: vision publishes on frames: connected: ");
  echo.signal(SIGINT);
  const Ended ended = echo.finish();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("frames: connected: ")) << "and nothing else";
  EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
}

TEST_F(Topic, ReadersSayHowAPublisherEnded) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(2)}}).value();
  for (int n = 0; n < 2; ++n) ASSERT_TRUE(publisher.publish(as_bytes("0123456789")));
  Command echo(with_peer({"topic", "echo", "frames"}));
  Command document(with_peer({"topic", "echo", "frames", "--json"}));
  Command hz(with_peer({"topic", "hz", "frames"}));
  ASSERT_TRUE(publisher.wait_for_subscribers(3, kPatience));
  ASSERT_TRUE(publisher.close(kPatience));
  for (Command* const reader : {&echo, &document, &hz}) {
    EXPECT_EQ(reader->wait_for_err("tendon: vision ended on frames (closed): "),
              "sample 2 is the last that arrived here, and 2 were published");
    reader->signal(SIGINT);
  }
  const Ended text = echo.finish();
  EXPECT_THAT(text.out, HasSubstr("frames  vision #2"));
  EXPECT_THAT(text.out, Not(HasSubstr("ended"))) << "what is piped is data";
  EXPECT_THAT(hz.finish().out, HasSubstr("samples 2"));
  std::istringstream lines(document.finish().out);
  std::vector<Json> documents;
  for (std::string line; std::getline(lines, line);) documents.push_back(Json::parse(line));
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[1]["sequence"], 2);
  EXPECT_EQ(
      documents[2]["ended"],
      Json::parse(R"({"reason": "closed", "last_seen": 2, "last_published": 2, "exact": true})"));
  EXPECT_EQ(documents[2]["entity"], documents[1]["entity"]);
  EXPECT_EQ(documents[2]["gaps"], Json::array());
}

TEST_F(Topic, AReaderOfAKeyThatNobodyPublishesNamesThoseLikeIt) {
  const Publisher objects = Publisher::declare(node_, "vision/objects").value();
  const Publisher commands = Publisher::declare(node_, "pfc/commands").value();
  Command hz(with_peer({"topic", "hz", "vision/object"}));
  EXPECT_EQ(hz.wait_for_err("tendon: no node was found that publishes on vision/object"),
            "; published are vision/objects, pfc/commands");
  hz.signal(SIGINT);
  EXPECT_EQ(hz.finish().code, 0);
}

TEST_F(Topic, AReaderThatGetsNothingSaysForWhatItWaits) {
  const Publisher frames = Publisher::declare(node_, "frames").value();
  for (const char* const verb : {"echo", "hz"}) {
    Command reader(with_peer({"topic", verb, "frames"}));
    EXPECT_THAT(reader.wait_for_err("tendon: vision publishes on frames: "),
                testing::StartsWith("connected: "));
    EXPECT_EQ(reader.wait_for_err("tendon: nothing came on frames "), "for 1 s; publishers: 1");
    reader.signal(SIGINT);
    EXPECT_EQ(reader.finish().code, 0);
  }
}

TEST_F(Topic, TheDomainMayBeTheEnvironments) {
  const Publisher objects = Publisher::declare(node_, "vision/objects").value();
  setenv("TENDON_DOMAIN", "brain", 1);
  const auto prints = [&](Words words, const std::string& wanted) {
    words.insert(words.end(), {"--peer", node_.address(), "--timeout", "20"});
    return comes_to_print(words, wanted);
  };
  EXPECT_TRUE(prints({"topic", "list"}, "vision/objects\n"));
  EXPECT_TRUE(prints({"node", "list"}, "vision\n"));
  EXPECT_TRUE(
      prints({"topic", "info"},
             "vision/objects  published by vision  keep_last(1), drop_oldest  schema any\n"));
  const Ended other = run_tendon(
      {"topic", "list", "--peer", node_.address(), "--domain", "other", "--timeout", "0.5"});
  EXPECT_THAT(other.err, HasSubstr("domain 'other'")) << "what is asked for wins";
  unsetenv("TENDON_DOMAIN");
}

TEST(TopicBench, HasARowForEachWay) {
  const Ended ended =
      run_tendon({"bench", "topic", "-b", "64", "-e", "32768", "-f", "512", "-n", "20", "--readers",
                  "2", "--no-pin", "--policy", "balanced", "--json"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const Json results = Json::parse(ended.out)["results"];
  ASSERT_EQ(results.size(), 6u);
  for (const Json& row : results) {
    EXPECT_EQ(row["readers"], 2);
    EXPECT_GT(row["publish_us_p50"].get<double>(), 0) << row;
    EXPECT_GE(row["latency_us_p99"].get<double>(), row["latency_us_p50"].get<double>()) << row;
  }
}

TEST_F(Topic, MistakesAreNamed) {
  const auto code = [](ErrorCode error) { return error_info(error).exit_code; };
  const Ended nowhere = run_tendon({"topic", "list", "--router", "nowhere"});
  EXPECT_EQ(nowhere.code, code(ErrorCode::invalid_argument));
  EXPECT_THAT(nowhere.err, HasSubstr("HOST:PORT"));
  const Ended nobody = run_tendon({"topic", "list", "--peer", node_.address(), "--timeout", "0.5"});
  EXPECT_EQ(nobody.code, code(ErrorCode::timeout)) << "it is of another domain";
  EXPECT_THAT(nobody.err, HasSubstr("domain 'default'"));
  EXPECT_THAT(nobody.err, HasSubstr("tried: " + node_.address() + ": it answers"));
  EXPECT_THAT(nobody.err, HasSubstr("runtime directory /"));
  const Ended no_key = run_tendon(with_peer({"topic", "echo", "a//b"}));
  EXPECT_EQ(no_key.code, code(ErrorCode::invalid_argument));
  const Ended late =
      run_tendon(with_peer({"topic", "echo", "nothing", "--sample-timeout", "0.05"}));
  EXPECT_EQ(late.code, code(ErrorCode::timeout));
  EXPECT_THAT(late.err, HasSubstr("nothing came on nothing"));
}

}  // namespace
}  // namespace tendon::test
