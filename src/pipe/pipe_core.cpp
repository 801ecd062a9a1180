// SPDX-License-Identifier: Apache-2.0
#include "pipe/pipe_core.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "pipe/async_ops.hpp"
#include "runtime/connect.hpp"

namespace tendon::v0::detail {
namespace {

// Beyond the window a peer may only announce schemas and end; more than this breaks the protocol.
constexpr std::size_t kMostQueued = kPipeWindowMessages * 2 + 16;

Error by_peer(const Link& link, ErrorCode code, std::string_view what) {
  return Error{code, "pipe", "peer " + link.peer_name() + " " + std::string(what)};
}

// The error that a peer ended the pipe with.
Error error_of(const Link& link, std::uint32_t number, Bytes text) {
  return by_peer(link, code_from_peer(number, PeerSays::pipe).value_or(ErrorCode::cancelled),
                 "ended the pipe: " + cleaned(as_text(text)));
}

// What counts in the window.
bool is_content(const Descriptor& descriptor) {
  return descriptor.kind == MessageKind::data || descriptor.kind == MessageKind::bytes;
}

}  // namespace

PipeCore::PipeCore(std::shared_ptr<Engine> engine, std::shared_ptr<Link> link, std::uint32_t id)
    : engine_(std::move(engine)),
      link_(std::move(link)),
      id_(id),
      announced_(link_->peer_cap_bytes()),
      received_schemas_(link_->cap_bytes()) {}

PipeCore::~PipeCore() = default;

Result<std::shared_ptr<PipeCore>> PipeCore::connect(std::shared_ptr<Engine> engine,
                                                    std::string_view address, Profile profile,
                                                    Deadline deadline) {
  TENDON_TRY(connected, detail::connect(*engine, address, profile, deadline));
  std::shared_ptr<PipeCore> core;
  {
    const Lock receiving(connected.link->receive_mutex());
    if (connected.link->ended()) return connected.link->end_error();
    if (connected.link->pipe_count() >= kMaxPipesPerLink) {
      return Error{ErrorCode::limit_exceeded, "pipe.connect",
                   "the link to " + connected.link->peer_name() + " carries its " +
                       std::to_string(kMaxPipesPerLink) + " pipes already: close some"};
    }
    const std::uint32_t id = connected.link->next_pipe_id();
    core = std::make_shared<PipeCore>(std::move(engine), connected.link, id);
    connected.link->attach(id, core);
  }
  Descriptor open;
  open.kind = MessageKind::open;
  open.pipe = core->id_;
  open.header_bytes = static_cast<std::uint16_t>(connected.ticket.size());
  connected.link->post(open, connected.ticket);
  return core;
}

// What the link hands over

void PipeCore::on_message(Incoming&& incoming) {
  link_->receive_mutex().assert_held();
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
      if (descriptor.sequence <= last_sequence_) {
        return fail_here(by_peer(*link_, ErrorCode::protocol_violation,
                                 "repeated message " + std::to_string(descriptor.sequence)));
      }
      last_sequence_ = descriptor.sequence;
      break;
    case MessageKind::end:
      end_came_ = true;
      if (descriptor.tag != 0) {
        // The peer closed both directions: nobody will take what is sent from now on.
        const Lock lock(error_mutex_);
        if (!send_error_)
          send_error_ = by_peer(*link_, ErrorCode::pipe_closed, "closed its end of the pipe");
        send_ended_.store(true, std::memory_order_release);
      }
      break;
    case MessageKind::error: {
      const Error error =
          error_of(*link_, descriptor.tag, {incoming.body.data, descriptor.body_bytes()});
      const Lock lock(error_mutex_);
      peer_error_ = error;
      if (!send_error_) send_error_ = error;
      send_ended_.store(true, std::memory_order_release);
      break;
    }
    case MessageKind::cancel:
      clear_inbox();
      return fail_here(by_peer(*link_, ErrorCode::cancelled, "cancelled the pipe"));
    case MessageKind::credit:
      // Totals that only rise; a peer that lies harms its own memory only.
      peer_took_messages_.store(descriptor.sequence, std::memory_order_release);
      peer_took_bytes_.store(descriptor.payload_bytes, std::memory_order_release);
      return;
    case MessageKind::ack:
      acked_sequence_.store(descriptor.sequence, std::memory_order_release);
      return;
    case MessageKind::segment:
    case MessageKind::abort:
    case MessageKind::ping:
    case MessageKind::open:
    case MessageKind::goodbye:
      return;  // the link's own business
  }
  if (inbox_.size() >= kMostQueued) {
    return fail_here(by_peer(
        *link_, ErrorCode::protocol_violation,
        "sent more than the window of " + std::to_string(kPipeWindowMessages) + " messages"));
  }
  if (is_content(descriptor)) {
    set_waiting_bytes(waiting_bytes() + descriptor.payload_bytes);
  }
  inbox_.push_back(std::move(incoming));
}

// An honest sender keeps to the window by what this side said it took, which is never more than
// what it has taken.
bool PipeCore::admits(const Descriptor& descriptor) {
  link_->receive_mutex().assert_held();
  if (!is_content(descriptor) ||
      fits_window(waiting_bytes(), descriptor.payload_bytes, link_->cap_bytes()))
    return true;
  fail_here(by_peer(*link_, ErrorCode::protocol_violation,
                    "sent " + std::to_string(descriptor.payload_bytes) + " bytes while " +
                        std::to_string(waiting_bytes()) + " wait, beyond the window of " +
                        std::to_string(kPipeWindowBytes) + " bytes"));
  return false;
}

