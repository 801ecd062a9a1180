// SPDX-License-Identifier: Apache-2.0
// Nodes of several processes that find each other by Zenoh: directly, and through `tendon router`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "process/command.hpp"
#include "process/peer.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/raw_socket.hpp"
#include "support/safetensors_text.hpp"
#include "support/scratch_dir.hpp"
#include "support/told_lines.hpp"

namespace tendon::test {
namespace {

using Words = std::vector<std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

class Router : public ProcessTest {
 protected:
  void SetUp() override {
    if (!detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
  }
  [[nodiscard]] std::string place() const {
    return "unix:" + (folder_.path() / "router.zenoh").string();
  }
  /// Starts a router that nodes can reach.
  [[nodiscard]] std::unique_ptr<Command> start_router() const {
    auto router = std::make_unique<Command>(Words{"router", "--listen", place()});
    EXPECT_TRUE(eventually([&] {
      return detail::open_zenoh({.connect = {"unixsock-stream/" + place().substr(5)}}, kBriefly)
          .has_value();
    }));
    return router;
  }
  [[nodiscard]] Node join(Context& context, const std::string& name) const {
    return Node::join(context, {.domain = "brain", .name = name, .routers = {place()}}, kPatience)
        .value();
  }

  const ScratchDir folder_;
};

TEST_F(Router, IsKilledAndLinksGoOn) {
  auto router = start_router();
  Context here = Context::create({.name = "vision"}).value();
  Context there = Context::create({.name = "motor"}).value();
  Node vision = join(here, "vision");
  Node motor = join(there, "motor");
  Publisher publisher = Publisher::declare(vision, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  // Samples arrive one by one before, during and after its death: some thousands a second.
  std::int64_t number = 0;
  const auto delivers = [&](int count) {
    for (int n = 0; n < count; ++n) {
      ASSERT_TRUE(succeeds(publisher.publish(numbered(++number), kPatience)));
      const auto sample = subscriber.recv(kPatience);
      ASSERT_TRUE(succeeds(sample));
      ASSERT_EQ(number_of(*sample->tensors), number);
      ASSERT_TRUE(sample->gaps.empty());
    }
  };
  delivers(500);
  router->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return motor.nodes() == std::vector<std::string>{"motor"}; },
                         [&] { delivers(10); }));
  (void)router->finish();
  delivers(500);
  router = start_router();
  // The nodes find the new router by themselves.
  EXPECT_TRUE(eventually([&] {
    return run_tendon({"node", "list", "--domain", "brain", "--router", place()}).out ==
           "motor\nvision\n";
  }));
  router->signal(SIGTERM);
  EXPECT_EQ(router->finish().code, 0);
}

TEST_F(Router, ListensWhereItSays) {
  const auto router = start_router();
  const Ended second = run_tendon({"router", "--listen", place()});
  EXPECT_EQ(second.code, error_info(ErrorCode::address_in_use).exit_code) << second.err;
  EXPECT_THAT(second.err, testing::AllOf(HasSubstr("router.zenoh"),
                                         HasSubstr("pid " + std::to_string(router->pid()))));
}

// The process that serves their meeting place is killed: another one serves, and finds the rest.
TEST_F(Router, IsNotNeededOnOneHost) {
  const std::string domain = "test " + folder_.path().string();
  const Words words{"topic", "echo", "none", "--domain", domain};
  Command first(words);
  const auto find = [&](const std::string& verb) {
    return run_tendon({"node", verb, "--domain", domain, "--timeout", "20"});
  };
  ASSERT_TRUE(eventually([&] { return find("list").out != ""; }));
  Command second(words);
  ASSERT_TRUE(eventually([&] {
    const Ended list = find("list");
    return std::count(list.out.begin(), list.out.end(), '\n') == 2;
  }));
  first.signal(SIGKILL);
  (void)first.finish();
  EXPECT_TRUE(eventually([&] {
    const Ended list = find("list");
    return list.code == 0 && std::count(list.out.begin(), list.out.end(), '\n') == 1;
  }));
}

TEST_F(Router, TellsTheCommandOfPlainPeers) {
  const auto router = start_router();
  Context context = Context::create({.name = "vision"}).value();
  Node vision = join(context, "vision");
  const Publisher publisher = Publisher::declare(vision, "vision/objects").value();
  ToldLines came;
  const auto peer =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place().substr(5)}}, kPatience).value();
  const auto key = [](std::string_view text) { return KeyExpression::parse(text).value(); };
  const auto with_router = [&](Words words) {
    words.insert(words.end(), {"--domain", "brain", "--router", place()});
    return words;
  };
  const Words info = with_router({"topic", "info", "vision/**", "--json"});
  EXPECT_THAT(run_tendon(info).out, HasSubstr("\"plain_subscribed\":[]"));
  const auto listening = peer->subscribe(key("vision/*"),
                                         [&](const detail::ZenohMessage& message) {
                                           came.add(message.key + " " + message.encoding + " " +
                                                    std::to_string(message.payload.size_bytes()));
                                         })
                             .value();
  EXPECT_TRUE(eventually([&] {
    return run_tendon(info).out.find("\"plain_subscribed\":[\"vision/objects\"]") !=
           std::string::npos;
  }));

  // A reader that waits says what it waits for.
  Command deaf(with_router({"topic", "echo", "sensors/*"}));
  EXPECT_THAT(deaf.wait_for_err("tendon: no node was found that publishes on sensors/*; "),
              HasSubstr("--plain"));
  Command echo(with_router({"topic", "echo", "sensors/*", "--plain", "-n", "1"}));
  (void)echo.wait_for_err("tendon: no node was found that publishes on sensors/*; ");
  const Storage payload =
      safetensors_text(R"({"n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "\7");
  // A publisher waits for them, too, and its one sample reaches them.
  const std::string file = (folder_.path() / "n.safetensors").string();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(payload.data()),
             static_cast<std::streamsize>(payload.size_bytes()));
  const Words pub{"topic", "pub", "vision/frames", file, "--once", "--timeout", "20"};
  const Ended once = run_tendon(with_router(pub));
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(
      once.out,
      "published 1 samples on vision/frames; the last one was shown to 0; 1 were put for plain "
      "Zenoh peers\n");
  EXPECT_THAT(
      came.take(1),
      ElementsAre(testing::StartsWith("vision/frames application/octet-stream;safetensors ")));
  Words bare = pub;
  bare.insert(bare.end(), {"--bare", "--encoding", "text/plain", "--json"});
  const Ended as_one = run_tendon(with_router(bare));
  EXPECT_EQ(as_one.code, 0) << as_one.err;
  EXPECT_EQ(as_one.out,
            "{\"key\":\"vision/frames\",\"published\":1,\"subscribers\":1,\"plain_put\":1}\n");
  EXPECT_THAT(came.take(1),
              ElementsAre("vision/frames text/plain " + std::to_string(payload.size_bytes())));
  ASSERT_TRUE(succeeds(peer->put({"sensors/imu", payload, {}})));
  const Ended ended = echo.finish();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("sensors/imu  a plain Zenoh peer\n  n  u8 [1]"));
}

