// SPDX-License-Identifier: Apache-2.0
#include "runtime/tickets.hpp"

#include <gtest/gtest.h>

#include <tendon/session/limits.hpp>

#include "runtime/context_clients.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::Entrance;
using detail::Nonce128;
using detail::Tickets;
using std::chrono::milliseconds;

class Nobody final : public detail::OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<detail::Link>,
                                                       const detail::Descriptor&, Bytes) override {
    return Error{ErrorCode::internal, "test", "nobody"};
  }
  void on_context_closed() override {}
};

ContextId some_peer() { return ContextId{detail::random_nonce().value()}; }

class TicketsTest : public testing::Test {
 protected:
  std::uint32_t add(Profile profile = Profile::local) { return tickets_.add({handler_, profile}); }
  const std::shared_ptr<Nobody> handler_ = std::make_shared<Nobody>();
  const ContextId peer_ = some_peer();
  Tickets tickets_;
};

TEST_F(TicketsTest, OpenWhereTheyWereGiven) {
  const auto other = std::make_shared<Nobody>();
  const std::uint32_t first = add();
  const std::uint32_t second = tickets_.add({other, Profile::plaintext});
  const Nonce128 to_first = tickets_.issue(first, peer_).value();
  const Nonce128 to_second = tickets_.issue(second, peer_).value();
  EXPECT_NE(to_first, to_second);
  EXPECT_FALSE(detail::is_none(to_first)) << "all zero would mean: no ticket";
  EXPECT_EQ(tickets_.find(to_first, peer_).value().handler.lock(), handler_);
  EXPECT_EQ(tickets_.find(to_second, peer_).value().handler.lock(), other);
  EXPECT_EQ(tickets_.find(to_second, peer_).value().profile, Profile::plaintext);
}

TEST_F(TicketsTest, AreOfOnePeer) {
  const Nonce128 ticket = tickets_.issue(add(), peer_).value();
  EXPECT_TRUE(fails_with(tickets_.find(ticket, some_peer()), ErrorCode::server_busy, "ticket"));
}

TEST_F(TicketsTest, CannotBeMadeUp) {
  const std::uint32_t first = add();
  const std::uint32_t second = add(Profile::plaintext);
  const Nonce128 ticket = tickets_.issue(second, peer_).value();
  for (std::size_t bit = 0; bit < 8 * ticket.size(); ++bit) {
    Nonce128 changed = ticket;
    changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_TRUE(fails_with(tickets_.find(changed, peer_), ErrorCode::server_busy)) << bit;
  }
  EXPECT_TRUE(fails_with(tickets_.find(Nonce128{}, peer_), ErrorCode::server_busy));
  Tickets elsewhere;
  ASSERT_EQ(elsewhere.add({handler_, Profile::local}), first);
  EXPECT_TRUE(fails_with(tickets_.find(elsewhere.issue(first, peer_).value(), peer_),
                         ErrorCode::server_busy))
      << "each Context has a key of its own";
}

TEST_F(TicketsTest, OfAClosedListenerSaySo) {
  const std::uint32_t closed = add();
  const Nonce128 ticket = tickets_.issue(closed, peer_).value();
  tickets_.remove(closed);
  const std::uint32_t next = add();
  EXPECT_NE(next, closed);
  EXPECT_TRUE(
      fails_with(tickets_.find(ticket, peer_), ErrorCode::unreachable, "listener was closed"));
}

TEST_F(TicketsTest, AreGoodForTheirAgeAndLessThanTwice) {
  const std::uint32_t listener = add();
  // Issued at the beginning and at the end of a key's time.
  for (const milliseconds later : {milliseconds(0), milliseconds(kTicketAge) - milliseconds(1)}) {
    (void)tickets_.issue(listener, peer_).value();
    tickets_.advance(later);
    const Nonce128 ticket = tickets_.issue(listener, peer_).value();
    for (milliseconds passed{0}; passed < kTicketAge; passed += milliseconds(500)) {
      EXPECT_TRUE(succeeds(tickets_.find(ticket, peer_))) << later << " + " << passed;
      tickets_.advance(milliseconds(500));
      (void)tickets_.issue(listener, some_peer()).value();  // others change the key
    }
    tickets_.advance(kTicketAge);
    EXPECT_TRUE(fails_with(tickets_.find(ticket, peer_), ErrorCode::server_busy, "15 s"));
    tickets_.advance(4 * kTicketAge);
  }
}

TEST_F(TicketsTest, AgeWithoutFurtherOnesToo) {
  const std::uint32_t listener = add();
  const Nonce128 ticket = tickets_.issue(listener, peer_).value();
  tickets_.advance(2 * kTicketAge);
  EXPECT_TRUE(fails_with(tickets_.find(ticket, peer_), ErrorCode::server_busy));
}

TEST_F(TicketsTest, OfAnyNumberOfStrangersTakeNothingFromOthers) {
  const std::uint32_t listener = add();
  const Nonce128 ticket = tickets_.issue(listener, peer_).value();
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(tickets_.issue(listener, some_peer()));
  EXPECT_TRUE(succeeds(tickets_.find(ticket, peer_)));
}

}  // namespace
}  // namespace tendon::test