// look() sees it at the head of the inbox.
void PipeCore::on_transfer_ended(const Transfer& transfer) {
  link_->receive_mutex().assert_held();
  if (transfer.body.place == IncomingBody::Place::claimed) claim_open_ = false;
  if (!transfer.aborted || !is_content(transfer.descriptor)) return;
  set_waiting_bytes(waiting_bytes() - std::min(waiting_bytes(), transfer.descriptor.payload_bytes));
}

// The memory behind it is about to go, or nobody will take the message any more.
void PipeCore::drop_claim() {
  if (std::exchange(claim_open_, false)) link_->drop_claims(id_);
}

void PipeCore::clear_inbox() {
  drop_claim();
  receive_stats_.dropped += inbox_.size();
  while (!inbox_.empty()) (void)inbox_.pop_front();
  set_waiting_bytes(0);
}

void PipeCore::fail_here(Error error) {
  if (!receive_error_) receive_error_ = error;
  const Lock lock(error_mutex_);
  if (!send_error_) send_error_ = std::move(error);
  send_ended_.store(true, std::memory_order_release);
}

void PipeCore::on_link_failed(const Error& error) {
  link_->receive_mutex().assert_held();
  if (error.code == ErrorCode::end_of_stream) {
    // A goodbye: everything was delivered; receiving ends in order, sending has no one to go to.
    if (!receive_error_) receive_error_ = error;
    const Lock lock(error_mutex_);
    if (!send_error_) send_error_ = by_peer(*link_, ErrorCode::pipe_closed, "closed its context");
    send_ended_.store(true, std::memory_order_release);
    return;
  }
  fail_here(error);
}

// Life

void PipeCore::post_end(bool reading_too) {
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = id_;
  end.tag = reading_too ? 1 : 0;
  link_->post(end);
}

void PipeCore::detach() {
  const Lock receiving(link_->receive_mutex());
  link_->detach(id_);
  clear_inbox();
  receive_stats_.dropped += put_back_.size();
  put_back_.clear();
  if (!receive_error_)
    receive_error_ = Error{ErrorCode::pipe_closed, "pipe", "this end of the pipe was closed"};
}

Result<void> PipeCore::close(Deadline deadline) {
  TENDON_CHECK(engine_->usable("pipe.close"));
  if (closed_) return {};
  auto flushed = flush(deadline);
  if (!flushed && flushed.error().code == ErrorCode::timeout)
    return flushed;  // try again, or cancel()
  closed_ = true;
  post_end(true);
  detach();
  (void)progress();  // fails receives that were still posted
  // That the peer closed first, or nothing was to be sent any more, is no failure of closing.
  const bool orderly = flushed || flushed.error().code == ErrorCode::pipe_closed ||
                       flushed.error().code == ErrorCode::cancelled ||
                       flushed.error().code == ErrorCode::end_of_stream;
  return orderly ? Result<void>() : std::move(flushed);
}

void PipeCore::cancel() {
  Descriptor cancel;
  cancel.kind = MessageKind::cancel;
  end_now(cancel, {});
}

void PipeCore::cancel(const Error& reason) {
  const std::string_view text = std::string_view(reason.detail).substr(0, kMaxReasonBytes);
  Descriptor error;
  error.kind = MessageKind::error;
  error.tag = static_cast<std::uint32_t>(reason.code);
  error.payload_bytes = text.size();
  end_now(error, as_bytes(text));
}

void PipeCore::end_now(Descriptor said, Bytes text) {
  if (engine_->unusable() || closed_.exchange(true)) return;
  said.pipe = id_;
  link_->post(said, text);
  {
    const Lock receiving(link_->receive_mutex());
    fail_here(Error{ErrorCode::cancelled, "pipe.cancel", "this pipe was cancelled here"});
  }
  detach();
  (void)progress();
  engine_->wake_others();
}

void PipeCore::supervise() { supervised_ = true; }

void PipeCore::release() {
  supervised_ = false;
  if (dropped_) abandon();
}

void PipeCore::abandon() {
  if (engine_->unusable() || closed_) return;
  dropped_ = true;
  if (supervised_) return;
  abandoned_ = true;
  // Queued sends go on with the engine, which says the end when they are gone: progress().
  if (working_.exchange(true)) return;
  if (progress()) engine_->add_work(shared_from_this());
}

bool PipeCore::progress() {
  const bool sends_left = progress_sends();
  const bool receives_left = progress_receives();
  if (sends_left || (receives_left && !abandoned_)) return true;
  if (abandoned_ && !closed_.exchange(true)) {
    if (!engine_->unusable()) {
      post_end(true);
      detach();
    }
    (void)progress_receives();  // fails what is still posted
  }
  working_ = false;
  // Something may have been queued since the look above.
  const bool more = queued_count_.load() != 0 || posted_count_.load() != 0;
  return more && !working_.exchange(true);
}

void PipeCore::drive(CompletionBase& completion, Deadline deadline) {
  engine_->wait(link_.get(), deadline, [&] {
    if (!engine_->unusable()) engine_->poll_link(*link_);
    (void)progress_sends();
    (void)progress_receives();
    return completion.finished() || engine_->unusable();
  });
}

PipeStats PipeCore::stats() const {
  PipeStats stats;
  {
    const Lock receiving(link_->receive_mutex());
    stats = receive_stats_;
  }
  const Lock sending(send_mutex_);
  stats.messages_sent = send_stats_.messages_sent;
  stats.bytes_sent = send_stats_.bytes_sent;
  stats.loans_sent = send_stats_.loans_sent;
  stats.copies += send_stats_.copies;
  stats.bytes_copied += send_stats_.bytes_copied;
  stats.copied_other_link = send_stats_.copied_other_link;
  stats.schemas_announced = send_stats_.schemas_announced;
  stats.waits = waits_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace tendon::v0::detail
