// SPDX-License-Identifier: Apache-2.0
// Nodes that do not reach each other: dial-back, and links through routers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/context_fabric.hpp"
#include "fabric/nodes/node_core.hpp"
#include "fabric/topics/publisher_core.hpp"
#include "fabric/ways/cable_frame.hpp"
#include "fabric/ways/peer_question.hpp"
#include "session/machine.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/live_zenoh.hpp"
#include "support/member_events.hpp"
#include "support/raw_socket.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::ContextFabric;
using testing::AllOf;
using testing::HasSubstr;

class RoutedLinks : public testing::Test {
 protected:
  struct Options {
    std::string listen = {};
    bool routed = true;
    Progress progress = Progress::service;
  };
  // Starts a node on a host of its own.
  [[nodiscard]] Program start(const std::string& name, const Options& options) {
    ContextOptions its{.name = name, .lease = kLongLease};
    its.progress = options.progress;
    Context context = Context::create(its).value();
    NodeOptions node{.domain = "brain",
                     .name = name,
                     .routers = {"the double"},
                     .listen = options.listen,
                     .routed = options.routed,
                     .security = {Profile::plaintext}};
    const auto fabric = ContextFabric::of(ContextCore::of(context), Profile::plaintext).value();
    EXPECT_TRUE(succeeds(fabric->adopt(
        node.routers,
        {.server = nullptr, .client = network_.open(++last_host_), .state = nullptr})));
    Node joined = Node::join(context, std::move(node), kPatience).value();
    return {std::move(context), std::move(joined)};
  }
  [[nodiscard]] Program start(const std::string& name) { return start(name, Options{}); }
  [[nodiscard]] static Path path_to(const Program& program, const std::string& name) {
    const auto stats = program.node.peer_stats(name);
    return stats ? stats->path : Path{};
  }
  /// Takes the next sample, which must have this number, and returns how many were lost before it.
  [[nodiscard]] static std::uint64_t take(Subscriber& subscriber, std::uint64_t sequence,
                                          std::uint64_t size_bytes) {
    const auto sample = subscriber.recv(kPatience);
    if (!succeeds(sample)) {
      ADD_FAILURE() << sample.error().message();
      return 0;
    }
    EXPECT_EQ(sample->sequence, sequence);
    EXPECT_TRUE(is_patterned(*sample->tensors, sequence, size_bytes));
    return missing_in(*sample);
  }
  static void publish(Publisher& publisher, std::uint64_t sequence, std::uint64_t size_bytes) {
    const auto shown = publisher.publish(patterned(sequence, size_bytes), kPatience);
    ASSERT_TRUE(succeeds(shown));
    ASSERT_EQ(shown->sequence, sequence);
  }

  LiveZenoh network_;
  MemberEventLog members_;
  std::uint8_t last_host_ = 0;
};

constexpr std::size_t kSequenceAt = 16;  // in a frame
constexpr std::uint64_t kSmall = 64;
constexpr std::uint64_t kLarge = 300'000;  // on the bulk lane, in several frames

TEST_F(RoutedLinks, CarrySamplesInOrder) {
  Program vision = start("vision");
  Program motor = start("motor");
  Publisher publisher =
      Publisher::declare(vision.node, "count",
                         {.qos = {.history = keep_last(4), .overflow = Overflow::block}})
          .value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const Path path = path_to(motor, "vision");
  EXPECT_EQ(path.kind, PathKind::routed);
  EXPECT_THAT(path.reason, AllOf(HasSubstr("announces no address"), HasSubstr("dial-back"),
                                 HasSubstr("window 1024 KiB"), HasSubstr("round trip")));
  // The node has heard of no subscriber's node before.
  ASSERT_TRUE(succeeds(vision.node.survey(kPatience)));
  EXPECT_EQ(path_to(vision, "motor").kind, PathKind::routed);
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    const std::uint64_t size_bytes = sequence % 3 == 0 ? kLarge : kSmall;
    publish(publisher, sequence, size_bytes);
    EXPECT_EQ(take(subscriber, sequence, size_bytes), 0u);
  }
}

