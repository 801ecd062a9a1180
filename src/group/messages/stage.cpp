// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <deque>
#include <optional>
#include <tendon/group/stage.hpp>
#include <utility>
#include <vector>

#include "group/messages/point_to_point.hpp"
#include "group/messages/stage_receive.hpp"
#include "group/messages/stage_words.hpp"
#include "runtime/awaited.hpp"
#include "runtime/context_clients.hpp"

namespace tendon::v0 {
namespace detail {
namespace {

/// A send_to_stage() under way: its messages, in order.
class StageSend final : public Awaited<void>, public Work {
 public:
  StageSend(std::shared_ptr<GroupCore> stages, GroupRank peer)
      : Awaited(*stages->context()), stages_(std::move(stages)), peer_(peer) {}

  /// Adds a part; only before another thread knows of it.
  void add(const Tensor& tensor, std::uint32_t tag) {
    const Lock lock(mutex_);
    parts_.push_back(send_async(stages_, tensor, To{peer_, tag}));
  }
  void start() {
    if (progress())
      stages_->context()->add_work(std::static_pointer_cast<StageSend>(shared_from_this()));
  }
  void drive(Deadline deadline) override {
    const MessageWaits::Here here(stages_->waits(), "send_to_stage", peer_);
    (void)stages_->context()->wait(nullptr, deadline, [this] { return !progress(); });
  }
  void cancel() override {
    stop({ErrorCode::cancelled, "completion.cancel", "the send was cancelled"});
  }
  void expire() override {
    stop({ErrorCode::timeout, "group.send_to_stage",
          stage_peer_text(*stages_, peer_) + " has not taken what was sent"});
  }
  void abandon() override {}
  bool progress() override {
    if (!mutex_.try_lock()) return !finished();
    const Lock lock(mutex_, kAdoptLock);
    while (!parts_.empty() && parts_.front().done()) {
      auto sent = parts_.front().wait(Deadline::now());
      parts_.pop_front();
      if (sent || failure_) continue;
      failure_ = std::move(sent).error();
      take_back();
    }
    if (!parts_.empty()) return true;
    if (finished()) return false;
    conclude(failure_ ? Result<void>(*failure_) : Result<void>());
    return false;
  }
  [[nodiscard]] bool has_input() const noexcept override {
    // The thread that has it may have looked before something arrived.
    if (!mutex_.try_lock()) return true;
    const Lock lock(mutex_, kAdoptLock);
    return !parts_.empty() && parts_.front().done();
  }

 private:
  // Takes back the last ones first: no part is behind one that was taken back.
  void take_back() TENDON_REQUIRES(mutex_) {
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->cancel();
  }
  void stop(Error error) {
    {
      const Lock lock(mutex_);
      if (finished() || failure_) return;
      failure_ = std::move(error);
      take_back();
    }
    (void)progress();
    stages_->context()->wake_for_work();
  }

