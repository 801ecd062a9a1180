// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/failpoint.hpp"
#include "group/epochs/operation.hpp"
#include "group/membership/mesh.hpp"
#include "group/operands/collective.hpp"
#include "group/reduce/reduce.hpp"

namespace tendon::v0::detail {
namespace {

// The shift of the history in the sequence of an envelope, above the number of the call.
constexpr unsigned kHistoryShift = 56;

/// A send that may not have left yet, and the memory it names.
struct Pending {
  std::shared_ptr<Outbound> outbound;
  std::shared_ptr<MemberChannel> channel;

  [[nodiscard]] bool sent() const {
    return outbound->done.load(std::memory_order_acquire) && outbound->handed_over.load();
  }
  /// The link would not take it, and lives. The loss of a peer ends what it did not get.
  [[nodiscard]] bool refused() const {
    return outbound->done.load(std::memory_order_acquire) && outbound->failure &&
           !channel->lost() && !channel->link().ended();
  }
  [[nodiscard]] bool overlaps(const std::byte* begin, std::uint64_t size_bytes) const {
    return std::any_of(outbound->parts.begin(), outbound->parts.end(), [&](const BodyPart& part) {
      return part.bytes.data() < begin + size_bytes &&
             begin < part.bytes.data() + part.bytes.size();
    });
  }
};

// Scripts number members by their ranks in the epoch.
GroupRank peer_of(const Step& step) { return {step.peer}; }

class ScriptOperation final : public Operation {
 public:
  ScriptOperation(const Fingerprint& fingerprint, std::uint64_t sequence, Mesh& mesh,
                  std::uint64_t group, std::vector<ScriptJob> jobs, std::function<void()> finish)
      : Operation(fingerprint, sequence),
        mesh_(mesh),
        group_(group),
        jobs_(std::move(jobs)),
        finish_(std::move(finish)) {}

  Result<bool> advance(Epoch& epoch) override {
    for (; job_ < jobs_.size(); ++job_, step_ = 0) {
      ScriptJob& job = jobs_[job_];
      if (job.script.scratch_bytes > scratch_.size_bytes()) {
        // The scratch of the earlier job, which may still be sent.
        if (!all_sent()) return unless_refused();
        TENDON_TRY(memory, Storage::allocate(job.script.scratch_bytes));
        scratch_ = std::move(memory);
      }
      for (; step_ < job.script.steps.size(); ++step_) {
        TENDON_TRY(done, perform(epoch, job, job.script.steps[step_]));
        if (!done) return unless_refused();
        ++steps_;
      }
    }
    if (!all_sent()) return unless_refused();
    if (finish_) std::exchange(finish_, {})();
    return true;
  }

  bool has_input(Epoch& epoch) override {
    for (const Pending& pending : pending_)
      if (pending.sent() || pending.refused()) return true;
    const Step* const step = awaited();
    if (step == nullptr || held_) return false;
    const Lock lock(epoch.inbox_mutex);
    return !epoch.inbox[peer_of(*step)].empty();
  }

  std::uint64_t steps_done() const noexcept override { return steps_; }

  std::vector<GroupRank> waits_for(Epoch& epoch) override {
    std::vector<GroupRank> members;
    if (const Step* const step = awaited(); step != nullptr && !held_) {
      members.push_back(peer_of(*step));
      if (fingerprint().op != CollectiveOp::monitored_barrier) return members;
      const Lock lock(epoch.inbox_mutex);
      const auto& steps = jobs_[job_].script.steps;
      for (std::size_t i = step_ + 1; i < steps.size(); ++i)
        if (epoch.inbox[peer_of(steps[i])].empty()) members.push_back(peer_of(steps[i]));
      return members;
    }
    for (const Pending& pending : pending_)
      if (const auto rank = epoch.channels.find(pending.channel)) members.push_back(*rank);
    return members;
  }

  void give_up(Epoch&) override {
    for (const Pending& pending : pending_) (void)pending.channel->withdraw(*pending.outbound);
    pending_.clear();
  }

 private:
  // The step that waits for a message, if that is the next one.
  const Step* awaited() const {
    if (job_ == jobs_.size() || step_ == jobs_[job_].script.steps.size()) return nullptr;
    if (jobs_[job_].script.scratch_bytes > scratch_.size_bytes()) return nullptr;
    const Step& step = jobs_[job_].script.steps[step_];
    const bool takes = step.kind == Step::Kind::receive || step.kind == Step::Kind::reduce;
    return takes ? &step : nullptr;
  }

