// SPDX-License-Identifier: Apache-2.0
#include "pipe/posted_receives.hpp"

#include <algorithm>
#include <string_view>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "channel/staging.hpp"
#include "pipe/async_ops.hpp"
#include "pipe/pipe_receiver.hpp"
#include "pipe/taken_message.hpp"
#include "tensor/destination_check.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kReceive = "pipe.recv_async";
constexpr std::string_view kCancel = "completion.cancel";

bool takes_any(const PostedRecv& posted) {
  return std::holds_alternative<std::shared_ptr<RecvCompletion<Message>>>(posted.completion);
}

bool is_of(const PostedRecv& posted, const CompletionBase* completion) {
  return std::visit(
      [&](const auto& held) {
        return static_cast<const CompletionBase*>(held.get()) == completion;
      },
      posted.completion);
}

}  // namespace

PostedReceives::PostedReceives(PipeReceiver& receiver, PipeEnd& end, Channel& channel)
    : receiver_(receiver), end_(end), context_(*end.context), channel_(channel) {}

PostedReceives::~PostedReceives() = default;

const TensorDict* PostedReceives::next_destination() const {
  channel_.receive_mutex().assert_held();
  return posted_.front()->destination ? &*posted_.front()->destination : nullptr;
}

Result<void> PostedReceives::post(std::shared_ptr<PostedRecv> posted) {
  TENDON_CHECK(context_.usable(kReceive));
  if (posted->destination) TENDON_CHECK(check_destination(*posted->destination));
  TENDON_TRY(on_gpu, wants_gpu(posted->device, kReceive));
  if (on_gpu) {
    TENDON_TRY(sought, SoughtGpu::begin(posted->device->index, end_.teller(end_.delivered)));
    posted->sought = std::move(sought);
  }
  const Lock receiving(channel_.receive_mutex());
  posted_.push_back(std::move(posted));
  count_.store(posted_.size());
  return {};
}

bool PostedReceives::progress() {
  // A cancelled receive may leave an answer of its GPU: nobody sleeps before that is taken.
  while (count_.load(std::memory_order_acquire) != 0 || end_.delivered->load()) {
    Step step;
    Turn turn = Turn::waits;
    {
      const Lock receiving(channel_.receive_mutex());
      end_.delivered->store(false);  // before the look
      if (posted_.empty()) return false;
      step.posted = posted_.front();
      turn = next_turn(step);
      if (turn == Turn::ends) remove(*step.posted);
    }
    if (step.credit.pipe != 0) end_.link->post(step.credit);
    switch (turn) {
      case Turn::waits:
        return true;
      case Turn::departs:
        depart(*step.posted, *std::move(step.taken));
        break;
      case Turn::arrives:
        arrive(*step.posted);
        break;
      case Turn::ends:
        complete(*step.posted, std::move(step.taken), std::move(step.error));
    }
  }
  return false;
}

PostedReceives::Turn PostedReceives::next_turn(Step& step) {
  receiver_.channel_.receive_mutex().assert_held();
  PostedRecv& posted = *step.posted;
  if (posted.is_busy) return Turn::waits;
  if (posted.on_its_way && posted.on_its_way->delivery->answer().is_over()) {
    posted.is_busy = true;
    return Turn::arrives;
  }
  const auto head = posted.on_its_way ? PipeReceiver::Head::nothing : receiver_.look();
  if (context_.unusable()) {
    step.error = context_.usable(kReceive).error();
    if (posted.on_its_way) posted.on_its_way->delivery->stop();
  } else if (head == PipeReceiver::Head::over) {
    step.error = receiver_.over();
  } else if (end_.handle.is_over() && !posted.on_its_way) {
    step.error = Error{ErrorCode::pipe_closed, kReceive, "this end of the pipe was closed"};
  } else if (posted.sought != nullptr && posted.sought->answer().is_over() &&
             !posted.sought->answer().result()) {
    step.error = posted.sought->answer().result().error();
  } else if (head == PipeReceiver::Head::nothing) {
    return Turn::waits;
  } else {
    return take_head(step);
  }
  if (posted.destination) (void)receiver_.keep_claim(*posted.destination);
  return Turn::ends;
}