TEST_F(RoutedLinks, CarryCalls) {
  Program arm = start("arm");
  Program brain = start("brain");
  Responder responder = Responder::declare(arm.node, "arm/plan", [](const Request& request) {
                          return Result<TensorDict>(numbered(number_of(request.tensors()) + 1));
                        }).value();
  const auto reply = brain.node.call("arm/plan", numbered(7), kPatience);
  ASSERT_TRUE(succeeds(reply));
  EXPECT_EQ(number_of(reply->tensors), 8);
  EXPECT_EQ(path_to(brain, "arm").kind, PathKind::routed);
}

// About one frame of the 3rd sample is lost on the way: nothing in the history is lost.
TEST_F(RoutedLinks, AreMadeAgainWhenAFrameIsLost) {
  Program vision = start("vision");
  Program motor = start("motor");
  members_.watch(motor.context);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(64)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 64}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const auto count = std::make_shared<std::atomic<int>>(0);
  const std::string to_motor = "/cable/" + motor.context.id().to_string();
  network_.lose([=](std::string_view key, const Storage& frame) {
    const auto read = detail::read_cable_frame(frame.bytes());
    return read->header.kind == detail::CableFrameKind::data &&
           key.find(to_motor) != std::string_view::npos && count->fetch_add(1) == 2;
  });
  for (std::uint64_t sequence = 1; sequence <= 40; ++sequence) publish(publisher, sequence, kLarge);
  for (std::uint64_t sequence = 1; sequence <= 40; ++sequence)
    EXPECT_EQ(take(subscriber, sequence, kLarge), 0u) << sequence;
  EXPECT_GT(count->load(), 3);
  EXPECT_TRUE(members_.wait_for(MemberEventKind::lost, vision.context.id()));
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::routed);
}

TEST_F(RoutedLinks, AreLostWithTheRouterAndResumeWithIt) {
  Program vision = start("vision");
  Program motor = start("motor");
  members_.watch(motor.context);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  publish(publisher, 1, kSmall);
  EXPECT_EQ(take(subscriber, 1, kSmall), 0u);
  network_.stop_router();
  ASSERT_TRUE(members_.wait_for(MemberEventKind::lost, vision.context.id()));
  for (std::uint64_t sequence = 2; sequence <= 11; ++sequence) publish(publisher, sequence, kSmall);
  network_.heal();
  // The last four are in the history; the others are one gap.
  const auto first = subscriber.recv(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_EQ(first->sequence, 8u);
  ASSERT_EQ(first->gaps.size(), 1u);
  EXPECT_EQ(first->gaps[0].first, 2u);
  EXPECT_EQ(first->gaps[0].last, 7u);
  EXPECT_EQ(first->gaps[0].reason, GapReason::reconnect);
  for (std::uint64_t sequence = 9; sequence <= 11; ++sequence)
    EXPECT_EQ(take(subscriber, sequence, kSmall), 0u);
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::routed);
}

// A stranger at a router reads and writes everything: it puts frames back that it saw, changed and
// unchanged, on the key of every cable.
TEST_F(RoutedLinks, AreNotMovedByStrangers) {
  Program vision = start("vision");
  Program motor = start("motor");
  members_.watch(motor.context);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const auto stranger = network_.open(++last_host_);
  std::atomic<int> written{0};
  const auto pattern = KeyExpression::parse("@tendon/*/cable/**").value();
  const auto seen = stranger->subscribe(pattern, [&](const detail::ZenohMessage& frame) {
    if (written.load() > 100) return;  // its own frames arrive as well
    std::string changed(reinterpret_cast<const char*>(frame.payload.data()),
                        frame.payload.size_bytes());
    changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] + 1);
    changed[kSequenceAt] = static_cast<char>(changed[kSequenceAt] + 1);  // the next one expected
    const auto owner = std::make_shared<std::string>(std::move(changed));
    const Storage forged(owner, reinterpret_cast<std::byte*>(owner->data()), owner->size(),
                         Access::read_only);
    for (const Storage& one : {forged, frame.payload}) {
      for (const std::string& key :
           {frame.key, std::string("@tendon/*/cable/**"), std::string("@tendon/**")})
        (void)stranger->put({.key = key, .payload = one, .attachment = {}});
      ++written;
    }
  });
  for (std::uint64_t sequence = 1; sequence <= 30; ++sequence) {
    publish(publisher, sequence, kLarge);
    EXPECT_EQ(take(subscriber, sequence, kLarge), 0u);
  }
  EXPECT_GT(written.load(), 50);
  EXPECT_EQ(members_.count(MemberEventKind::lost), 0u);
  EXPECT_GT(motor.node.peer_stats("vision").value().stray_frames, 0u);
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::routed);
}

