// SPDX-License-Identifier: Apache-2.0
// Whole joins of members that look for rank 0 at one address or at several.
// tests/process/network_test.cpp covers different hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/group/group.hpp>
#include <thread>
#include <vector>

#include "group/membership/listening.hpp"
#include "support/expect.hpp"
#include "support/log_lines.hpp"
#include "support/map_store.hpp"
#include "support/raw_socket.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr auto kShort = 300ms;
constexpr const char* kKey = "tendon/world/rank0";

/// A port of loopback without a listener.
std::string dead_address() { return RawListener().address(); }
std::string port_of(const std::string& address) { return address.substr(address.rfind(':') + 1); }

/// A store that lists rank 0's addresses after others.
class StoreWithOthers final : public RendezvousStore {
 public:
  explicit StoreWithOthers(std::string others) : others_(std::move(others)) {}
  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override {
    return store_.set(key, others_ + "," + std::string(value), deadline);
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return store_.get(key, deadline);
  }

 private:
  const std::string others_;
  MapStore store_;
};

/// A store that is at `host`.
class StoreAt final : public RendezvousStore {
 public:
  explicit StoreAt(std::string host) : host_(std::move(host)) {}
  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override {
    return store_.set(key, value, deadline);
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return store_.get(key, deadline);
  }
  [[nodiscard]] std::string host() const override { return host_; }

 private:
  const std::string host_;
  MapStore store_;
};

class Variables {
 public:
  using Values = std::map<std::string, std::string>;
  explicit Variables(Values variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }

 private:
  const Values variables_;
};

Result<Group> join(Context& context, const Rendezvous& rendezvous, Deadline deadline = kPatience,
                   Profile profile = Profile::local, const std::string& listen = {}) {
  return Group::join(context, rendezvous, deadline, {.listen = listen, .security = {profile}});
}

/// Two members, each with a rendezvous of its own, compute together. Returns the addresses that
/// rank 0 announces.
std::string meet(const Rendezvous& first, const Rendezvous& second,
                 Profile profile = Profile::local, const std::string& listen = {}) {
  std::string description;
  std::vector<std::thread> members;
  for (const Rendezvous* const rendezvous : {&first, &second}) {
    members.emplace_back([&, rendezvous] {
      Context context = Context::create({.linger = 0ms}).value();
      auto group = join(context, *rendezvous, kPatience, profile, listen);
      ASSERT_TRUE(succeeds(group));
      if (rendezvous == &first) description = group->describe();
      EXPECT_TRUE(succeeds(group->barrier(kPatience)));
    });
  }
  for (std::thread& member : members) member.join();
  const std::string before = "listening at ";
  const auto begin = description.find(before);
  if (begin == std::string::npos) return description;
  return description.substr(begin + before.size(), description.find('\n') - begin - before.size());
}
std::string meet_at(const std::string& first, const std::string& second,
                    Profile profile = Profile::local, const std::string& listen = {}) {
  return meet(Rendezvous::at(first, GroupRank{0}, 2), Rendezvous::at(second, GroupRank{1}, 2),
              profile, listen);
}
std::string meet_through(const std::shared_ptr<RendezvousStore>& store,
                         Profile profile = Profile::local, const std::string& listen = {}) {
  return meet(Rendezvous::through(store, GroupRank{0}, 2),
              Rendezvous::through(store, GroupRank{1}, 2), profile, listen);
}

TEST(Meeting, LocalIsLoopbackWhateverTheRendezvousSays) {
  const std::string port = port_of(dead_address());
  EXPECT_EQ(meet_at("10.96.0.10:" + port, "10.96.0.10:" + port), "127.0.0.1:" + port);
  EXPECT_EQ(meet_at("0.0.0.0:" + port, "127.0.0.1:" + port), "127.0.0.1:" + port);
  EXPECT_EQ(meet_at("127.0.1.1:" + port, "127.0.1.1:" + port), "127.0.1.1:" + port);
}

TEST(Meeting, PlaintextIsAtAllAddressesWhereTheRendezvousIsNoneOfThem) {
  for (const std::string host : {"10.96.0.10:", "127.0.1.1:", "nobody.invalid:"}) {
    const std::string port = port_of(dead_address());
    const LogLines lines;
    const std::string at = meet_at(host + port, "127.0.0.1:" + port, Profile::plaintext);
    EXPECT_TRUE(detail::is_of_all_interfaces(at)) << at;
    EXPECT_EQ(port_of(at), port);
    EXPECT_TRUE(lines.have("rank 0 listens at all addresses of this host (" + at + ")"));
    EXPECT_TRUE(lines.have("'" + host + port + "'"));
  }
}

