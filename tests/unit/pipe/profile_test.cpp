// SPDX-License-Identifier: Apache-2.0
// The promise of Profile::local holds for a pipe, whichever link it runs on.
#include <gtest/gtest.h>

#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"
#include "support/relay.hpp"

namespace tendon::test {
namespace {

using detail::Reuse;

class Profiles : public testing::Test {
 protected:
  Context context_ = Context::create({.name = "victim"}).value();
  Listener open_ =
      Listener::bind(context_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  Listener local_ = Listener::bind(context_, "127.0.0.1:0").value();
};

TEST_F(Profiles, ATicketOfALocalListenerIsNoneOnAnUnprovedLink) {
  const auto stranger = claims();
  RawClient link(open_.address(), stranger);
  ASSERT_TRUE(is_ready(link.choose()));
  RawClient thief(local_.address(), stranger);
  ASSERT_TRUE(thief.answer);
  link.open(1, thief.ticket());
  EXPECT_TRUE(is_error(link.next(), 1, ErrorCode::permission_denied,
                       {"stranger", "'plaintext'", "'local'"}));
  EXPECT_TRUE(fails_with(local_.accept(kBriefly), ErrorCode::timeout));
  // Its own listener still accepts it.
  link.open(2, link.ticket());
  const auto taken = open_.accept(kPatience);
  ASSERT_TRUE(succeeds(taken));
  EXPECT_EQ(taken->peer().name, "stranger");
  EXPECT_EQ(taken->peer().identity, "");
  EXPECT_EQ(taken->peer().proof, IdentityProof::none);
}

TEST_F(Profiles, ALocalListenerRefusesTheReuseOfAnUnprovedLink) {
  const auto stranger = claims();
  RawClient link(open_.address(), stranger);
  ASSERT_TRUE(is_ready(link.choose()));
  RawClient again(local_.address(), stranger);
  ASSERT_TRUE(again.answer);
  EXPECT_TRUE(is_refusal(again.choose(Reuse::reuse), ErrorCode::permission_denied,
                         {"stranger", "'plaintext'", "'local'"}));
  RawClient allowed(open_.address(), stranger);
  EXPECT_TRUE(is_ready(allowed.choose(Reuse::reuse)));
}

TEST_F(Profiles, ALocalPipeIsNotOpenedOnAnUnprovedLink) {
  RawServer server;
  std::thread serving([&] {
    RawWire control = server.meet();
    (void)RawServer::admit(control);
    const RawWire lane = server.lane();
    RawWire second = server.meet();
    (void)RawServer::admit(second);  // the peer asks to reuse the link, or refuses
    (void)control.next();
    (void)read_to_end(control.fd());
  });
  {
    Context context = Context::create({.name = "client"}).value();
    EXPECT_TRUE(succeeds(
        Pipe::connect(context, server.address(), kPatience, {.security = {Profile::plaintext}})));
    const auto pipe = Pipe::connect(context, server.address(), kPatience);
    EXPECT_TRUE(fails_with(pipe, ErrorCode::permission_denied, "'plaintext'"));
    EXPECT_TRUE(fails_with(pipe, ErrorCode::permission_denied, "'local'"));
    EXPECT_TRUE(fails_with(pipe, ErrorCode::permission_denied, "stranger"));
  }
  serving.join();
}

TEST_F(Profiles, AProofThatIsPassedOnProvesNothing) {
  // In both cases the relay would have obtained a connection of profile 'local'.
  for (const Profile profile : {Profile::local, Profile::plaintext}) {
    const Relay relay(local_.address());
    Context context = Context::create({.name = "client"}).value();
    const auto pipe = Pipe::connect(context, relay.address(), kPatience, {.security = {profile}});
    EXPECT_TRUE(fails_with(pipe, ErrorCode::permission_denied)) << to_string(profile);
    EXPECT_TRUE(fails_with(local_.accept(kBriefly), ErrorCode::timeout));
  }
}

class ProvedLinks : public PipeTest {};
TENDON_ON_BOTH_PATHS(ProvedLinks);

TEST_P(ProvedLinks, CarryPipesOfBothProfilesInEitherOrder) {
  for (const Profile first : {Profile::local, Profile::plaintext}) {
    Context server = Context::create({.name = "server", .transport = way().transport}).value();
    Context client = Context::create({.name = "client", .transport = way().transport}).value();
    for (const Profile profile : {first, Profile::local, Profile::plaintext}) {
      Listener listener = Listener::bind(server, "127.0.0.1:0", {.security = {profile}}).value();
      Pipe from =
          Pipe::connect(client, listener.address(), kPatience, {.security = {profile}}).value();
      Pipe to = listener.accept(kPatience).value();
      ASSERT_TRUE(succeeds(from.send(numbered(5), kPatience)));
      EXPECT_EQ(number_of(to.recv(kPatience).value()), 5);
    }
    EXPECT_EQ(server.members().size(), 1u) << "one link carried them all";
  }
}

}  // namespace
}  // namespace tendon::test