// It sees the topic, and nothing of how links are made and used.
TEST_F(RoutedLinks, APlainSubscriberOfEverythingDisturbsNobody) {
  Program vision = start("vision");
  Program motor = start("motor");
  members_.watch(motor.context);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const auto plain = network_.open(++last_host_);
  std::atomic<int> samples{0};
  std::atomic<int> others{0};
  detail::ZenohPort::Handle listening;
  for (std::uint64_t sequence = 1; sequence <= 90; ++sequence) {
    if (sequence == 30) {
      listening = plain
                      ->subscribe(KeyExpression::parse("**").value(),
                                  [&](const detail::ZenohMessage& message) {
                                    ++(message.key == "count" ? samples : others);
                                  })
                      .value();
    }
    const std::uint64_t size_bytes = sequence % 3 == 0 ? kLarge : kSmall;
    publish(publisher, sequence, size_bytes);
    EXPECT_EQ(take(subscriber, sequence, size_bytes), 0u);
  }
  ASSERT_TRUE(eventually([&] {
    const PublisherStats stats = publisher.stats();
    return stats.plain_put > 0 && static_cast<std::uint64_t>(samples) == stats.plain_put;
  }));
  listening = nullptr;
  EXPECT_EQ(others, 0);
  EXPECT_EQ(members_.count(MemberEventKind::lost), 0u);
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::routed);
}

// A program that takes nothing of its link keeps its own window; the others continue.
TEST_F(RoutedLinks, AStoppedReaderHoldsUpNobody) {
  Program vision = start("vision");
  Program stopped = start("stopped", {.progress = Progress::manual});
  Program motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Subscriber never = Subscriber::declare(stopped.node, "count").value();
  // The test makes progress for it until it is connected.
  ASSERT_TRUE(eventually([&] {
    (void)stopped.context.progress();
    return publisher.wait_for_subscribers(1, kBriefly).has_value();
  }));
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  const auto sent_bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  const std::string to_stopped = "/cable/" + stopped.context.id().to_string();
  network_.lose([=](std::string_view key, const Storage& frame) {
    if (key.find(to_stopped) != std::string_view::npos) sent_bytes->fetch_add(frame.size_bytes());
    return false;
  });
  for (std::uint64_t sequence = 1; sequence <= 60; ++sequence) {
    publish(publisher, sequence, kLarge);
    EXPECT_EQ(take(subscriber, sequence, kLarge), 0u) << sequence;
  }
  // The window, and the bytes that the socketpairs there hold.
  EXPECT_GT(sent_bytes->load(), kLarge);
  EXPECT_LT(sent_bytes->load(), 2 * kCableWindowBytes);
}

TEST_F(RoutedLinks, AreNotMadeWhereANodeWantsNone) {
  Program vision = start("vision");
  Program motor = start("motor", {.routed = false});
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
  const FabricEvent event = told.of(FabricEventKind::unreachable)[0];
  ASSERT_EQ(event.tried.size(), 3u);
  EXPECT_EQ(event.tried[0].address, "direct");
  EXPECT_EQ(event.tried[1].address, "dial-back");
  EXPECT_EQ(event.tried[2].address, "routed");
  EXPECT_THAT(event.tried[2].error, HasSubstr("routed = false"));
}