TEST(Meeting, ALauncherOfThisHostKeepsItToLoopback) {
  const Variables launcher(
      Variables::Values{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}});
  const std::string port = port_of(dead_address());
  const LogLines lines;
  EXPECT_EQ(meet_at("10.96.0.10:" + port, "10.96.0.10:" + port, Profile::plaintext),
            "127.0.0.1:" + port);
  EXPECT_THAT(meet_through(std::make_shared<MapStore>(), Profile::plaintext),
              testing::StartsWith("127.0.0.1:"));
  EXPECT_TRUE(lines.all().empty());
}

TEST(Meeting, ToldAddressesAreTakenAtThePortOfTheRendezvous) {
  const std::string port = port_of(dead_address());
  EXPECT_EQ(meet_at("10.96.0.10:" + port, "127.0.0.1:" + port, Profile::plaintext, "0.0.0.0:0"),
            "0.0.0.0:" + port);
  const Variables told(Variables::Values{{"TENDON_LISTEN", "127.0.0.2:0"}});
  EXPECT_EQ(meet_at("10.96.0.10:" + port, "127.0.0.2:" + port, Profile::plaintext),
            "127.0.0.2:" + port);
  EXPECT_EQ(meet_at("10.96.0.10:" + port, "127.0.0.3:" + port, Profile::plaintext, "127.0.0.3:0"),
            "127.0.0.3:" + port)
      << "the option goes before the environment";
}

// EADDRNOTAVAIL
TEST(Meeting, AnAddressThatNoInterfaceHasCannotBeListenedAt) {
  Context context = Context::create({.linger = 0ms}).value();
  const auto fails = [&](const Rendezvous& rendezvous, const std::string& listen) {
    const auto group = join(context, rendezvous, kPatience, Profile::plaintext, listen);
    EXPECT_TRUE(fails_with(group, ErrorCode::invalid_argument, "203.0.113.7"));
    EXPECT_TRUE(fails_with(group, ErrorCode::invalid_argument, "no interface of this host"));
  };
  const auto through = Rendezvous::through(std::make_shared<MapStore>(), GroupRank{0}, 2);
  fails(Rendezvous::at("127.0.0.1:0", GroupRank{0}, 2), "203.0.113.7:0");
  fails(through, "203.0.113.7:0");
  const Variables told(Variables::Values{{"TENDON_LISTEN", "203.0.113.7:0"}});
  fails(through, "");
}

TEST(Meeting, AnAddressThatCannotBeReadIsNamed) {
  Context context = Context::create({.linger = 0ms}).value();
  const auto through = Rendezvous::through(std::make_shared<MapStore>(), GroupRank{0}, 2);
  EXPECT_TRUE(fails_with(join(context, through, kShort, Profile::local, "10.0.0.1"),
                         ErrorCode::invalid_argument, "GroupOptions::listen: address"));
  const Variables told(Variables::Values{{"TENDON_LISTEN", "10.0.0.1"}});
  EXPECT_TRUE(fails_with(join(context, through, kShort), ErrorCode::invalid_argument,
                         "TENDON_LISTEN: address"));
}