TEST_F(Router, LetsTheCommandReadWhatPlainPeersWrite) {
  const auto router = start_router();
  const auto peer =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place().substr(5)}}, kPatience).value();
  const auto put = [&](const std::string& encoding, std::string_view text) {
    ASSERT_TRUE(succeeds(peer->put({"sensors/imu", storage_of(text), {}, encoding})));
  };
  const std::string long_text = std::string(4095, 'x') + "\u00e9\u00e9 and more";
  const auto echo = [&](const Words& more) {
    Words words{"topic", "echo",     "sensors/*", "--plain",  "-n",
                "5",     "--domain", "brain",     "--router", place()};
    words.insert(words.end(), more.begin(), more.end());
    Command command(words);
    (void)command.wait_for_err("tendon: no node was found that publishes on sensors/*; ");
    put("application/json", "{\"n\": 1,\r\n\t\"esc\": \"\x1b[2J\"}");
    put("text/plain", long_text);
    put("application/protobuf", std::string(20, '\x1b'));
    put("text/\x1b[2J", "\xff");
    put("", "");
    return command.finish();
  };
  const Ended words = echo({});
  EXPECT_EQ(words.code, 0) << words.err;
  const std::string head = "sensors/imu  a plain Zenoh peer\n  ";
  EXPECT_EQ(words.out, head + "application/json  25 bytes\n  {\"n\": 1, \n   \"esc\": \" [2J\"}\n" +
                           head + "text/plain  4108 bytes\n  " + std::string(4095, 'x') +
                           "\n  ... 13 bytes more\n" + head + "application/protobuf  20 bytes  " +
                           "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b...\n" + head +
                           "text/ [2J  1 bytes  ff\n" + head + "zenoh/bytes  0 bytes\n");
  const Ended documents = echo({"--json"});
  EXPECT_EQ(documents.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(documents.out,
              HasSubstr(R"("encoding":"application/json","size_bytes":25,"text":"{\"n\": 1)"));
  EXPECT_THAT(documents.out, HasSubstr(R"("size_bytes":1,"hex":"ff"})"));
}

// The stranger accepts connections but sends nothing, and leaves each question open.
TEST_F(Router, TellsTheCommandWhatWasTriedUntilItsTimeout) {
  const auto router = start_router();
  const auto stranger =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place().substr(5)}}, kPatience).value();
  const RawListener silent;
  Context ghost = Context::create({.name = "ghost"}).value();
  const auto node = stranger->token(
      to_key(detail::NodeAnnouncement{.domain = "brain",
                                      .name = "ghost",
                                      .context = ghost.id(),
                                      .start = 1,
                                      .unix_on = {},
                                      .addresses = {Address::parse(silent.address()).value()}})
          .value());
  const auto publisher = stranger->token(
      to_key(detail::EntityAnnouncement{.domain = "brain",
                                        .kind = detail::EntityKind::publisher,
                                        .context = ghost.id(),
                                        .entity = 1,
                                        .schema = {},
                                        .qos = {},
                                        .topic = KeyExpression::parse("ghost/frames").value()})
          .value());
  ASSERT_TRUE(node && publisher);
  std::mutex mutex;
  std::vector<std::unique_ptr<detail::ZenohQuestion>> open;
  const auto deaf = stranger->answer(KeyExpression::parse("@tendon/brain/**").value(),
                                     [&](std::unique_ptr<detail::ZenohQuestion> question) {
                                       const std::lock_guard lock(mutex);
                                       open.push_back(std::move(question));
                                     });
  ASSERT_TRUE(succeeds(deaf));
  const Ended why = run_tendon({"topic", "info", "--why", "ghost/**", "--domain", "brain",
                                "--insecure-plaintext", "--router", place(), "--timeout", "1.7"});
  EXPECT_EQ(why.code, 0) << why.err;
  EXPECT_THAT(why.out, HasSubstr("ghost/frames  of ghost  found, and not reached"));
  EXPECT_THAT(why.out, HasSubstr(silent.address()));
  const std::lock_guard lock(mutex);
  open.clear();
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_F(Router, TellsTheCommandWhoRefusesIt) {
  const auto router = start_router();
  Context context = Context::create({.name = "vision"}).value();
  Node vision =
      Node::join(
          context,
          {.domain = "brain", .name = "vision", .routers = {place()}, .listen = "127.0.0.1:0"},
          kPatience)
          .value();
  std::vector<Publisher> publishers;
  for (int n = 0; n < 20; ++n)
    publishers.push_back(Publisher::declare(vision, "vision/" + std::to_string(n)).value());
  // A command with another runtime directory has no proof that it is of this host and user.
  const ScratchDir elsewhere;
  const auto run = [&](const Words& asked) {
    Words words = {"TENDON_RUNTIME_DIR=" + elsewhere.path().string(), TENDON_CLI_PATH};
    words.insert(words.end(), asked.begin(), asked.end());
    words.insert(words.end(), {"--domain", "brain", "--router", place()});
    return Command(words, "/usr/bin/env").finish();
  };
  const std::string refused = "found, and refused because " + vision.address() + ": ";
  for (const char* const verb : {"echo", "hz"}) {
    const Ended ended = run({"topic", verb, "vision/*", "--sample-timeout", "2.5"});
    EXPECT_EQ(ended.code, error_info(ErrorCode::timeout).exit_code);
    int found = 0;
    for (const std::string& line : lines_of(ended.err)) {
      if (line.find(refused) != std::string::npos) ++found;
      if (!line.starts_with("tendon: ")) continue;
      EXPECT_LE(line.size(), 200U) << line;
    }
    EXPECT_EQ(found, 1) << verb << " of 20 topics: " << ended.err;
    EXPECT_THAT(ended.err, testing::Not(HasSubstr("no node was found"))) << verb;
  }
  for (const char* const noun : {"topic", "node"}) {
    const Ended list = run({noun, "list"});
    EXPECT_EQ(list.code, 0) << list.err;
    EXPECT_THAT(list.out, HasSubstr("vision"));
    EXPECT_THAT(list.err, testing::StartsWith("tendon: vision: " + refused)) << noun;
    EXPECT_EQ(lines_of(list.err).size(), 1U) << list.err;
  }
  const Ended why = run({"topic", "info", "--why", "vision/7"});
  EXPECT_THAT(why.out, testing::StartsWith("vision/7  of vision  " + refused)) << "the same words";
}

