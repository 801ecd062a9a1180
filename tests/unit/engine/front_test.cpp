// SPDX-License-Identifier: Apache-2.0
// The front's pipe, with fronts that connect, leave and do not read.
#include "controller/front.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/batches.hpp"
#include "support/expect.hpp"

namespace engine {
namespace {

using tendon::test::eventually;
using tendon::test::fails_with;
using tendon::test::kPatience;
using tendon::test::succeeds;

class Fronts : public testing::Test {
 protected:
  Fronts()
      : front_(Front::listen(context_, "127.0.0.1:0", inbox_).value()),
        client_context_(tendon::Context::create({}).value()) {}

  tendon::Pipe connect() {
    return tendon::Pipe::connect(client_context_, front_->address(), kPatience).value();
  }
  /// Waits until a front has left; drops the other events until then.
  bool one_has_gone() {
    return eventually([&] {
      for (const FrontEvent& event : inbox_.take())
        if (std::holds_alternative<FrontGone>(event)) return true;
      return false;
    });
  }

  // A peer that does not read can hold this much before `unsent` grows.
  tendon::Context context_ = tendon::Context::create({.link_cap_bytes = 1 << 20}).value();
  Inbox<FrontEvent> inbox_;
  std::unique_ptr<Front> front_;
  tendon::Context client_context_;
};

TEST_F(Fronts, HearWhatIsSentAndTheNextOneCanCome) {
  for (const std::string_view message : {"one", "another"}) {
    {
      tendon::Pipe pipe = connect();
      ASSERT_TRUE(eventually([&] { return front_->is_there(); }));
      front_->send(std::string(message));
      const auto heard = pipe.recv_message(kPatience);
      ASSERT_TRUE(succeeds(heard));
      EXPECT_EQ(heard->bytes.size_bytes(), message.size());
    }
    EXPECT_TRUE(one_has_gone());
  }
}

TEST_F(Fronts, OneThatNeverReadsIsCutOffWithTheReason) {
  const std::string message(1 << 16, 'x');
  tendon::Pipe stuck = connect();
  ASSERT_TRUE(eventually([&] { return front_->is_there(); }));
  for (std::uint64_t i = 0; i < 2 * Front::kMaxUnsentBytes / message.size(); ++i)
    front_->send(message);  // returns at once
  EXPECT_TRUE(one_has_gone());
  auto heard = stuck.recv_message(kPatience);
  while (heard.has_value()) heard = stuck.recv_message(kPatience);
  EXPECT_TRUE(fails_with(heard, tendon::ErrorCode::limit_exceeded, "the front does not read"));

  // The next front starts without the messages that waited for the old one.
  tendon::Pipe next = connect();
  ASSERT_TRUE(eventually([&] { return front_->is_there(); }));
  front_->send("hello");
  const auto first = next.recv_message(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_EQ(first->bytes.size_bytes(), 5U);
}

}  // namespace
}  // namespace engine
