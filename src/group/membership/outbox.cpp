// SPDX-License-Identifier: Apache-2.0
#include "group/membership/outbox.hpp"

#include <utility>

#include "group/membership/messages_window.hpp"

namespace tendon::v0::detail {
namespace {

// Releases its memory: it will not arrive.
void end_unsent(Outbound& outbound, Error why) {
  outbound.failure = std::move(why);
  outbound.done.store(true, std::memory_order_release);
}

}  // namespace

Outbox::Outbox(Link& link)
    : link_(link), window_(messages_window(link.peer_cap_bytes()), link.peer_cap_bytes()) {}

void Outbox::add(std::shared_ptr<Outbound> outbound) {
  const Lock lock(mutex_);
  if (end_error_) return end_unsent(*outbound, *end_error_);
  (outbound->envelope.kind == EnvelopeKind::message ? messages_ : steps_)
      .push_back(std::move(outbound));
  count_.fetch_add(1);
}

// The queue whose head may be begun now.
Outbox::Queue* Outbox::next_queue() {
  if (!steps_.empty()) return &steps_;
  if (messages_.empty()) return nullptr;
  return window_.open_for(kAnyBytes) ? &messages_ : nullptr;
}

bool Outbox::advance() {
  if (!mutex_.try_lock()) return true;  // another thread does it
  const Lock lock(mutex_, kAdoptLock);
  for (;;) {
    if (begun_ == nullptr) {
      auto* const queue = next_queue();
      if (queue == nullptr) break;
      begun_ = std::move(queue->front());
      queue->pop_front();
      if (begun_->envelope.kind == EnvelopeKind::message)
        window_.count(message_cost_bytes(begun_->op.descriptor.payload_bytes));
    }
    const auto sent = link_.send(begun_->op, Deadline::never());
    if (sent && *sent == Sent::later) return true;
    // It is done, or the link has ended: then its owner hears of that by on_link_failed().
    end_begun(sent ? std::nullopt : std::optional(sent.error()));
  }
  return !messages_.empty();
}

// It was sent, or is taken back for this reason unless it is too late.
void Outbox::end_begun(std::optional<Error> failure) {
  const std::shared_ptr<Outbound> ended = std::exchange(begun_, nullptr);
  count_.fetch_sub(1);
  if (failure && link_.withdraw(ended->op)) {
    // The peer will not take it, so it does not count.
    if (ended->envelope.kind == EnvelopeKind::message)
      window_.uncount(message_cost_bytes(ended->op.descriptor.payload_bytes));
    return end_unsent(*ended, *std::move(failure));
  }
  ended->handed_over.store(true, std::memory_order_relaxed);
  ended->done.store(true, std::memory_order_release);
}

bool Outbox::withdraw(Outbound& outbound) {
  const Lock lock(mutex_);
  if (outbound.done.load(std::memory_order_acquire)) return false;
  const auto is_it = [&](const auto& queued) { return queued.get() == &outbound; };
  Error taken_back{ErrorCode::cancelled, "group.channel", "it was taken back"};
  if (begun_ != nullptr && is_it(begun_)) {
    end_begun(std::move(taken_back));
    return !outbound.handed_over;
  }
  count_.fetch_sub(std::erase_if(steps_, is_it) + std::erase_if(messages_, is_it));
  end_unsent(outbound, std::move(taken_back));
  return true;
}

std::size_t Outbox::take_back_held(std::uint64_t group, const Error& why) {
  const Lock lock(mutex_);
  std::uint64_t open = window_.untaken_bytes();
  const std::size_t taken_back = std::erase_if(messages_, [&](const auto& queued) {
    const bool held = open >= window_.window().bytes;
    if (held && queued->envelope.group == group) {
      end_unsent(*queued, why);
      return true;
    }
    open += message_cost_bytes(queued->op.descriptor.payload_bytes);
    return false;
  });
  count_.fetch_sub(taken_back);
  return taken_back;
}

void Outbox::end(const Error& why) {
  const Lock lock(mutex_);
  end_error_ = why;
  // The link will not look at them again: it has ended, or they are taken back.
  if (begun_ != nullptr) end_begun(why);
  for (auto* queue : {&steps_, &messages_}) {
    for (const auto& outbound : *queue) end_unsent(*outbound, why);
    queue->clear();
  }
  count_ = 0;
}

}  // namespace tendon::v0::detail