  // Calls f(data, offset in the stretch, bytes) for each stretch of memory of [at, at + size).
  template <class F>
  void visit(const ScriptJob& job, const Location& at, std::uint64_t size_bytes, F f) const {
    if (at.buffer == Buffer::scratch)
      return f(scratch_.data() + at.offset, std::uint64_t{0}, size_bytes);
    std::uint64_t begin = 0;  // of the block
    const std::uint64_t end = at.offset + size_bytes;
    for (const Flat& block : at.buffer == Buffer::input ? job.input : job.output) {
      const std::uint64_t from = std::max(at.offset, begin);
      const std::uint64_t to = std::min(end, begin + block.size_bytes());
      if (from < to) {
        block.visit(from - begin, to - from,
                    [&](std::byte* data, std::uint64_t offset, std::uint64_t bytes, DType) {
                      f(data, from - at.offset + offset, bytes);
                    });
      }
      begin += block.size_bytes();
    }
  }
  // Where members' blocks may differ, each piece names its block. A piece lies in one block.
  bool tells_layout() const { return collective(fingerprint().op).sizes_differ; }
  struct Piece {
    std::uint64_t block_bytes = 0;
    std::uint32_t layout = 0;
  };
  Piece piece(const ScriptJob& job, const Location& at, std::uint64_t size_bytes) const {
    if (size_bytes == 0) return {};  // instead of an empty block
    std::uint64_t begin = 0;
    for (const Flat& block : at.buffer == Buffer::input ? job.input : job.output) {
      if (at.offset < begin + block.size_bytes())
        return {block.size_bytes(), block.layout(at.offset - begin, size_bytes)};
      begin += block.size_bytes();
    }
    return {};
  }
  // The address of a location in memory without gaps.
  std::byte* address(const ScriptJob& job, const Location& at) const {
    std::byte* found = nullptr;
    visit(job, at, 1, [&](std::byte* data, auto, auto) { found = data; });
    return found;
  }

  Result<bool> perform(Epoch& epoch, const ScriptJob& job, const Step& step) {
    if (step.kind == Step::Kind::send) {
      (void)TENDON_FAILPOINT("group.script.before_send");
      queue(epoch, job, step);
      return true;
    }
    if (step.kind != Step::Kind::copy && !held_) {
      TENDON_TRY(taken, take(epoch, job, step));
      if (!taken) return false;
    }
    bool free = true;
    visit(job, step.to, step.size_bytes, [&](std::byte* data, auto, std::uint64_t bytes) {
      free = free && may_write(data, bytes);
    });
    if (!free) return false;
    switch (step.kind) {
      case Step::Kind::receive:
        visit(job, step.to, step.size_bytes, [&](std::byte* data, auto at, auto bytes) {
          std::memcpy(data, held_->payload().data() + at, bytes);
        });
        break;
      case Step::Kind::reduce: {
        const std::byte* const mine = address(job, step.from);
        const std::byte* const theirs = held_->payload().data();
        const std::array inputs =
            step.message == Operand::left ? std::array{theirs, mine} : std::array{mine, theirs};
        reduce(job.op, job.dtype, {address(job, step.to), step.size_bytes}, inputs);
        break;
      }
      case Step::Kind::copy:
        visit(job, step.from, step.size_bytes, [&](std::byte* data, auto at, auto bytes) {
          visit(job, {step.to.buffer, step.to.offset + at}, bytes,
                [&](std::byte* there, auto offset, auto size) {
                  if (there != data + offset) std::memmove(there, data + offset, size);
                });
        });
        break;
      case Step::Kind::send:
        break;
    }
    held_.reset();
    (void)TENDON_FAILPOINT("group.script.after_receive");
    return true;
  }

  Result<bool> take(Epoch& epoch, const ScriptJob& job, const Step& step) {
    {
      const Lock lock(epoch.inbox_mutex);
      auto& inbox = epoch.inbox[peer_of(step)];
      if (inbox.empty()) return false;
      held_ = std::move(inbox.front());
      inbox.pop_front();
    }
    held_->held.let_go();  // a script relies on it that a taken message is out of the way
    Fingerprint theirs = fingerprint_of(held_->envelope);
    Piece there{held_->size_bytes};
    Piece here{step.size_bytes};
    if (tells_layout() && theirs.op == fingerprint().op) {
      there = {std::exchange(theirs.size_bytes, 0), std::exchange(theirs.shape_hash, 0)};
      here = piece(job, step.to, step.size_bytes);
    }
    if (theirs != fingerprint()) return mismatch(epoch, peer_of(step), theirs);
    const bool same_size =
        here.block_bytes == there.block_bytes && held_->size_bytes == step.size_bytes;
    if (same_size && there.layout == here.layout) return true;
    note_difference(peer_of(step));
    return Error{ErrorCode::mismatch, "group.collective",
                 epoch.names[peer_of(step)] + " gives " + std::to_string(there.block_bytes) +
                     " bytes in a step of " + to_string(fingerprint()) + ", " +
                     epoch.names[epoch.self] + " expects " + std::to_string(here.block_bytes) +
                     (same_size ? ", of other dtypes or in tensors of other sizes" : "")};
  }

