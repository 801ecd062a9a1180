// SPDX-License-Identifier: Apache-2.0
// Attempts that are repeated until they succeed, on as many threads as they need, and the share
// that a crowd of silent peers may take of these.
#include "fabric/ways/dialler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/expect.hpp"
#include "support/raw_socket.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::Dialler;
using detail::Knocks;
using Dial = Dialler::Dial;
using Outcome = Dialler::Outcome;
using Whence = Dialler::Whence;

/// Knocks that answer when the test says so.
class ToldKnocks final : public Knocks {
 public:
  struct Asked {
    Number number;
    std::vector<std::string> addresses;
    std::chrono::milliseconds patience;
  };
  void start(OnAnswer on_answer) override { on_answer_ = std::move(on_answer); }
  Result<void> begin(Number number, const std::vector<std::string>& addresses,
                     std::chrono::milliseconds patience) override {
    const std::lock_guard lock(mutex_);
    if (fails_) return Error{ErrorCode::resource_exhausted, "test", "no thread to knock with"};
    asked_.push_back({number, addresses, patience});
    return {};
  }
  /// Makes each later knock fail to begin.
  void fail() { fails_ = true; }
  void stop() override {}

  [[nodiscard]] std::vector<Asked> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  /// Returns the first address of each knock, in the order of the knocks.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Asked& one : asked()) names.push_back(one.addresses.front());
    return names;
  }
  void answer(std::size_t index, Answer answer) { on_answer_(asked().at(index).number, answer); }

 private:
  OnAnswer on_answer_;
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
  std::atomic<bool> fails_{false};
};

/// Attempts that run until the test ends them, as those to silent peers do.
class Silence {
 public:
  [[nodiscard]] Dialler::Attempt attempt(Outcome outcome = Outcome::unreached) {
    return [this, outcome](const Dial&) {
      ++running_;
      while (!over_) std::this_thread::yield();
      --running_;
      return outcome;
    };
  }
  [[nodiscard]] bool holds(std::size_t count) const {
    return eventually([&] { return running_ == count; });
  }
  [[nodiscard]] std::size_t running() const { return running_; }
  void end() { over_ = true; }

 private:
  std::atomic<std::size_t> running_{0};
  std::atomic<bool> over_{false};
};

/// A Dialler whose knocks the test answers, and attempts that end before it does.
class Crowd : public testing::Test {
 protected:
  ~Crowd() override { silence_.end(); }

  void want(const std::string& peer, Dialler::Attempt attempt,
            Whence whence = Whence::announcement) {
    dialler_.want({.key = peer,
                   .peer = peer,
                   .attempt = std::move(attempt),
                   .whence = whence,
                   .addresses = {peer, peer + " too"}});
  }
  /// Takes all places for peers without a proved connection.
  void take_unproven_places() {
    for (std::size_t n = 0; n < Dialler::kMostUnproven; ++n)
      want("silent " + std::to_string(n), silence_.attempt());
    ASSERT_TRUE(silence_.holds(Dialler::kMostUnproven));
  }

  Silence silence_;
  std::unique_ptr<ToldKnocks> owned_ = std::make_unique<ToldKnocks>();
  ToldKnocks& knocks_ = *owned_;
  Dialler dialler_{std::move(owned_)};
};

TEST_F(Crowd, OfSilentPeersTakesHalfOfThePlacesAndTheNextIsKnockedAt) {
  take_unproven_places();
  EXPECT_TRUE(knocks_.asked().empty());
  want("next", silence_.attempt());
  ASSERT_EQ(knocks_.asked().size(), 1u);
  EXPECT_EQ(knocks_.asked()[0].addresses, std::vector<std::string>{"next"});
  EXPECT_EQ(knocks_.asked()[0].patience, 300ms);
  EXPECT_EQ(silence_.running(), Dialler::kMostUnproven);
  knocks_.answer(0, Knocks::Answer::stands);
  EXPECT_TRUE(silence_.holds(Dialler::kMostUnproven + 1));
}