  const std::shared_ptr<GroupCore> stages_;
  const GroupRank peer_;
  mutable Mutex mutex_;
  std::deque<Completion<void>> parts_ TENDON_GUARDED_BY(mutex_);
  std::optional<Error> failure_ TENDON_GUARDED_BY(mutex_);
};

/// The messages of one send: a header, then the whole tensor or this member's chunks.
struct StageMessages {
  Tensor header;
  std::uint32_t tag = 0;
  std::vector<Tensor> body;
};

Result<StageMessages> messages_of(const GroupCore& stages, const GroupCore& tensor_group,
                                  const Tensor& tensor, GroupRank peer) {
  static std::atomic<std::int64_t> sends{0};
  TENDON_CHECK(stages.check_process("group.send_to_stage"));
  TENDON_TRY(packed, tensor.contiguous());
  // Within one host there is no link between the stages to spare: passing shares on would move the
  // same bytes in more steps. A member that shares memory with all of its stage and with its
  // counterpart sends all. If the counterpart shares memory with all of its own stage, every member
  // there receives all.
  const auto there = stages.epoch();
  const auto own = tensor_group.epoch();
  const bool whole =
      on_one_host(*own) && peer.value < there->size() && by_shared_memory(*there, peer);
  StageHeader header = StageHeader::of(tensor);
  header.whole = whole ? 1 : 0;
  header.number = sends.fetch_add(1);
  StageMessages messages{header.packed(), stage_tag(header.number), {}};
  if (whole) {
    if (packed.size_bytes() != 0) messages.body.push_back(std::move(packed));
    return messages;
  }
  const std::uint64_t chunks = stage_chunk_count(own->size(), packed.size_bytes());
  for (std::uint64_t k = 0; k < chunks; ++k) {
    TENDON_TRY(chunk, stage_chunk(packed, own->self.value, own->size(), k));
    if (chunk.size_bytes() == 0) break;
    messages.body.push_back(std::move(chunk));
  }
  return messages;
}

// Checks this member's own arguments: nobody else has to hear of a fault.
Result<void> check_receive(const GroupCore& stages, const Tensor& tensor, GroupRank peer) {
  if (tensor.access() == Access::read_only) {
    return Error{ErrorCode::read_only, "group.recv_from_stage",
                 "the tensor to be received into may only be read"};
  }
  TENDON_CHECK(stages.check_process("group.recv_from_stage"));
  const auto epoch = stages.epoch();
  if (peer.value < epoch->size() && peer != epoch->self) return {};
  return Error{
      ErrorCode::invalid_argument, "group.recv_from_stage",
      stage_peer_text(stages, peer) +
          (peer == epoch->self ? " is this member itself"
                               : ", which has " + std::to_string(epoch->size()) + " members")};
}

}  // namespace
}  // namespace detail

using detail::GroupCore;

Result<void> send_to_stage(Group& stages, const Group& tensor_group, const Tensor& tensor,
                           GroupRank peer, Deadline deadline) {
  const auto& core = GroupCore::of(stages);
  TENDON_TRY(messages, detail::messages_of(*core, *GroupCore::of(tensor_group), tensor, peer));
  TENDON_CHECK(detail::send(*core, messages.header, To{peer, detail::kStageTag}, deadline));
  if (messages.body.size() == 1)
    return detail::send(*core, messages.body.front(), To{peer, messages.tag}, deadline);
  const auto send = std::make_shared<detail::StageSend>(core, peer);
  for (const Tensor& part : messages.body) send->add(part, messages.tag);
  send->start();
  return detail::wait_for_stage(Completion<void>(send), deadline);
}

Completion<void> send_to_stage_async(Group& stages, const Group& tensor_group, const Tensor& tensor,
                                     GroupRank peer) {
  const auto& core = GroupCore::of(stages);
  auto send = std::make_shared<detail::StageSend>(core, peer);
  auto messages = detail::messages_of(*core, *GroupCore::of(tensor_group), tensor, peer);
  if (messages) {
    send->add(messages->header, detail::kStageTag);
    for (const Tensor& part : messages->body) send->add(part, messages->tag);
    send->start();
  } else {
    (void)send->finish(std::move(messages).error());
  }
  return Completion<void>(std::move(send));
}

Result<void> recv_from_stage(Group& stages, Group& tensor_group, const Tensor& tensor,
                             GroupRank peer, Deadline deadline) {
  const auto& core = GroupCore::of(stages);
  TENDON_CHECK(detail::check_receive(*core, tensor, peer));
  return std::make_shared<detail::StageReceive>(core, GroupCore::of(tensor_group), tensor, peer)
      ->run(deadline);
}

Completion<void> recv_from_stage_async(Group& stages, Group& tensor_group, const Tensor& tensor,
                                       GroupRank peer) {
  const auto& core = GroupCore::of(stages);
  auto receive =
      std::make_shared<detail::StageReceive>(core, GroupCore::of(tensor_group), tensor, peer);
  if (auto right = detail::check_receive(*core, tensor, peer); right)
    receive->start();
  else
    (void)receive->finish(std::move(right).error());
  return Completion<void>(std::move(receive));
}

}  // namespace tendon::v0