PostedReceives::Turn PostedReceives::take_head(Step& step) {
  receiver_.channel_.receive_mutex().assert_held();
  using Want = PipeReceiver::Want;
  PostedRecv& posted = *step.posted;
  Want want = takes_any(posted) ? Want::any : Want::tensors;
  if (posted.device) want = posted.sought == nullptr ? Want::on_cpu : Want::on_gpu;
  const TensorDict* const destination = posted.destination ? &*posted.destination : nullptr;
  auto lend = receiver_.check_take(want, posted.mode, destination);
  if (!lend) {
    step.error = std::move(lend).error();
    if (destination != nullptr) (void)receiver_.keep_claim(*destination);
    return Turn::ends;
  }
  if (receiver_.head_is_direct() && posted.mode == RecvMode::view_only) {
    step.error = Error{ErrorCode::no_credit, kReceive,
                       "an asynchronous receive lends no view on a GPU: use recv(), or "
                       "RecvMode::view_or_copy"};
    return Turn::ends;
  }
  if (posted.sought != nullptr && !posted.sought->answer().is_over()) return Turn::waits;
  posted.is_busy =
      want == Want::on_gpu || receiver_.head_is_direct() ||
      (want != Want::on_cpu && destination == nullptr && receiver_.head_placement() != nullptr);
  step.credit = receiver_.take(posted.mode, destination, *lend, step.taken.emplace());
  return posted.is_busy ? Turn::departs : Turn::ends;
}

void PostedReceives::remove(const PostedRecv& posted) {
  std::erase_if(posted_, [&](const auto& each) { return each.get() == &posted; });
  count_.store(posted_.size());
}

// The message on its way

void PostedReceives::depart(PostedRecv& posted, Taken taken) {
  OnItsWay away;
  away.returned.number = taken.number;
  away.returned.placement = taken.placement;
  Delivery::Target target{.gpu = posted.sought == nullptr ? nullptr : posted.sought->gpu(),
                          .placement = posted.sought == nullptr ? taken.placement : nullptr,
                          .pools = context_.memory().devices,
                          .stream = posted.stream};
  away.is_in_peer_slot = taken.put_back == nullptr && !taken.is_direct() &&
                         taken.incoming.body.place == IncomingBody::Place::peer_slot &&
                         (target.placement == nullptr || target.placement->is_all_on_gpu());
  away.returned.message.tag =
      taken.put_back == nullptr ? taken.incoming.descriptor.tag : taken.put_back->message.tag;
  const auto batch_of = [&]() -> Result<TensorDict> {
    if (!taken.is_direct()) return receiver_.to_tensors(taken);
    TENDON_TRY(message, read_direct(taken, *end_.link));
    const bool is_to_host = posted.destination || (posted.device && *posted.device == cpu());
    target.kind = is_to_host ? DeviceCopyKind::d2h : DeviceCopyKind::d2d;
    if (target.gpu == nullptr) target.gpu = message.body->gpu();
    away.returned.untaken = std::make_unique<Taken>(std::move(taken));
    return direct_batch(message, message.body);
  };
  const auto start = [&]() -> Result<void> {
    TENDON_TRY(batch, batch_of());
    away.returned.message.tensors = batch;
    TENDON_TRY(delivery,
               Delivery::begin(std::move(batch), std::move(target), end_.teller(end_.delivered)));
    away.delivery = std::move(delivery);
    return {};
  };
  auto started = start();
  if (!started) {
    if (away.returned.message.tensors) put_back(std::move(away));
    return end_busy(posted, std::nullopt, std::move(started).error());
  }
  std::optional<OnItsWay> cancelled;
  {
    const Lock receiving(channel_.receive_mutex());
    if (posted.is_cancelled) {
      cancelled = std::move(away);
    } else {
      posted.on_its_way = std::move(away);
      posted.is_busy = false;
    }
  }
  if (cancelled) turn_back(posted, *std::move(cancelled));
}

void PostedReceives::turn_back(PostedRecv& posted, OnItsWay away) {
  away.delivery->stop();
  put_back(std::move(away));
  end_busy(posted, std::nullopt,
           Error{ErrorCode::cancelled, kCancel,
                 "the receive was cancelled while its message was on the way to a GPU; the message "
                 "stays in the pipe"});
}

