// SPDX-License-Identifier: Apache-2.0
#include "runtime/reach.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "session/hello.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_socket.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::DialLimit;
using detail::LinkTable;

ContextCore& core_of(const Context& context) { return *ContextCore::of(context); }
std::size_t link_count(const Context& context) { return core_of(context).links().all()->size(); }

ContextId id_of(std::uint8_t number) {
  ContextId id;
  id.bytes[0] = std::byte{number};
  return id;
}

class Reach : public PipeTest {
 protected:
  static auto reach(const Context& from, const ContextId& peer,
                    const std::vector<std::string>& addresses, Deadline deadline = kPatience) {
    return detail::try_to_reach(core_of(from), peer, addresses, {Profile::local}, deadline).link;
  }
};
TENDON_ON_BOTH_PATHS(Reach);

TEST_P(Reach, MakesALinkAtTheAddressWhereTheContextIs) {
  Context here = Context::create({.transport = way().transport}).value();
  Context other = Context::create({.transport = way().transport}).value();
  Context wanted = Context::create({.name = "wanted", .transport = way().transport}).value();
  Listener of_other = Listener::bind(other, "127.0.0.1:0").value();
  Listener of_wanted = Listener::bind(wanted, "127.0.0.1:0").value();
  const auto link =
      reach(here, wanted.id(), {address_of_nobody(), of_other.address(), of_wanted.address()});
  ASSERT_TRUE(link) << link.error().message();
  EXPECT_EQ((*link)->peer().context, wanted.id());
  EXPECT_EQ(reach(here, wanted.id(), {}).value(), *link) << "it is there";
  EXPECT_EQ(link_count(here), 1u) << "none to the stranger";
}

// Hosts share addresses, such as those of bridges.
TEST_P(Reach, GoesOnBehindAStrangerWhoRefuses) {
  Context here = Context::create({.transport = way().transport}).value();
  Context wanted = Context::create({.name = "wanted", .transport = way().transport}).value();
  Listener of_wanted = Listener::bind(wanted, "127.0.0.1:0").value();
  const RawListener stranger;
  std::thread refusing([&] {
    const Error refusal{ErrorCode::permission_denied, "test", "this user only"};
    const auto frame = detail::encode(detail::rejection_of(refusal));
    const std::string words(reinterpret_cast<const char*>(frame.data()), frame.size());
    while (const detail::OwnedFd peer = stranger.accept()) {
      send_all(peer.get(), words);
      (void)read_to_end(peer.get());
    }
  });
  const auto link = reach(here, wanted.id(), {stranger.address(), of_wanted.address()});
  // Nobody listens at the next address, which is the weaker error.
  EXPECT_TRUE(fails_with(reach(here, id_of(7), {stranger.address(), "127.0.0.1:1"}),
                         ErrorCode::permission_denied, "this user only"));
  stranger.close();
  refusing.join();
  ASSERT_TRUE(link) << link.error().message();
  EXPECT_EQ((*link)->peer().context, wanted.id());
}

TEST_P(Reach, UsesALinkThatThePeerMade) {
  PipePair pair = connect();
  const auto link = reach(pair.server_context, pair.client_context.id(), {});
  ASSERT_TRUE(link) << link.error().message();
  EXPECT_EQ(link_count(pair.server_context), 1u);
}

TEST_P(Reach, WaitsForAContextThatDoesNotListenYet) {
  Context here = Context::create({.transport = way().transport}).value();
  Context wanted = Context::create({.transport = way().transport}).value();
  const std::string address = address_of_nobody();
  std::atomic<bool> over{false};
  std::optional<Result<std::shared_ptr<detail::Link>>> link;
  std::thread caller([&] {
    link = reach(here, wanted.id(), {address});
    over = true;
  });
  auto listener = Listener::bind(wanted, address);
  EXPECT_TRUE(eventually([&] { return over.load(); }));
  caller.join();
  ASSERT_TRUE(listener) << listener.error().message();
  ASSERT_TRUE(*link) << link->error().message();
}

TEST_P(Reach, SaysWhatItTriedLast) {
  Context here = Context::create({.transport = way().transport}).value();
  Context other = Context::create({.name = "other", .transport = way().transport}).value();
  Listener of_other = Listener::bind(other, "127.0.0.1:0").value();
  // On a busy machine the answer may miss the deadline.
  EXPECT_TRUE(eventually([&] {
    const auto link = reach(here, id_of(7), {of_other.address()}, 100ms);
    return fails_with(link, ErrorCode::timeout, "other") &&
           fails_with(link, ErrorCode::timeout, id_of(7).to_string());
  }));
  EXPECT_TRUE(fails_with(reach(here, id_of(7), {}, 100ms), ErrorCode::invalid_argument));
}

TEST_P(Reach, ManyCallersForOnePeerMakeOneLink) {
  Context here = Context::create({.transport = way().transport}).value();
  Context wanted = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(wanted, "127.0.0.1:0").value();
  std::vector<std::thread> callers;
  std::atomic<int> reached{0};
  for (int i = 0; i < 8; ++i)
    callers.emplace_back([&] {
      if (reach(here, wanted.id(), {listener.address()})) ++reached;
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(reached, 8);
  EXPECT_EQ(link_count(here), 1u);
}

TEST_P(Reach, ItsWaitForAPlaceHasADeadline) {
  Context here = Context::create({.transport = way().transport}).value();
  for (std::uint8_t i = 0; i < LinkTable::kMostDialling; ++i)
    ASSERT_TRUE(core_of(here).links().dialling().begin(id_of(i)));
  EXPECT_TRUE(fails_with(reach(here, id_of(99), {address_of_nobody()}, 50ms), ErrorCode::timeout,
                         "16 others"));
}

TEST_P(Reach, ByOneTryNeedsNoPlaceAndIsOverWhenItFailed) {
  Context here = Context::create({.transport = way().transport}).value();
  Context wanted = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(wanted, "127.0.0.1:0").value();
  for (std::uint8_t i = 0; i < LinkTable::kMostDialling; ++i)
    ASSERT_TRUE(core_of(here).links().dialling().begin(id_of(i)));
  const auto once = [&](const std::vector<std::string>& addresses) {
    return detail::reach_once(core_of(here), wanted.id(), addresses, {Profile::local},
                              Deadline::never());
  };
  EXPECT_FALSE(once({address_of_nobody()})) << "it is not tried again, or this would not end";
  EXPECT_TRUE(succeeds(once({address_of_nobody(), listener.address()})));
}

TEST(DialLimit, HasSixteenPlacesAndOneForEachPeer) {
  DialLimit limit(LinkTable::kMostDialling);
  for (std::uint8_t i = 0; i < LinkTable::kMostDialling - 1; ++i)
    EXPECT_TRUE(limit.begin(id_of(i)));
  EXPECT_FALSE(limit.begin(id_of(0))) << "another caller dials it";
  EXPECT_TRUE(limit.begin(id_of(50)));
  EXPECT_FALSE(limit.begin(id_of(51)));
  limit.end(id_of(50));
  EXPECT_TRUE(limit.begin(id_of(51)));
}

}  // namespace
}  // namespace tendon::test
