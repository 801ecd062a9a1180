// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tendon/pipe/pipe.hpp>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

TEST(Context, HasANameAndAnIdentityOfItsOwn) {
  Context a = Context::create({.name = "left"}).value();
  Context b = Context::create({.name = "right"}).value();
  EXPECT_EQ(a.name(), "left");
  EXPECT_FALSE(a.id().is_none());
  EXPECT_NE(a.id(), b.id());
  EXPECT_TRUE(a.members().empty());
}

TEST(Context, OptionsOutsideTheirRangeAreRefusedNamingBoth) {
  EXPECT_TRUE(fails_with(Context::create({.streams = 0}), ErrorCode::invalid_argument, "16"));
  EXPECT_TRUE(fails_with(Context::create({.streams = 17}), ErrorCode::invalid_argument, "17"));
  EXPECT_TRUE(succeeds(Context::create({.streams = 16})));
  EXPECT_TRUE(fails_with(Context::create({.lease = 499ms}), ErrorCode::invalid_argument, "500"));
  EXPECT_TRUE(succeeds(Context::create({.lease = 500ms})));
  EXPECT_TRUE(fails_with(Context::create({.linger = -1ms}), ErrorCode::invalid_argument, "linger"));
  EXPECT_TRUE(succeeds(Context::create({.name = std::string(255, 'n')})));
  EXPECT_TRUE(fails_with(Context::create({.name = std::string(256, 'n')}),
                         ErrorCode::invalid_argument, "255"));
  EXPECT_TRUE(fails_with(Context::create({.name = "not \xff utf-8"}), ErrorCode::invalid_argument,
                         "UTF-8"));
}

TEST(Context, CanBeMoved) {
  Context a = Context::create({.name = "moved"}).value();
  const ContextId id = a.id();
  Context b = std::move(a);
  EXPECT_EQ(b.id(), id);
  b = Context::create({.name = "other"}).value();
  EXPECT_EQ(b.name(), "other");
}

TEST(Context, DescribeShowsLinksPathsReasonsAndSettings) {
  PipePair pair = connect_pair(kShm);
  const std::string text = pair.client_context.describe();
  for (const char* expected : {"client", "server", "shm", "same host"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << " is missing in\n" << text;
}

TEST(Context, DescribeShowsSlotsHeld) {
  PipePair pair = connect_pair(kShm);
  const std::string before = pair.client_context.describe();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 50'000), kPatience)));
  TensorDict held = pair.server.recv(kPatience).value();
  EXPECT_NE(pair.client_context.describe(), before);
}

TEST(Context, PoolLendsMemoryThatOutlivesIt) {
  Storage storage;
  {
    Context context = Context::create({.pool_cap_bytes = 1 << 20}).value();
    storage = context.pool().allocate(100'000).value();
    EXPECT_EQ(context.pool().summary().loaned_count, 1u);
    EXPECT_EQ(context.pool().summary().cap_bytes, std::uint64_t{1} << 20);
    EXPECT_TRUE(fails_with(context.pool().allocate((1 << 20) + 1), ErrorCode::message_too_large,
                           "1048576"));
  }
  fill_pattern({storage.data(), storage.size_bytes()}, 1);
  EXPECT_TRUE(has_pattern(storage.bytes(), 1));
}

TEST(Context, ManyLiveSideBySide) {
  std::vector<Context> contexts;
  for (int i = 0; i < 20; ++i) contexts.push_back(Context::create({}).value());
  for (std::size_t i = 0; i < contexts.size(); i += 2)
    EXPECT_TRUE(succeeds(contexts[i].close(kPatience)));
}

}  // namespace
}  // namespace tendon::test
