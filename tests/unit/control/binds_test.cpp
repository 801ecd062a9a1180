// SPDX-License-Identifier: Apache-2.0
// Every call that binds a socket for others asks the same question (session/bind_permission.hpp).
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <tendon/session/address.hpp>
#include <tendon/tendon.hpp>
#include <vector>

#include "control/flows/zmq_network.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "secure/key_file.hpp"
#include "support/control_team.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

/// A public call that binds a socket, and the address to listen at.
struct Bind {
  const char* name;
  bool has_secure;
  std::function<Result<void>(Context&, const std::string& host, const Security&)> call;
};

void PrintTo(const Bind& bind, std::ostream* stream) { *stream << bind.name; }

template <class T>
Result<void> outcome(const Result<T>& result) {
  if (!result) return result.error();
  return {};
}

/// A port that was free a moment ago.
std::uint16_t port_to_meet() {
  Context context = Context::create({}).value();
  const std::string bound = Listener::bind(context, "127.0.0.1:0").value().address();
  return Address::parse(bound).value().port();
}

const std::vector<Bind>& binds() {
  static const std::vector<Bind> all = {
      {"Listener", true,
       [](Context& context, const std::string& host, const Security& security) {
         return outcome(Listener::bind(context, host + ":0", {.security = security}));
       }},
      {"Server", true,
       [](Context& context, const std::string& host, const Security& security) {
         return outcome(Server::serve(context, host + ":0", [](Pipe) {}, {.security = security}));
       }},
      {"Node", false,
       [](Context& context, const std::string& host, const Security& security) {
         return outcome(Node::join(context,
                                   {.name = "a",
                                    .peers = std::vector<std::string>{},
                                    .listen = host + ":0",
                                    .security = security},
                                   kPatience));
       }},
      {"Group", false,
       [](Context& context, const std::string& host, const Security& security) {
         const std::string meeting = "127.0.0.1:" + std::to_string(port_to_meet());
         // The group has bound when it waits for the other member, who does not exist.
         const auto joined = Group::join(context, Rendezvous::at(meeting, GroupRank{0}, 2),
                                         kBriefly, {.listen = host + ":0", .security = security});
         if (joined || joined.error().code == ErrorCode::timeout) return Result<void>();
         return outcome(joined);
       }},
      {"Controller", false,
       [](Context& context, const std::string& host, const Security& security) {
         return outcome(
             Controller::bind(context, layout_of(1, 1, 1), host + ":0", {.security = security}));
       }},
  };
  return all;
}

class Binds : public testing::TestWithParam<Bind> {
 protected:
  [[nodiscard]] Security credentials() const {
    const std::string file = (scratch_.path() / "fleet.key").string();
    (void)detail::make_key_file(file, "fleet").value();
    return Security::load({.key = file}).value();
  }
  [[nodiscard]] static Result<void> call(const std::string& host, const Security& security) {
    Context context = Context::create({.name = "a"}).value();
    return GetParam().call(context, host, security);
  }
  const ScratchDir scratch_;
};
INSTANTIATE_TEST_SUITE_P(Product, Binds, testing::ValuesIn(binds()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(Binds, ListenHereForThisUserWithoutAWord) {
  EXPECT_TRUE(succeeds(call("127.0.0.1", {})));
  EXPECT_TRUE(succeeds(call("127.0.0.1", {Profile::plaintext})));
}

TEST_P(Binds, ListenElsewhereOnlyWithCredentialsOrPlaintextByName) {
  for (const std::string host : {"0.0.0.0", "[::]"}) {
    EXPECT_TRUE(fails_with(call(host, {}), ErrorCode::permission_denied,
                           "can be reached from other machines"));
  }
  EXPECT_TRUE(succeeds(call("0.0.0.0", {Profile::plaintext})));
  const auto secure = call("0.0.0.0", credentials());
  if (GetParam().has_secure)
    EXPECT_TRUE(succeeds(secure));
  else
    EXPECT_TRUE(fails_with(secure, ErrorCode::not_supported, "secure"));
}

TEST_P(Binds, TakeCredentialsOrPlaintextAndNotBoth) {
  Security both = credentials();
  both.profile = Profile::plaintext;
  for (const std::string host : {"127.0.0.1", "0.0.0.0"})
    EXPECT_TRUE(fails_with(call(host, both), ErrorCode::invalid_argument, "leave one"));
}

TEST(BindsInside, StepFlowsAskLikewise) {
  const auto network = detail::zmq_network().value();
  const auto bound = [&](const std::string& host, Profile profile) {
    return outcome(network->bind({.host = host, .profile = profile, .worker_keys = {}}));
  };
  EXPECT_TRUE(
      fails_with(bound("0.0.0.0", Profile::local), ErrorCode::permission_denied, "0.0.0.0"));
  EXPECT_TRUE(succeeds(bound("127.0.0.1", Profile::local)));
  EXPECT_TRUE(succeeds(bound("0.0.0.0", Profile::plaintext)));
}

TEST(BindsInside, RoutersAskLikewise) {
  const auto open = [](const std::string& place, Profile profile) {
    return detail::open_zenoh(
        {.mode = detail::ZenohMode::router, .listen = {place}, .profile = profile}, kPatience);
  };
  for (const char* place :
       {"tcp/0.0.0.0:0", "tcp/[::]:0", "tls/10.0.0.5:7447", "tcp/0.0.0.0:0#iface=lo"})
    EXPECT_TRUE(fails_with(open(place, Profile::local), ErrorCode::permission_denied,
                           "can be reached from other machines"))
        << place;
  const auto here = open("tcp/127.0.0.1:0", Profile::local);
  if (!here && here.error().code == ErrorCode::not_supported) GTEST_SKIP() << here.error().detail;
  EXPECT_TRUE(succeeds(here));
  EXPECT_TRUE(succeeds(open("tcp/0.0.0.0:0", Profile::plaintext)));
}

}  // namespace
}  // namespace tendon::test