TEST_F(Crowd, OfPeersThatStandHasAllPlacesAndNoMore) {
  take_unproven_places();
  const std::size_t left = Dialler::kMostPlaces - Dialler::kMostUnproven;
  for (std::size_t n = 0; n < left; ++n) {
    want("standing " + std::to_string(n), silence_.attempt());
    knocks_.answer(n, Knocks::Answer::stands);
  }
  ASSERT_TRUE(silence_.holds(Dialler::kMostPlaces));
  std::atomic<bool> ran{false};
  want("one more", [&](const Dial&) { return ran = true, Outcome::done; });
  ASSERT_EQ(knocks_.asked().size(), left + 1);
  knocks_.answer(left, Knocks::Answer::stands);
  std::atomic<bool> known{false};
  want(
      "known", [&](const Dial&) { return known = true, Outcome::done; }, Whence::user);
  ASSERT_TRUE(eventually([&] { return known.load(); }));
  EXPECT_FALSE(ran) << "it has no place";
  silence_.end();
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST_F(Crowd, NeedsNoPlaceOnThisHost) {
  take_unproven_places();
  std::atomic<int> attempts{0};
  want(
      "here",
      [&](const Dial& dial) {
        EXPECT_EQ(dial.whence, Whence::this_host);
        return ++attempts, Outcome::done;
      },
      Whence::this_host);
  EXPECT_TRUE(eventually([&] { return attempts == 1; }));
  EXPECT_TRUE(knocks_.asked().empty());
}

// The socket of the peer does not exist: the peer is then like any announced one.
TEST_F(Crowd, OnThisHostGoesOtherWaysLikeAnyOther) {
  take_unproven_places();
  std::vector<Whence> seen;
  std::atomic<bool> done{false};
  want(
      "here",
      [&](const Dial& dial) {
        seen.push_back(dial.whence);
        if (dial.whence == Whence::this_host) return Outcome::unreached;
        done = true;
        return Outcome::done;
      },
      Whence::this_host);
  ASSERT_TRUE(eventually([&] { return knocks_.asked().size() == 1; }));
  knocks_.answer(0, Knocks::Answer::stands);
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  EXPECT_EQ(seen, (std::vector{Whence::this_host, Whence::announcement}));
}

TEST_F(Crowd, LetsTheNewestComeEverySecondTime) {
  take_unproven_places();
  const std::size_t waiting = 20;
  const std::size_t all = Dialler::kMostKnocks + waiting;
  const auto name = [](std::size_t n) { return "peer " + std::to_string(n); };
  for (std::size_t n = 0; n < all; ++n) want(name(n), silence_.attempt());
  ASSERT_EQ(knocks_.asked().size(), Dialler::kMostKnocks) << "no more at a time";
  // Each answered knock makes room for one more: a newest and an oldest peer in turn, in either
  // order.
  for (std::size_t n = 0; n < waiting; ++n) knocks_.answer(n, Knocks::Answer::silent);
  const auto names = knocks_.names();
  ASSERT_EQ(names.size(), all);
  std::vector<std::string> newest;
  std::vector<std::string> oldest;
  for (std::size_t n = Dialler::kMostKnocks; n < all; ++n)
    (n % 2 == Dialler::kMostKnocks % 2 ? newest : oldest).push_back(names[n]);
  if (oldest.front() == name(all - 1)) std::swap(newest, oldest);
  for (std::size_t n = 0; n < waiting / 2; ++n) {
    EXPECT_EQ(newest[n], name(all - 1 - n));
    EXPECT_EQ(oldest[n], name(Dialler::kMostKnocks + n));
  }
}

// A retry uses other ways than an address, so it gets a place after its knock; but only
// kMostUnproven peers have one.
TEST_F(Crowd, TriedBeforeIsKnockedAtForLongerAndWaitsForAPlace) {
  take_unproven_places();
  const auto attempts = std::make_shared<std::atomic<int>>(0);
  want("again", [attempts](const Dial&) { return ++*attempts, Outcome::unreached; });
  ASSERT_EQ(knocks_.asked().size(), 1u);
  knocks_.answer(0, Knocks::Answer::silent);
  ASSERT_TRUE(eventually([&] { return knocks_.asked().size() == 2; }));
  EXPECT_EQ(knocks_.asked()[1].patience, Dialler::kPatience);
  EXPECT_EQ(knocks_.asked()[1].addresses, (std::vector<std::string>{"again", "again too"}));
  knocks_.answer(1, Knocks::Answer::silent);
  want("last", silence_.attempt());  // whatever became due before has been looked at
  ASSERT_EQ(knocks_.asked().size(), 3u);
  EXPECT_EQ(*attempts, 0);
  silence_.end();
  EXPECT_TRUE(eventually([&] { return *attempts > 0; }));
}

TEST_F(Crowd, TriedBeforeHasAQuarterOfTheKnocks) {
  take_unproven_places();
  const std::size_t all = Dialler::kMostKnocks;
  for (std::size_t n = 0; n < all; ++n) want("peer " + std::to_string(n), silence_.attempt());
  ASSERT_EQ(knocks_.asked().size(), all);
  for (std::size_t n = 0; n < all; ++n) knocks_.answer(n, Knocks::Answer::silent);
  // Each has two addresses.
  const std::size_t most = all + Dialler::kMostKnocksAgain / 2;
  ASSERT_TRUE(eventually([&] { return knocks_.asked().size() == most; }));
  want("newcomer", silence_.attempt());
  EXPECT_EQ(knocks_.names().back(), "newcomer") << "it has room";
  EXPECT_EQ(knocks_.asked().size(), most + 1);
}

TEST(Dials, OfAPeerThatWasNotReachedPauseTogether) {
  std::atomic<int> attempts{0};
  Dialler dialler;
  for (int n = 0; n < 1000; ++n) {
    dialler.want({.key = std::to_string(n), .peer = "its peer", .attempt = [&](const Dial&) {
                    return ++attempts, Outcome::unreached;
                  }});
  }
  ASSERT_TRUE(eventually([&] { return attempts >= 3; }));
  EXPECT_LT(attempts, 100) << "each of them was dialled at once";
}

TEST(Dials, ThatACallWaitsForEndThePauseOfTheirPeer) {
  std::atomic<bool> called{false};
  std::atomic<int> attempts{0};
  Dialler dialler;
  dialler.want({.key = "a", .peer = "its peer", .attempt = [&](const Dial&) {
                  return ++attempts, Outcome::unreached;
                }});
  ASSERT_TRUE(eventually([&] { return attempts >= 5; }));  // pauses are 400 ms and more by now
  const int before = attempts;
  dialler.want({.key = "b",
                .peer = "its peer",
                .attempt = [&](const Dial&) { return called = true, Outcome::done; },
                .haste = Dialler::Haste::called});
  ASSERT_TRUE(eventually([&] { return called.load(); }));
  EXPECT_LE(attempts, before + 1);
}

// One peer has ten thousand targets: the cost of an attempt does not grow with the number that
// wait.
TEST(Dials, OfManyThingsAreEachMadeOnce) {
  constexpr int kMany = 10'000;
  std::atomic<int> attempts{0};
  Dialler dialler;
  for (int n = 0; n < kMany; ++n) {
    dialler.want({.key = std::to_string(n), .peer = "its peer", .attempt = [&](const Dial&) {
                    return ++attempts, Outcome::done;
                  }});
  }
  EXPECT_TRUE(eventually([&] { return attempts == kMany; }));
}

// Uses real sockets: a listener stands, a port without one does not, and a name is not looked up.
TEST(Knocking, TellsWhoTakesConnections) {
  const RawListener listener;
  std::string nobody;
  {
    const RawListener gone;
    nobody = gone.address();
  }
  std::mutex mutex;
  std::map<Knocks::Number, std::vector<Knocks::Answer>> answers;
  const auto knocks = detail::make_knocks();
  knocks->start([&](Knocks::Number number, Knocks::Answer answer) {
    const std::lock_guard lock(mutex);
    answers[number].push_back(answer);
  });
  ASSERT_TRUE(succeeds(knocks->begin(1, {listener.address()}, kPatience)));
  ASSERT_TRUE(succeeds(knocks->begin(2, {nobody}, kPatience)));
  ASSERT_TRUE(succeeds(knocks->begin(3, {nobody, listener.address()}, kPatience)));
  ASSERT_TRUE(
      succeeds(knocks->begin(4, {"localhost:1", "no address", "unix:/nowhere"}, kPatience)));
  ASSERT_TRUE(succeeds(knocks->begin(5, {}, kPatience)));
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return answers.size() == 5;
  }));
  knocks->stop();
  using Answer = Knocks::Answer;
  const std::map<Knocks::Number, std::vector<Answer>> expected{{1, {Answer::stands}},
                                                               {2, {Answer::silent}},
                                                               {3, {Answer::stands}},
                                                               {4, {Answer::silent}},
                                                               {5, {Answer::silent}}};
  EXPECT_EQ(answers, expected);
}

