// SPDX-License-Identifier: Apache-2.0
// `tendon call` with responders in a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>
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

class CallCommand : public testing::Test {
 protected:
  [[nodiscard]] static Node join(Context& context, const std::string& name) {
    return Node::join(context,
                      {.domain = "brain",
                       .name = name,
                       .peers = std::vector<std::string>{},
                       .listen = "127.0.0.1:0"},
                      kPatience)
        .value();
  }
  [[nodiscard]] Words with_peers(Words words) const {
    words.insert(words.end(), {"--peer", arm_.address(), "--domain", "brain"});
    return words;
  }
  [[nodiscard]] static Responder respond(Node& node, Responder::Handler handler) {
    return Responder::declare(node, "arm/plan", std::move(handler)).value();
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  ScratchDir folder_;
  Context arm_context_ = Context::create({.name = "arm"}).value();
  Node arm_ = join(arm_context_, "arm");
};

TEST_F(CallCommand, PrintsTheAnswerAndWritesIt) {
  const Responder responder = respond(arm_, [](const Request& request) -> Result<TensorDict> {
    TensorDict answer;
    answer.set("path", Tensor::of<float>({2}, {1, 3}));
    answer.set("echo", request.tensors()["x"]);
    answer.set("label", Value("reached"));
    return answer;
  });
  ASSERT_TRUE(save_safetensors(file("goal"), patterned(3, 1000)));
  const Words words =
      with_peers({"call", "arm/plan", file("goal"), "-o", file("answer"), "--timeout", "20"});
  const Ended text = run_tendon(words);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("arm/plan  arm\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  path  f32 [2]  min 1  mean 2  max 3\n"));
  EXPECT_THAT(text.out, HasSubstr("\n  label  'reached'\n"));
  const TensorDict written = load_safetensors(file("answer")).value();
  EXPECT_TRUE(has_pattern(written["echo"].bytes(), 3));
  const Ended line =
      run_tendon(with_peers({"call", "arm/plan", file("goal"), "--json", "--timeout", "20"}));
  const Json document = Json::parse(line.out);
  EXPECT_EQ(document["node"], "arm");
  EXPECT_EQ(document["tensors"]["path"]["max"], 3.0);
  EXPECT_EQ(document["values"]["label"], "reached");
}

TEST_F(CallCommand, AllAnswersArePrintedAndTheOthersNamed) {
  Context leg_context = Context::create({.name = "leg"}).value();
  Node leg = join(leg_context, "leg");
  const Responder first =
      respond(arm_, [](const Request& request) -> Result<TensorDict> { return request.tensors(); });
  const Responder second = respond(leg, [](const Request&) -> Result<TensorDict> {
    return Error{ErrorCode::not_found, "test", "no such plan"};
  });
  Words words = with_peers({"call", "arm/plan", "--all", "--timeout", "20", "--json"});
  words.insert(words.end(), {"--peer", leg.address()});
  Ended ended;
  // The command asks the responders that are announced when it starts; a busy machine announces the
  // two at different times.
  const auto both = [&] { return ended.code == 0 && ended.err.find("leg") != std::string::npos; };
  for (int tries = 0; tries < 50 && !both(); ++tries) ended = run_tendon(words);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(Json::parse(ended.out)["node"], "arm");
  EXPECT_THAT(ended.err, HasSubstr("no answer of leg: not_found: no such plan"));
}

TEST_F(CallCommand, AnErrorIsThatOfTheCall) {
  const Responder responder = respond(arm_, [](const Request&) -> Result<TensorDict> {
    throw std::runtime_error("a motor is hot");
  });
  const Ended failed = run_tendon(with_peers({"call", "arm/plan", "--timeout", "20"}));
  EXPECT_EQ(failed.code, 34);
  EXPECT_EQ(failed.out, "");
  EXPECT_THAT(failed.err, HasSubstr("arm: a motor is hot"));
  const Ended nobody = run_tendon(with_peers({"call", "leg/plan", "--timeout", "0.2"}));
  EXPECT_EQ(nobody.code, 8);
  EXPECT_THAT(nobody.err, HasSubstr("no responder of leg/plan"));
  EXPECT_EQ(run_tendon(with_peers({"call", "arm/*"})).code, 2);
  EXPECT_EQ(run_tendon(with_peers({"call", "arm/plan", "--all", "-o", file("x")})).code, 2);
  EXPECT_EQ(run_tendon(with_peers({"call", "arm/plan", file("missing")})).code, 26);
}

TEST_F(CallCommand, ASignalGivesTheCallUp) {
  std::atomic<bool> running{false};
  std::atomic<bool> cancelled{false};
  const Responder responder = respond(arm_, [&](const Request& request) -> Result<TensorDict> {
    running = true;
    cancelled = eventually([&] { return request.cancelled(); });
    return request.tensors();
  });
  Command call(with_peers({"call", "arm/plan", "--timeout", "1000"}));
  EXPECT_TRUE(eventually([&] { return running.load(); }));
  call.signal(SIGINT);
  EXPECT_EQ(call.finish().code, 130);
  EXPECT_TRUE(eventually([&] { return cancelled.load(); }));
}

}  // namespace
}  // namespace tendon::test