TEST_F(RoutedLinks, AreNotLetInWhereANodeWantsNone) {
  Program vision = start("vision", {.routed = false});
  Program motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
  const FabricEvent event = told.of(FabricEventKind::unreachable)[0];
  EXPECT_THAT(event.tried.back().error, HasSubstr("the peer says: its nodes take no routed links"));
}

// The publisher listens nowhere, and reaches the subscriber.
TEST_F(RoutedLinks, AreNotNeededWhereThePublisherDialsBack) {
  Program vision = start("vision", {.routed = false});
  Program motor = start("motor", {.listen = "127.0.0.1:0", .routed = false});
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  publish(publisher, 1, kLarge);
  EXPECT_EQ(take(subscriber, 1, kLarge), 0u);
  // It dialled 127.0.0.1, and found itself on the same host.
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::shm);
}

// ---- questions of strangers, and their answers

class Questions : public RoutedLinks {
 protected:
  /// Returns everything that a stranger hears of `program`, until the request ends.
  [[nodiscard]] std::vector<detail::PeerAnswer> ask(const Program& program, Storage payload) {
    const auto pending = begin(program, std::move(payload));
    EXPECT_TRUE(eventually([&] { return pending->is_over(); }));
    return pending->take();
  }
  [[nodiscard]] std::vector<detail::PeerAnswer> ask(const Program& program,
                                                    const detail::PeerQuestion& question) {
    return ask(program, encode(question).value());
  }