// A lack of threads or descriptors loses no peer.
TEST_F(Crowd, WhoseKnocksCannotBeginWaitsForPlaces) {
  take_unproven_places();
  knocks_.fail();
  std::atomic<int> reached{0};
  for (int n = 0; n < 3; ++n) {
    want("late " + std::to_string(n), [&](const Dial&) {
      ++reached;
      return Outcome::done;
    });
  }
  EXPECT_EQ(reached, 0) << "there is no place";
  silence_.end();
  EXPECT_TRUE(eventually([&] { return reached == 3; }));
  EXPECT_TRUE(knocks_.asked().empty());
}

// A listener whose backlog is full takes no connection and refuses none.
TEST(Knocking, EndsWithItsPatience) {
  const FullListener silent;
  std::atomic<int> told{0};
  std::atomic<bool> stood{false};
  const auto knocks = detail::make_knocks();
  knocks->start([&](Knocks::Number, Knocks::Answer answer) {
    stood = answer == Knocks::Answer::stands;
    ++told;
  });
  ASSERT_TRUE(succeeds(knocks->begin(1, {silent.address()}, 50ms)));
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_FALSE(stood);
  ASSERT_TRUE(succeeds(knocks->begin(2, {silent.address()}, 1h)));
  knocks->stop();
  EXPECT_EQ(told, 1) << "nothing is told after it was stopped";
}

