// SPDX-License-Identifier: Apache-2.0
// Peers that are admitted where workers connect, and peers that must make room for others.
#include "control/relay/reception.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::PipeListener;
using detail::Reception;
using detail::WorkerPipe;

/// Lets a peer stay after its first word.
class Owner final : public PipeListener {
 public:
  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override {
    EXPECT_TRUE(reception.leave(pipe));
    EXPECT_FALSE(reception.leave(pipe));
    pipe->send(word);
    const Lock lock(mutex_);
    known_.push_back(pipe);
  }
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override {
    (void)pipe;
    (void)tensors;
  }
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override {
    (void)reception.leave(pipe);
    (void)why;
  }

  Reception reception{{ErrorCode::server_busy, "test", "full"}};

 private:
  using Lock = detail::Lock;
  detail::Mutex mutex_;
  std::vector<std::shared_ptr<WorkerPipe>> known_ TENDON_GUARDED_BY(mutex_);
};

class Receptions : public testing::Test {
 protected:
  void SetUp() override {
    owner_->reception.open(Listener::bind(context_, "127.0.0.1:0").value(), owner_);
  }
  Pipe dial() { return Pipe::connect(other_, owner_->reception.address(), kPatience).value(); }
  /// Opens a pipe, sends a word, and waits until it was heard.
  Pipe dial_and_speak() {
    Pipe pipe = dial();
    v1::Word word;
    word.set_roster(1);
    EXPECT_TRUE(succeeds(pipe.send(as_bytes(word.SerializeAsString()), {}, kPatience)));
    EXPECT_TRUE(succeeds(pipe.recv_message(kPatience)));
    return pipe;
  }

  Context context_ = Context::create({.name = "here"}).value();
  Context other_ = Context::create({.name = "others"}).value();
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
};

TEST_F(Receptions, TheOldestThatSaidNothingGivesWay) {
  Pipe speaks = dial_and_speak();
  std::deque<Pipe> silent;
  for (std::size_t i = 0; i <= kMaxUnseatedWorkers; ++i) silent.push_back(dial());
  EXPECT_TRUE(fails_with(silent.front().recv_message(kPatience), ErrorCode::server_busy, "full"));
  const Pipe last = dial_and_speak();
  EXPECT_TRUE(fails_with(speaks.recv_message(kBriefly), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(silent[2].recv_message(kBriefly), ErrorCode::timeout));
  EXPECT_EQ(owner_->reception.take_silent().size(), kMaxUnseatedWorkers - 1);
}

TEST_F(Receptions, NobodyIsLetInOnceItIsClosed) {
  Pipe before = dial();
  Pipe speaks = dial_and_speak();
  owner_->reception.close();
  EXPECT_FALSE(Pipe::connect(other_, owner_->reception.address(), kBriefly).has_value());
  EXPECT_EQ(owner_->reception.take_silent().size(), 1U);
  EXPECT_TRUE(owner_->reception.take_silent().empty());
  EXPECT_TRUE(fails_with(speaks.recv_message(kBriefly), ErrorCode::timeout));
}

}  // namespace
}  // namespace tendon::test
