// SPDX-License-Identifier: Apache-2.0
#include "control/relay/tensor_relay.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {
namespace {

const Error kOver{ErrorCode::end_of_stream, kRelay, "this worker has left the roster"};

Error unexpected(std::string_view what) {
  return {ErrorCode::protocol_violation, kRelay, std::string(what)};
}

}  // namespace

// --- The first worker

std::optional<Error> TensorRelay::let_in(const std::shared_ptr<WorkerPipe>& pipe,
                                         const v1::Word& word) {
  if (!reception_.leave(pipe)) return unexpected("a follower has nothing more to say");
  if (word.word_case() != v1::Word::kRelayJoin || !is_of(word, place_.roster))
    return Error{ErrorCode::permission_denied, kRelay, "that is no worker of this roster"};
  if (expected_.erase(GlobalRank{word.relay_join().rank()}) == 0) {
    return Error{ErrorCode::permission_denied, kRelay,
                 "rank " + std::to_string(word.relay_join().rank()) +
                     " is no follower of this worker, or has come before"};
  }
  v1::Word welcome = word_of(place_.roster);
  welcome.mutable_relay_welcome();
  pipe->send(welcome);
  followers_.push_back(pipe);
  return std::nullopt;
}

void TensorRelay::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  std::optional<Error> refused;
  {
    const Lock lock(mutex_);
    refused = let_in(pipe, word);
    if (refused) std::erase(followers_, pipe);
  }
  if (refused) pipe->cancel(*refused);
}

void TensorRelay::on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) {
  (void)tensors;
  pipe->cancel(unexpected("a follower sends no tensors"));
}

void TensorRelay::on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) {
  (void)why;
  (void)reception_.leave(pipe);
  const Lock lock(mutex_);
  std::erase(followers_, pipe);
}

void TensorRelay::pass_on(std::uint64_t schedule_id, const TensorDict& tensors) {
  const Lock lock(mutex_);  // a follower that arrives meanwhile gets the next step
  if (followers_.empty()) return;
  v1::Word announced = word_of(place_.roster);
  announced.mutable_step_tensors()->set_schedule_id(schedule_id);
  const auto kept = followers_.front()->keep(tensors);
  for (const auto& follower : followers_) {
    if (kept.has_value())
      follower->send(announced, *kept);
    else
      follower->cancel(kept.error());
  }
}

void TensorRelay::end() {
  reception_.close();
  std::vector<std::shared_ptr<WorkerPipe>> pipes;
  {
    const Lock lock(mutex_);
    pipes = std::exchange(followers_, {});
    expected_.clear();
  }
  for (const auto& pipe : pipes) pipe->end_when_sent(kOver);
  for (const auto& pipe : reception_.take_silent()) pipe->end_when_sent(kOver);
}

// --- A follower

Result<void> RelayedTensors::follow(Pipe pipe, Deadline deadline) {
  const auto joins = std::make_shared<WorkerPipe>(std::move(pipe), weak_from_this());
  v1::Word join = word_of(place_.roster);
  join.mutable_relay_join()->set_rank(place_.rank.value);
  {
    const Lock lock(mutex_);
    pipe_ = joins;
  }
  joins->start();
  joins->send(join);
  Error why;
  {
    const Lock lock(mutex_);
    while (state_ == State::joining && !deadline.has_passed())
      (void)changed_.wait_until(mutex_, deadline);
    if (state_ == State::following) return {};
    why = state_ == State::ended
              ? why_
              : Error{ErrorCode::timeout, kRelay, "nobody replied on the pipe for tensors"};
    state_ = State::ended;
  }
  joins->cancel(why);
  return why;
}

void RelayedTensors::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  {
    const Lock lock(mutex_);
    const bool mine = is_of(word, place_.roster);
    if (mine && state_ == State::joining && word.has_relay_welcome()) {
      state_ = State::following;
      changed_.notify_all();
      return;
    }
    if (mine && state_ == State::following && word.has_step_tensors()) {
      next_id_ = word.step_tensors().schedule_id();
      return;
    }
  }
  pipe->cancel(unexpected("a word that is not for a pipe of tensors"));
}

void RelayedTensors::on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) {
  std::uint64_t schedule_id = 0;
  {
    const Lock lock(mutex_);
    if (state_ == State::following) schedule_id = std::exchange(next_id_, 0);
  }
  if (schedule_id == 0) return pipe->cancel(unexpected("tensors that were not announced"));
  calls_.came(schedule_id, std::move(tensors));
}

void RelayedTensors::on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) {
  (void)pipe;
  bool was_following = false;
  {
    const Lock lock(mutex_);
    was_following = state_ == State::following;
    if (state_ != State::ended) why_ = why;
    state_ = State::ended;
    changed_.notify_all();
  }
  if (was_following) calls_.ended();
}

std::optional<Error> RelayedTensors::why_ended() const {
  const Lock lock(mutex_);
  return state_ == State::ended ? std::optional(why_) : std::nullopt;
}

void RelayedTensors::end() {
  std::shared_ptr<WorkerPipe> pipe;
  {
    const Lock lock(mutex_);
    state_ = State::ended;
    pipe = pipe_;
    changed_.notify_all();
  }
  if (pipe != nullptr) pipe->end_when_sent(kOver);
}

}  // namespace tendon::v0::detail
