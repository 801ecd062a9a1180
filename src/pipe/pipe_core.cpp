// SPDX-License-Identifier: Apache-2.0
#include "pipe/pipe_core.hpp"

#include <tendon/session/limits.hpp>

#include "channel/open.hpp"
#include "core/text.hpp"
#include "pipe/async_ops.hpp"
#include "runtime/connect.hpp"
#include "session/features.hpp"

namespace tendon::v0::detail {
namespace {

// The slots of a link in shared memory bound the bytes themselves.
PipeWindows windows_on(const Link& link, PipeWindows windows) {
  if (!link.traits().slots_bound_window) return windows;
  return {windows.send.without_bytes(), windows.receive.without_bytes()};
}

}  // namespace

PipeCore::PipeCore(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link,
                   std::uint32_t id, const PipeWindows& windows)
    : end_(std::move(context), std::move(link), id),
      sender_(end_, windows_on(*end_.link, windows).send, [this] { send_on(); }),
      channel_(end_.link,
               {.pipe = id,
                .window = windows_on(*end_.link, windows).receive,
                .sending = &sender_.window(),
                .takes_gpus = true,
                .where = "pipe",
                .noun = "the pipe"},
               *this),
      receiver_(end_, channel_) {}

PipeCore::~PipeCore() = default;

Result<std::shared_ptr<PipeCore>> PipeCore::connect(std::shared_ptr<ContextCore> context,
                                                    std::string_view address,
                                                    const ConnectOptions& options,
                                                    Deadline deadline) {
  TENDON_TRY(connected, detail::connect(*context, address, options, deadline));
  std::optional<Window> window;
  if (connected.link->features().has(Feature::window_in_open))
    window = Window::said(kPipeWindowMessages, kPipeWindowBytes);
  std::shared_ptr<PipeCore> core;
  const Opening opening = opening_of(connected.ticket, window);
  TENDON_CHECK(context->open_pipe(*connected.link, opening, [&](std::uint32_t id) {
    core = std::make_shared<PipeCore>(
        context, connected.link, id, PipeWindows{.send = {}, .receive = window.value_or(Window{})});
    return core->sink();
  }));
  return core;
}

// Events of the channel

// The peer closed both directions: nobody will take later messages.
void PipeCore::on_end_said(const Descriptor& end) {
  if (end.tag == 0) return;
  end_.sending.close(end_.by_peer(ErrorCode::pipe_closed, "closed its end of the pipe"));
}

void PipeCore::on_peer_gone(Channel::State how, const Error& why) {
  if (how == Channel::State::cancelled) receiver_.drop_inbox();
  if (how == Channel::State::lost) receiver_.on_link_ended();
  // A goodbye: everything was delivered, and nobody is left to send to.
  if (how == Channel::State::lost && why.code == ErrorCode::end_of_stream)
    return end_.sending.close(end_.by_peer(ErrorCode::pipe_closed, "closed its context"));
  end_.sending.end(why);
}

// Life

// The credits tell a peer that flushes whether its last messages were taken.
void PipeCore::post_end() {
  receiver_.credit_all();
  sender_.post_end(PipeSender::End::of_both);
}

void PipeCore::detach() {
  const Lock receiving(channel_.receive_mutex());
  channel_.detach(Error{ErrorCode::pipe_closed, "pipe", "this end of the pipe was closed"});
  receiver_.drop_all();
}

Result<void> PipeCore::close(Deadline deadline) {
  TENDON_CHECK(end_.context->usable("pipe.close"));
  if (end_.handle.is(HandleState::State::closed)) return {};
  auto flushed = sender_.flush(deadline);
  if (!flushed && flushed.error().code == ErrorCode::timeout)
    return flushed;  // the caller may try again, or cancel()
  (void)end_.handle.close();
  post_end();
  detach();
  (void)progress();  // fails receives that were still posted
  // A peer that closed first, and a pipe with nothing left to send, are no failure of closing.
  const bool orderly = flushed || flushed.error().code == ErrorCode::pipe_closed ||
                       flushed.error().code == ErrorCode::cancelled ||
                       flushed.error().code == ErrorCode::end_of_stream;
  return orderly ? Result<void>() : std::move(flushed);
}

void PipeCore::cancel() { end_now({.kind = MessageKind::cancel, .pipe = end_.id}, {}); }

void PipeCore::cancel(const Error& reason) {
  const std::string text = escaped(reason.detail, kMaxReasonBytes);
  end_now(error_descriptor(end_.id, reason.code, text), as_bytes(text));
}

void PipeCore::end_now(const Descriptor& said, Bytes text) {
  if (end_.context->unusable() || !end_.handle.close()) return;
  end_.link->post(said, text);
  const Error why{ErrorCode::cancelled, "pipe.cancel", "this pipe was cancelled here"};
  {
    const Lock receiving(channel_.receive_mutex());
    channel_.stop(why);
  }
  end_.sending.end(why);
  detach();
  (void)progress();
  end_.context->wake_others();
}

void PipeCore::release() {
  if (end_.handle.release() && !end_.context->unusable()) work_on();
}

void PipeCore::abandon() {
  if (end_.context->unusable()) return;
  if (end_.handle.drop()) work_on();
}

// The Context continues queued sends, and says the end when they have left: progress().
void PipeCore::work_on() {
  if (working_.exchange(true)) return;
  if (progress()) end_.context->add_work(shared_from_this());
}

bool PipeCore::progress() {
  const bool sends_left = sender_.progress();
  const bool receives_left = receiver_.posted().progress();
  const bool abandoned = end_.handle.is(HandleState::State::abandoned);
  if (sends_left || (receives_left && !abandoned)) return true;
  if (abandoned && end_.handle.close()) {
    if (!end_.context->unusable()) {
      post_end();
      detach();
    }
    (void)receiver_.posted().progress();  // fails receives that are still posted
  }
  working_ = false;
  // Another thread may have queued something since the check above.
  const bool more = sender_.is_at_work() || receiver_.posted().count() != 0;
  return more && !working_.exchange(true);
}

// Asynchronous operations

// Sends the queued messages that can leave; the Context does the rest.
void PipeCore::send_on() {
  if (sender_.progress() && !working_.exchange(true)) end_.context->add_work(shared_from_this());
}

Completion<void> PipeCore::enqueue(std::shared_ptr<QueuedSend> queued, Result<void> prepared) {
  auto completion = queued->completion = std::make_shared<SendCompletion>(shared_from_this());
  const std::shared_ptr<DeviceFill> fill = queued->out.fill;
  if (prepared) prepared = sender_.queue(std::move(queued));
  if (prepared)
    send_on();
  else
    (void)completion->finish(std::move(prepared));
  if (fill != nullptr) fill->leave();
  return Completion<void>(std::move(completion));
}

Completion<void> PipeCore::send_async(TensorDict batch, const SendOptions& options) {
  auto queued = std::make_shared<QueuedSend>();
  auto prepared = sender_.prepare(*queued, std::move(batch), options);
  return enqueue(std::move(queued), std::move(prepared));
}

Completion<void> PipeCore::send_async(Loan&& loan, const SendOptions& options) {
  auto queued = std::make_shared<QueuedSend>();
  auto prepared = sender_.prepare(*queued, std::move(loan), options);
  return enqueue(std::move(queued), std::move(prepared));
}

Completion<void> PipeCore::send_async(std::shared_ptr<const KeptBody> kept) {
  auto queued = std::make_shared<QueuedSend>();
  auto prepared = sender_.prepare(*queued, std::move(kept));
  return enqueue(std::move(queued), std::move(prepared));
}

Completion<void> PipeCore::send_async(Storage bytes, const MessageOptions& options) {
  auto queued = std::make_shared<QueuedSend>();
  auto prepared = sender_.prepare(*queued, std::move(bytes), options);
  return enqueue(std::move(queued), std::move(prepared));
}

template <class T>
Completion<T> PipeCore::post_recv(std::shared_ptr<RecvCompletion<T>> completion,
                                  std::shared_ptr<PostedRecv> posted) {
  posted->completion = completion;
  if (auto legal = receiver_.posted().post(std::move(posted)); !legal) {
    (void)completion->finish(std::move(legal).error());
    return Completion<T>(std::move(completion));
  }
  if (receiver_.posted().progress() && !working_.exchange(true))
    end_.context->add_work(shared_from_this());
  return Completion<T>(std::move(completion));
}

Completion<TensorDict> PipeCore::recv_async(const RecvOptions& options) {
  auto posted = std::make_shared<PostedRecv>();
  const bool wants_view = options.device_mode == RecvMode::view_only;
  posted->mode = wants_view ? RecvMode::view_only : options.mode;
  posted->device = options.device;
  posted->stream = static_cast<cuda::StreamHandle>(options.stream);
  return post_recv(std::make_shared<RecvCompletion<TensorDict>>(shared_from_this()),
                   std::move(posted));
}
Completion<Message> PipeCore::recv_message_async() {
  return post_recv(std::make_shared<RecvCompletion<Message>>(shared_from_this()),
                   std::make_shared<PostedRecv>());
}
Completion<TensorDict> PipeCore::recv_into_async(TensorDict destination) {
  auto posted = std::make_shared<PostedRecv>();
  posted->destination = std::move(destination);
  posted->mode = RecvMode::copy;
  return post_recv<TensorDict>(std::make_shared<IntoCompletion>(shared_from_this()),
                               std::move(posted));
}

void PipeCore::drive(CompletionBase& completion, Deadline deadline) {
  end_.context->wait(end_.link.get(), deadline, [&] {
    if (!end_.context->unusable()) end_.context->poll_link(*end_.link);
    (void)sender_.progress();
    (void)receiver_.posted().progress();
    return completion.finished() || end_.context->unusable();
  });
}

PipeStats PipeCore::stats() const {
  if (end_.context->forked()) return {};
  PipeStats stats = receiver_.stats();
  sender_.add_to(stats);
  stats.waits = end_.waits.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace tendon::v0::detail