TEST(Meeting, WhatRank0LeavesInAStoreOthersCanDial) {
  const auto left = [](Profile profile, const std::string& listen) {
    const auto store = std::make_shared<MapStore>();
    meet_through(store, profile, listen);
    return store->get(kKey, Deadline::now()).value();
  };
  for (const std::string listen : {"", "0.0.0.0:0"}) {
    const auto addresses = detail::split_addresses(left(Profile::plaintext, listen));
    ASSERT_FALSE(addresses.empty());
    EXPECT_LE(addresses.size(), 4u);
    for (const std::string& one : addresses) {
      EXPECT_FALSE(detail::is_of_all_interfaces(one)) << one;
      EXPECT_TRUE(addresses.size() == 1 || !Address::parse(one).value().is_loopback_literal())
          << one;
    }
  }
  EXPECT_THAT(left(Profile::local, ""), testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(left(Profile::plaintext, "127.0.0.2:0"), testing::StartsWith("127.0.0.2:"));
}

TEST(Meeting, AStoreOnThisHostNamesNoInterface) {
  const auto store = std::make_shared<StoreAt>("127.0.0.1");
  meet_through(store, Profile::plaintext);
  const auto addresses = detail::split_addresses(store->get(kKey, Deadline::now()).value());
  EXPECT_TRUE(addresses.size() == 1 || !addresses.front().starts_with("127.")) << addresses.front();
}

TEST(Meeting, EachAddressInAStoreIsTriedInTurn) {
  meet_through(std::make_shared<StoreWithOthers>(dead_address() + "," + dead_address()));
  // This address neither answers nor refuses.
  const FullListener silent;
  meet_through(std::make_shared<StoreWithOthers>(silent.address()));
  meet_through(std::make_shared<StoreWithOthers>(dead_address() + ", " + silent.address()));
  // A listener without Tendon, and a text that is no address.
  const RawListener stranger;
  std::thread answers([&] {
    while (const detail::OwnedFd peer = stranger.accept())
      send_all(peer.get(), "HTTP/1.0 400 Bad Request\r\n\r\n");
  });
  meet_through(std::make_shared<StoreWithOthers>(stranger.address() + ",10.0.0.1"));
  stranger.close();
  answers.join();
}

TEST(Meeting, EachAddressIsListedWithItsCause) {
  Context context = Context::create({.linger = 0ms}).value();
  const auto store = std::make_shared<MapStore>();
  const std::string dead = dead_address();
  const FullListener silent;
  ASSERT_TRUE(store->set(kKey, dead + "," + silent.address(), Deadline::now()));
  const auto group = join(context, Rendezvous::through(store, GroupRank{1}, 2), 1500ms);
  EXPECT_TRUE(fails_with(group, ErrorCode::timeout,
                         "nobody answered at " + dead + ", " + silent.address()));
  EXPECT_TRUE(fails_with(group, ErrorCode::timeout, "connecting to " + dead + ": Connection"));
  EXPECT_TRUE(fails_with(group, ErrorCode::timeout,
                         "connecting to " + silent.address() + ": the deadline passed"));
  EXPECT_THAT(group.error().detail, Not(HasSubstr("has not come")));
  EXPECT_THAT(group.error().detail, Not(HasSubstr("has not called join")));
}

TEST(Meeting, EachAddressOfANameIsListedWithItsCause) {
  Context context = Context::create({.linger = 0ms}).value();
  const std::string place = "localhost:" + port_of(dead_address());
  const auto group = join(context, Rendezvous::at(place, GroupRank{1}, 2), kShort);
  EXPECT_TRUE(fails_with(group, ErrorCode::timeout, "nobody answered at " + place));
  const auto found =
      detail::resolve(Address::parse(place).value(), kPatience, detail::ResolveFor::connect);
  ASSERT_TRUE(succeeds(found));
  for (const auto& one : *found)
    EXPECT_TRUE(fails_with(group, ErrorCode::timeout, "connecting to " + one.to_string() + ": "));
}

TEST(Meeting, OnlyAStoreWithoutTheKeySaysThatRank0HasNotCome) {
  Context context = Context::create({.linger = 0ms}).value();
  const auto store = std::make_shared<MapStore>();
  const auto join_it = [&](Deadline deadline) {
    return join(context, Rendezvous::through(store, GroupRank{1}, 2), deadline);
  };
  EXPECT_TRUE(fails_with(join_it(kShort), ErrorCode::timeout,
                         "rank 0 has not come: the store has no key 'tendon/world/rank0'"));
  ASSERT_TRUE(store->set(kKey, "", Deadline::now()));
  EXPECT_TRUE(fails_with(join_it(kPatience), ErrorCode::invalid_argument, "no address of rank 0"));
  ASSERT_TRUE(store->set(kKey, "rubbish", Deadline::now()));
  EXPECT_TRUE(fails_with(join_it(kPatience), ErrorCode::invalid_argument, "rubbish"));
}

// An earlier rank 0 has left its address there.
TEST(Meeting, AStoreIsAskedAgain) {
  const auto store = std::make_shared<MapStore>();
  ASSERT_TRUE(store->set(kKey, dead_address(), Deadline::now()));
  std::thread late([&] {
    Context context = Context::create({.linger = 0ms}).value();
    const auto group = join(context, Rendezvous::through(store, GroupRank{1}, 2));
    ASSERT_TRUE(succeeds(group));
  });
  Context context = Context::create({.linger = 0ms}).value();
  EXPECT_TRUE(succeeds(join(context, Rendezvous::through(store, GroupRank{0}, 2))));
  late.join();
}

TEST(Meeting, TheErrorOfRank0SaysWhyOthersMayBeUnableToCome) {
  Context context = Context::create({.linger = 0ms}).value();
  const std::string port = port_of(dead_address());
  const auto local = join(context, Rendezvous::at("10.96.0.10:" + port, GroupRank{0}, 2), kShort);
  EXPECT_TRUE(
      fails_with(local, ErrorCode::timeout, "rank 1 of 2 did not come to 127.0.0.1:" + port));
  EXPECT_TRUE(
      fails_with(local, ErrorCode::timeout, "profile 'local' keeps the group to this host"));
  const auto other = join(context, Rendezvous::at("127.0.0.1:" + port, GroupRank{1}, 2), kShort);
  EXPECT_TRUE(fails_with(other, ErrorCode::timeout, "nobody answered at 127.0.0.1:" + port));
  EXPECT_TRUE(fails_with(other, ErrorCode::timeout, "has not called join() yet"));
}

}  // namespace
}  // namespace tendon::test