  void queue(Epoch& epoch, const ScriptJob& job, const Step& step) {
    auto outbound = std::make_shared<Outbound>();
    const Fingerprint& mine = fingerprint();
    Piece piece{mine.size_bytes, mine.shape_hash};
    if (tells_layout()) piece = this->piece(job, step.from, step.size_bytes);
    outbound->envelope = {.kind = EnvelopeKind::collective,
                          .op = static_cast<std::uint8_t>(mine.op),
                          .dtype = mine.dtype,
                          .reduce = mine.reduce,
                          .from = epoch.places[epoch.self],
                          .group = group_,
                          .epoch = epoch.number(),
                          .sequence = mine.sequence | std::uint64_t{mine.history} << kHistoryShift,
                          .count = piece.block_bytes,
                          .extra = mine.root,
                          .tag = piece.layout};
    std::uint64_t end = 0;
    visit(job, step.from, step.size_bytes, [&](std::byte* data, auto at, auto bytes) {
      if (bytes == 0) return;
      outbound->parts.push_back({at, Bytes(data, bytes), nullptr, bytes});
      end = at + bytes;
    });
    // The cut lies between two tensors: a message is as long as its step all the same.
    static constexpr std::array<std::byte, 64> kGap{};
    for (; end < step.size_bytes; end += outbound->parts.back().size_bytes) {
      const std::uint64_t bytes = std::min<std::uint64_t>(kGap.size(), step.size_bytes - end);
      outbound->parts.push_back({end, Bytes(kGap.data(), bytes), nullptr, bytes});
    }
    const auto& channel = epoch.channels[peer_of(step)];
    channel->queue(outbound);
    const Pending pending{std::move(outbound), channel};
    if (pending.sent()) return;
    pending_.push_back(pending);
    mesh_.keep_sending();
  }

  // True if no send reads there any more.
  bool may_write(const std::byte* data, std::uint64_t size_bytes) {
    for (std::size_t i = 0; i < pending_.size();) {
      if (!pending_[i].outbound->done.load(std::memory_order_acquire))
        pending_[i].channel->advance();
      if (pending_[i].sent()) {
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (pending_[i].overlaps(data, size_bytes)) return false;
      ++i;
    }
    return true;
  }
  // Not done: for good, when a message was refused.
  Result<bool> unless_refused() const {
    for (const Pending& pending : pending_)
      if (pending.refused()) return *pending.outbound->failure;
    return false;
  }
  bool all_sent() {
    (void)may_write(nullptr, 0);
    return pending_.empty();
  }

  Mesh& mesh_;
  const std::uint64_t group_;
  std::vector<ScriptJob> jobs_;
  std::function<void()> finish_;
  std::size_t job_ = 0;
  std::size_t step_ = 0;
  std::uint64_t steps_ = 0;
  std::optional<InboundMessage> held_;  // the message of the step
  std::vector<Pending> pending_;
  Storage scratch_;
};

}  // namespace

std::shared_ptr<Operation> make_script_operation(const Fingerprint& fingerprint,
                                                 std::uint64_t sequence, Mesh& mesh,
                                                 std::uint64_t group, std::vector<ScriptJob> jobs,
                                                 std::function<void()> finish) {
  return std::make_shared<ScriptOperation>(fingerprint, sequence, mesh, group, std::move(jobs),
                                           std::move(finish));
}

Fingerprint fingerprint_of(const Envelope& envelope) {
  return {.op = static_cast<CollectiveOp>(envelope.op),
          .dtype = envelope.dtype,
          .reduce = envelope.reduce,
          .history = static_cast<std::uint8_t>(envelope.sequence >> kHistoryShift),
          .root = envelope.extra,
          .size_bytes = envelope.count,
          .shape_hash = envelope.tag,
          .sequence = operation_number(envelope)};
}

}  // namespace tendon::v0::detail