TEST(Dials, AreRepeatedUntilOneSucceeds) {
  std::atomic<int> attempts{0};
  Dialler dialler;
  const auto want = [&](Dialler::Attempt attempt) {
    dialler.want({.key = "a", .peer = "its peer", .attempt = std::move(attempt)});
  };
  want([&](const Dial&) { return ++attempts == 3 ? Outcome::done : Outcome::unreached; });
  EXPECT_TRUE(eventually([&] { return attempts == 3; }));
  want([&](const Dial&) { return attempts.fetch_add(100), Outcome::done; });
  dialler.again("b");  // the target is not wanted
  dialler.again("a");
  EXPECT_TRUE(eventually([&] { return attempts >= 4; }));
  EXPECT_LT(attempts, 100) << "what is wanted already stays as it is";
}

TEST(Dials, OneThatHangsHoldsUpNoOther) {
  std::latch all{Dialler::kMostKnown};
  {
    Dialler dialler;
    for (std::size_t n = 0; n < Dialler::kMostKnown; ++n) {
      dialler.want({.key = std::to_string(n),
                    .peer = std::to_string(n),
                    .attempt =
                        [&](const Dial&) {
                          all.arrive_and_wait();  // each runs while all others do
                          return Outcome::done;
                        },
                    .whence = Whence::user});
    }
    all.wait();
  }
}

TEST(Dials, OfOnePeerRunOneAfterTheOther) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> ended{0};
  Dialler dialler;
  for (int n = 0; n < 100; ++n) {
    dialler.want({.key = std::to_string(n), .peer = "its peer", .attempt = [&](const Dial&) {
                    most = std::max(most.load(), ++running);
                    std::this_thread::yield();
                    --running;
                    ++ended;
                    return Outcome::done;
                  }});
  }
  EXPECT_TRUE(eventually([&] { return ended == 100; }));
  EXPECT_EQ(most, 1);
}

TEST(Dials, RunNoMoreWhenTheyAreDropped) {
  std::atomic<bool> began{false};
  std::atomic<bool> ended{false};
  std::atomic<bool> may_end{false};
  const auto share = std::make_shared<int>(1);
  Dialler dialler;
  dialler.want({.key = "x 1", .peer = "x", .attempt = [&, share](const Dial&) {
                  began = true;
                  while (!may_end) std::this_thread::yield();
                  ended = true;
                  return Outcome::unreached;
                }});
  std::atomic<int> others{0};
  dialler.want(
      {.key = "y", .peer = "y", .attempt = [&](const Dial&) { return ++others, Outcome::done; }});
  ASSERT_TRUE(eventually([&] { return began && others == 1; }));
  std::thread ender([&] { may_end = true; });
  dialler.drop_all("x ");
  EXPECT_TRUE(ended) << "it waits for the attempt that runs";
  ender.join();
  EXPECT_TRUE(eventually([&] { return share.use_count() == 1; })) << "and forgets it";
  dialler.again("y");
  EXPECT_TRUE(eventually([&] { return others == 2; }));
}

TEST(Dials, OneThatIsWantedAgainWhileItRunsRunsOnceMore) {
  std::atomic<int> attempts{0};
  std::atomic<bool> may_end{false};
  Dialler dialler;
  dialler.want({.key = "a", .peer = "its peer", .attempt = [&](const Dial&) {
                  ++attempts;
                  while (!may_end) std::this_thread::yield();
                  return Outcome::done;
                }});
  ASSERT_TRUE(eventually([&] { return attempts == 1; }));
  dialler.again("a");
  may_end = true;
  EXPECT_TRUE(eventually([&] { return attempts == 2; }));
}

TEST(Dials, EndWithTheirDialler) {
  std::atomic<int> attempts{0};
  {
    Dialler dialler;
    for (const char* key : {"a", "b", "c"})
      dialler.want({.key = key, .peer = key, .attempt = [&](const Dial&) {
                      return ++attempts, Outcome::unreached;
                    }});
    ASSERT_TRUE(eventually([&] { return attempts >= 3; }));
  }
  const int before = attempts;
  std::this_thread::yield();
  EXPECT_EQ(attempts, before);
}

}  // namespace
}  // namespace tendon::test