void PostedReceives::arrive(PostedRecv& posted) {
  OnItsWay away = *std::move(posted.on_its_way);
  if (const auto& made = away.delivery->answer().result(); !made) {
    Error why = made.error();
    put_back(std::move(away));
    return end_busy(posted, std::nullopt, std::move(why));
  }
  const TensorDict& batch = *away.returned.message.tensors;
  const DeviceCopyKind kind = away.delivery->kind();
  if (kind != DeviceCopyKind::h2d || lies_on(batch, cpu())) {
    const Placement* const placement =
        posted.sought == nullptr ? away.returned.placement.get() : nullptr;
    receiver_.note_copy(bytes_on_gpu(*batch.schema(), placement), kind);
  }
  Taken there;
  there.number = away.returned.number;
  there.put_back = std::make_unique<PutBack>();
  there.put_back->message.tag = away.returned.message.tag;
  there.put_back->message.tensors = away.delivery->take_batch();
  end_busy(posted, std::move(there), std::nullopt);
}

void PostedReceives::put_back(OnItsWay undelivered) {
  auto& batch = *undelivered.returned.message.tensors;
  if (undelivered.returned.untaken != nullptr) {
    batch = TensorDict();
  } else if (undelivered.is_in_peer_slot) {
    // Without memory for a copy it keeps the slot.
    if (auto own = private_copy(batch)) batch = *std::move(own);
  }
  receiver_.put_back(std::move(undelivered.returned), PipeReceiver::Place::before_equals);
}

// The next one may take a message that was put back before.
void PostedReceives::end_busy(PostedRecv& posted, std::optional<Taken> taken,
                              std::optional<Error> error) {
  {
    const Lock receiving(channel_.receive_mutex());
    remove(posted);
  }
  context_.wake_others();  // the next message belongs to another call
  complete(posted, std::move(taken), std::move(error));
}

void PostedReceives::complete(PostedRecv& posted, std::optional<Taken> taken,
                              std::optional<Error> error, CompletionStatus failed_as) {
  if (auto* message = std::get_if<std::shared_ptr<RecvCompletion<Message>>>(&posted.completion)) {
    if (taken) (*message)->came_from(*taken);
    return (*message)->conclude(error ? Result<Message>(*std::move(error))
                                      : receiver_.to_message(*std::move(taken)));
  }
  auto& tensors = std::get<std::shared_ptr<RecvCompletion<TensorDict>>>(posted.completion);
  const auto result = [&]() -> Result<TensorDict> {
    if (error) return *std::move(error);
    if (!posted.destination) return receiver_.to_tensors(*taken);
    TENDON_CHECK(receiver_.fill(*taken, *posted.destination, Deadline::never()));
    return *std::move(posted.destination);
  };
  auto received = result();
  if (taken) tensors->came_from(*taken);
  tensors->conclude(std::move(received), failed_as);
}

bool PostedReceives::cancel(const CompletionBase* completion) {
  if (context_.forked()) return false;
  std::shared_ptr<PostedRecv> found;
  std::optional<OnItsWay> away;
  bool in_use = false;
  {
    const Lock receiving(channel_.receive_mutex());
    receiver_.channel_.receive_mutex().assert_held();
    const auto at = std::ranges::find_if(
        posted_, [&](const auto& posted) { return is_of(*posted, completion); });
    if (at == posted_.end()) return false;
    found = *at;
    found->is_cancelled = true;
    if (found->is_busy) return false;  // the thread that has it sees that
    if (found->on_its_way) {
      if (found->on_its_way->delivery->answer().is_over()) return false;  // it is done
      away = std::exchange(found->on_its_way, std::nullopt);
      found->is_busy = true;
    } else {
      if (found->destination) in_use = receiver_.keep_claim(*found->destination);
      remove(*found);
    }
  }
  if (away) {
    turn_back(*found, *std::move(away));
    (void)progress();  // the next receive may take it
    return true;
  }
  complete(*found, std::nullopt,
           Error{ErrorCode::cancelled, kCancel,
                 in_use ? "the receive was cancelled while a message was being written to its "
                          "destination: that memory is in use until the message is complete"
                        : "the receive was cancelled before a message came"},
           in_use ? CompletionStatus::failed_owning : CompletionStatus::failed);
  return true;
}

}  // namespace tendon::v0::detail
