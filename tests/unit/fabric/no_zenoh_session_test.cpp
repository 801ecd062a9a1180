// SPDX-License-Identifier: Apache-2.0
// Compiled only if Tendon is built without Zenoh.
#include <gtest/gtest.h>

#include <tendon/fabric/node.hpp>

#include "fabric/zenoh/zenoh_session.hpp"
#include "support/expect.hpp"

namespace {

using namespace tendon::detail;

TEST(NoZenohSession, SaysWhatToDo) {
  EXPECT_TRUE(tendon::test::fails_with(open_zenoh({}, tendon::Deadline::now()),
                                       tendon::ErrorCode::not_supported, "TENDON_ZENOH=ON"));
  EXPECT_EQ(zenoh_puts(), 0U);
}

TEST(NoZenohSession, IsWhatANodeWithoutPeersMisses) {
  tendon::Context context = tendon::Context::create({}).value();
  EXPECT_TRUE(
      tendon::test::fails_with(tendon::Node::join(context, {.name = "a"}, tendon::test::kPatience),
                               tendon::ErrorCode::not_supported, "NodeOptions::peers"));
}

}  // namespace