  class Pending {
   public:
    [[nodiscard]] bool is_over() const {
      const std::lock_guard lock(mutex_);
      return over_;
    }
    [[nodiscard]] std::vector<detail::PeerAnswer> take() const {
      const std::lock_guard lock(mutex_);
      return answers_;
    }
    void hear(const detail::ZenohMessage& message) {
      const std::lock_guard lock(mutex_);
      answers_.push_back(detail::read_peer_answer(message.payload.bytes()).value());
    }
    void end() {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    detail::ZenohPort::Handle handle;

   private:
    mutable std::mutex mutex_;
    std::vector<detail::PeerAnswer> answers_;
    bool over_ = false;
  };
  [[nodiscard]] std::shared_ptr<Pending> begin(const Program& program, Storage payload) {
    auto pending = std::make_shared<Pending>();
    const auto key = detail::ask_key("brain", program.context.id()).value();
    pending->handle =
        stranger_
            ->query(
                {.key = key.text(), .payload = std::move(payload), .attachment = {}}, kPatience,
                [weak = std::weak_ptr(pending)](const detail::ZenohMessage& message) {
                  if (const auto known = weak.lock()) known->hear(message);
                },
                [weak = std::weak_ptr(pending)](detail::Ending) {
                  if (const auto known = weak.lock()) known->end();
                })
            .value();
    return pending;
  }
  [[nodiscard]] static detail::DialBackQuestion dial_me_at(
      const std::string& address, const std::optional<detail::BootHash>& host) {
    return {.asker = {.domain = "brain",
                      .name = "stranger",
                      .context = ContextId{detail::random_nonce().value()},
                      .start = 1,
                      .unix_on = host,
                      .addresses = {Address::parse(address).value()}}};
  }
  [[nodiscard]] static Storage bytes(std::size_t count) {
    Storage memory = Storage::allocate(count).value();
    std::memset(memory.data(), 9, count);  // no kind of question
    return memory;
  }
  [[nodiscard]] static std::uint64_t refused(Program& program) {
    const auto fabric =
        ContextFabric::of(ContextCore::of(program.context), Profile::plaintext).value();
    const auto ways = fabric->ways_of({.domain = "brain", .routers = {"the double"}}, kPatience);
    return ways.value().detours->refused_questions();
  }
  [[nodiscard]] static bool was_dialled(const RawListener& listener) {
    pollfd one{listener.fd(), POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  }

  std::unique_ptr<detail::ZenohPort> stranger_ = network_.open(77);
};

TEST_F(Questions, TheNoOfAStrangerEndsNothing) {
  // Answers every question first, and never ends the request.
  std::mutex mutex;
  std::vector<std::unique_ptr<detail::ZenohQuestion>> kept;
  const auto answering =
      stranger_
          ->answer(KeyExpression::parse("@tendon/*/ask/*").value(),
                   [&](std::unique_ptr<detail::ZenohQuestion> question) {
                     question->answer({.key = question->asked().key,
                                       .payload = encode(detail::PeerAnswer{"no", {}}).value(),
                                       .attachment = {}});
                     const std::lock_guard lock(mutex);
                     kept.push_back(std::move(question));
                   })
          .value();
  Program vision = start("vision");
  Program motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  EXPECT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_EQ(path_to(motor, "vision").kind, PathKind::routed);
  const std::lock_guard lock(mutex);
  EXPECT_FALSE(kept.empty());
}

TEST_F(Questions, HaveASize) {
  Program vision = start("vision");
  EXPECT_EQ(ask(vision, bytes(kMaxQuestionBytes)).size(), 1u);
  EXPECT_EQ(refused(vision), 1u);
  EXPECT_EQ(ask(vision, bytes(kMaxQuestionBytes + 1)).size(), 0u) << "it is dropped unread";
  EXPECT_EQ(refused(vision), 2u);
}

TEST_F(Questions, OfAnotherHostLeadToNoDialOnThisOne) {
  Program vision = start("vision");
  const RawListener here;
  const std::string port = here.address().substr(here.address().rfind(':'));
  for (const std::string& address : {here.address(), "[::1]" + port, "[::ffff:127.0.0.1]" + port,
                                     "169.254.1.1" + port, "[fe80::1]" + port}) {
    const auto answers = ask(vision, detail::PeerQuestion(dial_me_at(address, {})));
    ASSERT_EQ(answers.size(), 1u) << address;
    EXPECT_EQ(answers[0].why_not, "not done") << address;
  }
  EXPECT_FALSE(was_dialled(here));
  EXPECT_EQ(refused(vision), 5u);
}

TEST_F(Questions, OfThisHostLeadToADialThatTellsNoCause) {
  Program vision = start("vision");
  const RawListener here;
  const auto host = detail::boot_hash(detail::boot_id()).value();
  const auto silent = ask(vision, detail::PeerQuestion(dial_me_at(here.address(), host)));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].why_not, "not done");
  EXPECT_TRUE(was_dialled(here));
  const auto nobody = ask(vision, detail::PeerQuestion(dial_me_at(address_of_nobody(), host)));
  ASSERT_EQ(nobody.size(), 1u);
  EXPECT_EQ(nobody[0], silent[0]) << "nobody learns what there is";
}

TEST_F(Questions, ForCablesAreFourASecond) {
  Program vision = start("vision");
  const ContextId asker{detail::random_nonce().value()};
  const auto at_once = [&] {
    std::vector<std::shared_ptr<Pending>> pending;
    for (std::uint32_t n = 0; n <= kMaxCableRequestsPerSecond; ++n) {
      const detail::CableQuestion question{.asker = asker,
                                           .connection = detail::random_nonce().value(),
                                           .half_key = detail::random_nonce().value(),
                                           .lane = detail::Lane::control};
      pending.push_back(begin(vision, encode(detail::PeerQuestion(question)).value()));
    }
    std::size_t done = 0;
    for (const auto& one : pending) {
      EXPECT_TRUE(eventually([&] { return one->is_over(); }));
      for (const auto& answer : one->take()) done += answer.why_not.empty() ? 1 : 0;
    }
    return done;
  };
  // A second may pass between any two of them on a slow machine.
  EXPECT_TRUE(eventually([&] { return at_once() <= kMaxCableRequestsPerSecond; }));
  EXPECT_GE(refused(vision), 1u);
}

}  // namespace
}  // namespace tendon::test