TEST_F(Router, IsNamedWhereNobodyWasFound) {
  const auto router = start_router();
  const auto nobody = [](const Words& words) {
    const Ended list = run_tendon(words);
    EXPECT_EQ(list.code, 0) << list.err;
    const Words lines = lines_of(list.err);
    EXPECT_EQ(lines.size(), 2U) << list.err;
    return lines.size() == 2 ? lines : Words{"", ""};
  };
  const std::string domain = "a" + std::to_string(getpid());
  for (const char* const noun : {"topic", "node"}) {
    const Words asked = nobody({noun, "list", "--domain", domain, "--router", place()});
    EXPECT_THAT(asked[0], testing::StartsWith("tendon: nobody was found: domain '" + domain +
                                              "', runtime directory /"));
    EXPECT_THAT(asked[0], testing::EndsWith(", router " + place()));
    EXPECT_EQ(asked[1], "tendon: tried: router " + place());
    const Words own = nobody({noun, "list", "--domain", domain});
    EXPECT_THAT(own[0], testing::EndsWith(", no router (--router, TENDON_ROUTER)"));
    EXPECT_THAT(own[1],
                testing::EndsWith(".zenoh, where nodes of this host and user meet: it answers"));
  }
}

// The largest message that it accepts is a sample of 32 MiB.
TEST_F(Router, KeepsNoHugeMessageOfAStranger) {
  const auto router = start_router();
  Command echo({"topic", "echo", "sensors/*", "--plain", "-n", "1", "--domain", "brain", "--router",
                place()});
  (void)echo.wait_for_err("tendon: no node was found that publishes on sensors/*; ");
  const auto peer =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place().substr(5)}}, kPatience).value();
  const auto key = KeyExpression::parse("sensors/imu").value();
  constexpr std::uint64_t kHuge = std::uint64_t{256} << 20;
  ASSERT_TRUE(succeeds(peer->put_patiently(key, Storage::allocate(kHuge).value())));
  ASSERT_TRUE(succeeds(peer->put_patiently(key, storage_of("small"))));
  const Ended ended = echo.finish();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("zenoh/bytes  5 bytes"));
  EXPECT_EQ(peer->state(), detail::SessionState::up);
  std::ifstream status("/proc/" + std::to_string(router->pid()) + "/status");
  std::uint64_t most_kib = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) most_kib = std::stoull(line.substr(6));
  EXPECT_GT(most_kib, 0U);
  EXPECT_LT(most_kib << 10, kHuge / 2);
}

}  // namespace
}  // namespace tendon::test
