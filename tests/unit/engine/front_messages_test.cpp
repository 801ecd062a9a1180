// SPDX-License-Identifier: Apache-2.0
// The messages of the front, the faults that are found in them, and the answers:
// examples/engine/PROTOCOL.md.
#include "controller/front_messages.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace engine {
namespace {

FrontMessage parsed(std::string_view json) { return parse_front_message(tendon::as_bytes(json)); }

/// The fault of a message; "" where it has none.
std::string fault(std::string_view json) {
  const FrontMessage message = parsed(json);
  const auto* wrong = std::get_if<Malformed>(&message);
  return wrong == nullptr ? "" : wrong->message;
}

std::string submit(std::string_view sampling) {
  return R"({"kind":"submit","id":"a","prompt":[1,2],"sampling":)" + std::string(sampling) + "}";
}

TEST(FrontMessages, ARequestIsRead) {
  const FrontMessage message = parsed(submit(
      R"({"max_tokens":7,"temperature":1,"top_p":0.5,"seed":18446744073709551615,"logprobs":0,)"
      R"("ignore_eos":true,"min_p":null,"a_field_of_tomorrow":[]})"));
  const auto* request = std::get_if<Submit>(&message);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(request->request.id, "a");
  EXPECT_EQ(request->request.prompt, (std::vector<std::uint32_t>{1, 2}));
  const v1::SamplingParams& sampling = request->request.sampling;
  EXPECT_EQ(sampling.max_tokens(), 7U);
  EXPECT_FLOAT_EQ(sampling.temperature(), 1);
  EXPECT_FLOAT_EQ(sampling.top_p(), 0.5F);
  EXPECT_EQ(sampling.seed(), 18446744073709551615ULL);
  EXPECT_TRUE(sampling.has_logprobs());
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_FALSE(sampling.has_min_p());
  EXPECT_FALSE(sampling.has_top_k());
}

TEST(FrontMessages, CancelAndFinishNameARequest) {
  const FrontMessage cancel = parsed(R"({"kind":"cancel","id":"x"})");
  ASSERT_TRUE(std::holds_alternative<Cancel>(cancel));
  EXPECT_EQ(std::get<Cancel>(cancel).id, "x");
  const FrontMessage finish = parsed(R"({"id":"y","kind":"finish","reason":"stop"})");
  ASSERT_TRUE(std::holds_alternative<Finish>(finish));
  EXPECT_EQ(std::get<Finish>(finish).id, "y");
}

TEST(FrontMessages, WhatIsWrongIsNamed) {
  EXPECT_NE(fault(""), "");
  EXPECT_NE(fault("[1]"), "");
  EXPECT_NE(fault("\xff"), "");
  EXPECT_NE(fault(R"({"kind":"cancel"})").find("id is missing"), std::string::npos);
  EXPECT_NE(fault(R"({"kind":7,"id":"x"})").find("kind is a wrong"), std::string::npos);
  EXPECT_NE(fault(R"({"kind":"dance","id":"x"})").find("kind is unknown"), std::string::npos);
  EXPECT_NE(fault(R"({"kind":"cancel","id":")" + std::string(65, 'x') + "\"}").find("64 bytes"),
            std::string::npos);
  EXPECT_NE(fault(R"({"kind":"submit","id":"x","sampling":{"max_tokens":1}})").find("prompt"),
            std::string::npos);
  EXPECT_NE(fault(R"({"kind":"submit","id":"x","prompt":[1]})").find("sampling is missing"),
            std::string::npos);
  for (const char* token : {"-1", "1.5", "4294967296", "\"1\"", "null", "[1]"}) {
    EXPECT_NE(fault(std::string(R"({"kind":"submit","id":"x","prompt":[1,)") + token +
                    R"(],"sampling":{"max_tokens":1}})"),
              "")
        << token;
  }
  EXPECT_EQ(fault(submit(R"({"max_tokens":1})")), "");
  EXPECT_NE(fault(submit("[]")), "");
  EXPECT_NE(fault(submit("{}")).find("sampling.max_tokens is missing"), std::string::npos);
  for (const char* field :
       {R"("temperature":-1)", R"("temperature":{"$float":"nan"})", R"("temperature":"1")",
        R"("top_p":1.01)", R"("min_p":-0.1)", R"("top_k":-1)", R"("top_k":0.5)", R"("seed":-1)",
        R"("presence_penalty":2.5)", R"("frequency_penalty":-3)", R"("repetition_penalty":0)",
        R"("min_tokens":4294967296)", R"("ignore_eos":1)", R"("logprobs":21)"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    EXPECT_NE(fault(submit(std::string(R"({"max_tokens":1,)") + field + "}"))
                  .find("sampling." + name + " is "),
              std::string::npos)
        << field;
  }
  EXPECT_NE(fault(submit(R"({"max_tokens":0})")).find("from 1 to"), std::string::npos);
}

TEST(FrontMessages, AMalformedMessageKeepsItsId) {
  const FrontMessage message = parsed(R"({"kind":"submit","id":"x","prompt":7})");
  ASSERT_TRUE(std::holds_alternative<Malformed>(message));
  EXPECT_EQ(std::get<Malformed>(message).id, "x");
}

TEST(FrontMessages, WhatTheFrontIsTold) {
  EXPECT_EQ(accepted_message("a"), R"({"kind":"accepted","id":"a"})");
  EXPECT_EQ(refused_message(std::nullopt, {RefusalCode::malformed, "why"}),
            R"({"kind":"refused","id":null,"code":"malformed","message":"why"})");
  EXPECT_EQ(message_of(NewTokens{.id = "a", .tokens = {5, 6}}),
            R"({"kind":"tokens","id":"a","tokens":[5,6]})");
  NewTokens told{.id = "a", .tokens = {5}};
  v1::TokenLogprobs& logprobs = told.logprobs.emplace_back();
  logprobs.set_logprob(-0.5F);
  logprobs.add_top()->set_token_id(5);
  EXPECT_EQ(message_of(told), R"({"kind":"tokens","id":"a","tokens":[5],)"
                              R"("logprobs":[{"logprob":-0.5,"top":[[5,0.0]]}]})");
  EXPECT_EQ(message_of(Done{.id = "a",
                            .reason = v1::FINISH_REASON_FAILED,
                            .failure = {"worker_lost", "why"},
                            .prompt_tokens = 3,
                            .completion_tokens = 4}),
            R"({"kind":"done","id":"a","reason":"failed",)"
            R"("error":{"code":"worker_lost","message":"why"},)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":4}})");
}

}  // namespace
}  // namespace engine
