// SPDX-License-Identifier: Apache-2.0
// The sending half of a pipe.
#include <algorithm>
#include <tendon/session/limits.hpp>

#include "core/failpoint.hpp"
#include "pipe/async_ops.hpp"
#include "pipe/pipe_core.hpp"

namespace tendon::v0::detail {
namespace {

/// Says to the peer that returned slots are waited for, as long as it lives.
class WaitsForReturns {
 public:
  WaitsForReturns(Engine& engine, Link& link) : link_(link) {
    link_.waiting_for_returns.fetch_add(1);
    engine.announce_again(link_);
  }
  WaitsForReturns(const WaitsForReturns&) = delete;
  WaitsForReturns& operator=(const WaitsForReturns&) = delete;
  ~WaitsForReturns() { link_.waiting_for_returns.fetch_sub(1); }

 private:
  Link& link_;
};

}  // namespace

// Preparing

Result<void> PipeCore::usable_for_send(std::string_view where) const {
  TENDON_CHECK(engine_->usable(where));
  if (send_ended_.load(std::memory_order_acquire)) {
    const Lock lock(error_mutex_);
    return *send_error_;
  }
  if (closed_) return Error{ErrorCode::pipe_closed, where, "this end of the pipe was closed"};
  if (link_->ended()) return link_->end_error();
  return {};
}

Result<void> PipeCore::check_size(const Descriptor& descriptor) const {
  const std::uint64_t size = descriptor.body_bytes();
  const std::uint64_t cap = std::min(link_->cap_bytes(), link_->peer_cap_bytes());
  if (descriptor.payload_bytes <= cap && size <= cap) return {};
  return Error{ErrorCode::message_too_large, "pipe.send",
               "a message of " + std::to_string(size) + " bytes to " + link_->peer_name() +
                   "; at most " + std::to_string(cap) +
                   " bytes are legal on this link (ContextOptions::link_cap_bytes "
                   "of both ends)"};
}

Result<void> PipeCore::prepare_values(Outgoing& out, const TensorDict& batch) {
  out.values.clear();
  if (const auto& values = batch.values(); values != nullptr) {
    TENDON_TRY(json, to_json(*values));
    out.values = std::move(json);
  }
  out.op.values = as_bytes(out.values);
  out.op.descriptor.values_bytes = static_cast<std::uint32_t>(out.values.size());
  return {};
}

Result<void> PipeCore::prepare(Outgoing& out, const TensorDict& batch) {
  out.op = SendOp{};
  out.parts.clear();
  out.strided.clear();
  out.is_loan = false;
  if (const auto& schema = batch.schema(); out.schema != schema) out.schema = schema;
  const PackedView* packed = batch.packed();
  // What was packed for programs travels as it lies; in a file leaves start anywhere.
  const bool as_it_is = packed != nullptr && packed->layout != Layout::safetensors;
  Descriptor& descriptor = out.op.descriptor;
  descriptor.kind = MessageKind::data;
  descriptor.layout = as_it_is ? packed->layout : Layout::aligned;
  descriptor.pipe = id_;
  const PackedLayout& layout = out.schema->layout(descriptor.layout);
  descriptor.payload_bytes = layout.total_bytes;
  TENDON_CHECK(prepare_values(out, batch));
  TENDON_CHECK(check_size(descriptor));
  if (as_it_is) {
    if (layout.total_bytes != 0) {
      out.parts.push_back(
          {0, packed->storage.bytes().first(layout.total_bytes), nullptr, layout.total_bytes});
    }
    if (packed->storage.origin() == Origin::peer_slot) {
      const Lock lock(send_mutex_);
      ++send_stats_.copied_other_link;
    }
  } else {
    const std::size_t count = batch.leaf_count();
    out.strided.reserve(count);  // parts point into it
    for (std::size_t i = 0; i < count; ++i) {
      const LeafView leaf = batch.leaf_view(i);
      if (leaf.device != cpu()) {
        return Error{ErrorCode::unsupported_device, "pipe.send",
                     "leaf '" + batch.leaf_path(i) + "' is on " + to_string(leaf.device) +
                         "; this build moves CPU tensors only, and copies nothing in secret"};
      }
      if (leaf.size_bytes == 0) continue;
      BodyPart part{layout.offsets[i], {leaf.data, leaf.size_bytes}, nullptr, leaf.size_bytes};
      if (!leaf.contiguous) {
        out.strided.push_back(batch.leaf(i));
        part.strided = &out.strided.back();
        part.bytes = {};
      }
      out.parts.push_back(part);
    }
  }
  out.op.parts = out.parts;
  out.prepared = true;
  return {};
}

Result<void> PipeCore::prepare_bytes(Outgoing& out, Bytes bytes, const MessageOptions& options) {
  if (options.header.size() > kMaxMessageHeaderBytes) {
    return Error{ErrorCode::limit_exceeded, "pipe.send",
                 "MessageOptions::header has " + std::to_string(options.header.size()) +
                     " bytes; at most " + std::to_string(kMaxMessageHeaderBytes) + " are legal"};
  }
  out.op = SendOp{};
  out.parts.clear();
  out.schema = nullptr;
  out.is_loan = false;
  Descriptor& descriptor = out.op.descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = id_;
  descriptor.tag = options.tag;
  descriptor.payload_bytes = bytes.size();
  descriptor.header_bytes = static_cast<std::uint16_t>(options.header.size());
  TENDON_CHECK(check_size(descriptor));
  if (!bytes.empty()) out.parts.push_back({0, bytes, nullptr, bytes.size()});
  out.op.parts = out.parts;
  out.op.header = options.header;
  out.prepared = true;
  return {};
}

Result<void> PipeCore::prepare_loan(Outgoing& out, const TensorDict& dict,
                                    const std::shared_ptr<SlotLease>& lease) {
  TENDON_CHECK(prepare(out, dict));
  out.is_loan = true;
  const std::uint64_t payload = out.op.descriptor.payload_bytes;
  const std::uint64_t body = out.op.descriptor.body_bytes();
  // Over sockets the slot is just where the bytes are; in shared memory it goes over as it is, when
  // the non-tensor data fits behind the tensors.
  if (!link_->delivers_at_once() || body > lease->slot().memory.size()) return {};
  out.op.lease = lease.get();
  out.op.done_bytes = payload;
  out.op.staged = payload == body;
  return {};
}

// The number of this schema on this pipe; a new one is announced first.
std::uint32_t PipeCore::schema_number(Outgoing& out) {
  const auto& schema = out.schema;
  if (const std::uint32_t known = announced_.number_of(schema); known != 0) return known;
  const std::uint32_t number = announced_.next_number();
  SendOp announcement;
  announcement.descriptor.kind = MessageKind::schema;
  announcement.descriptor.pipe = id_;
  announcement.descriptor.schema = number;
  announcement.descriptor.payload_bytes = schema->encoding().size();
  // A number of its own: over sockets a large one travels as a transfer, which is known by it.
  announcement.descriptor.sequence = next_sequence_;
  out.announcement_part = {0, schema->encoding(), nullptr, schema->encoding().size()};
  announcement.parts = {&out.announcement_part, 1};
  out.announcement = announcement;
  return number;
}

// The peer may take, and say so, before the sending thread has counted what another thread wrote.
std::uint64_t PipeCore::untaken_messages() const {
  const std::uint64_t taken = peer_took_messages_.load(std::memory_order_acquire);
  return window_messages_ - std::min(taken, window_messages_);
}

bool PipeCore::window_open(std::uint64_t payload_bytes) const {
  if (untaken_messages() >= kPipeWindowMessages) return false;
  if (link_->delivers_at_once()) return true;  // the slots themselves are the bound
  const std::uint64_t taken_bytes = peer_took_bytes_.load(std::memory_order_acquire);
  const std::uint64_t open_bytes = window_bytes_ - std::min(taken_bytes, window_bytes_);
  return fits_window(open_bytes, payload_bytes, link_->peer_cap_bytes());
}

// Sending

Result<bool> PipeCore::try_send(Outgoing& out, Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.send"));
  Descriptor& descriptor = out.op.descriptor;
  if (out.schema != nullptr && descriptor.schema == 0) descriptor.schema = schema_number(out);
  if (out.announcement) {
    TENDON_TRY(announced, link_->send(*out.announcement, deadline));
    if (!announced) return false;
    count_announced(out);
    if (link_->delivers_at_once() && descriptor.body_bytes() > kMaxInlineBytes && !out.is_loan) {
      engine_->prefault_soon(
          [link = link_, size = descriptor.body_bytes()] { link->prefault(size); });
    }
  }
  if (descriptor.sequence == 0) {
    if (!window_open(descriptor.payload_bytes)) return false;
    descriptor.sequence = next_sequence_;
  }
  TENDON_TRY(sent, link_->send(out.op, deadline));
  if (sent) count_sent(out);
  return sent;
}

void PipeCore::count_announced(Outgoing& out) {
  ++next_sequence_;
  announced_.add(out.op.descriptor.schema, out.schema);
  out.announcement.reset();
  ++send_stats_.schemas_announced;
}

void PipeCore::count_sent(const Outgoing& out) {
  const std::uint64_t payload_bytes = out.op.descriptor.payload_bytes;
  ++next_sequence_;
  ++window_messages_;
  window_bytes_ += payload_bytes;
  ++send_stats_.messages_sent;
  send_stats_.bytes_sent += payload_bytes;
  if (out.is_loan) {
    ++send_stats_.loans_sent;
  } else if (link_->delivers_at_once()) {
    ++send_stats_.copies;
    send_stats_.bytes_copied += payload_bytes;
  }
}

// False: too late, the link had sent it all. Then it counts as sent, whatever the caller waited
// for: to say `timeout` of a message that arrives would be a lie.
bool PipeCore::take_back(Outgoing& out) {
  // Over sockets the receiver may have heard of a number: it is not used again.
  const std::uint64_t used_up = link_->delivers_at_once() ? 0 : 1;
  if (out.announcement) {
    if (link_->withdraw(*out.announcement))
      next_sequence_ += used_up;
    else
      count_announced(out);
  }
  if (out.op.descriptor.sequence == 0) return true;
  if (!link_->withdraw(out.op)) {
    count_sent(out);
    return false;
  }
  next_sequence_ += used_up;
  return true;
}

Error PipeCore::why_blocked(const Outgoing& out, const Error* timeout) const {
  const std::uint64_t size = out.op.descriptor.body_bytes();
  const std::uint64_t untaken = untaken_messages();
  if (out.op.lease == nullptr && size > kMaxInlineBytes && link_->delivers_at_once() &&
      window_open(size)) {
    if (auto slot = link_->acquire(size); !slot) return std::move(slot).error();
  }
  if (timeout != nullptr) return *timeout;
  const std::uint64_t untaken_bytes = link_->stats().untaken_bytes;
  return Error{
      ErrorCode::timeout, "pipe.send",
      "a message of " + std::to_string(size) + " bytes was not sent to " + link_->peer_name() +
          " before the deadline; the peer has not taken " + std::to_string(untaken) +
          " of at most " + std::to_string(kPipeWindowMessages) + " messages" +
          (untaken_bytes == 0
               ? ""
               : ", and " + std::to_string(untaken_bytes) + " of at most " +
                     std::to_string(link_->peer_cap_bytes()) + " bytes on all pipes of this link") +
          "; nothing was delivered"};
}

Result<void> PipeCore::send_now(Outgoing& out, Deadline deadline) {
  std::optional<Error> error;
  const auto attempt = [&] {
    // Asynchronous sends that were queued before go first.
    if (queued_count_.load(std::memory_order_relaxed) != 0 && progress_sends()) {
      if (engine_->unusable()) error = engine_->usable("pipe.send").error();
      return error.has_value();
    }
    const Lock lock(send_mutex_);
    const auto sent = try_send(out, deadline);
    if (!sent) error = sent.error();
    return !sent || *sent;
  };
  engine_->note_activity();
  bool done = attempt();
  if (!done && !deadline.is_poll()) {
    waits_.fetch_add(1, std::memory_order_relaxed);
    const WaitsForReturns waits(*engine_, *link_);
    done = engine_->wait(link_.get(), deadline, [&] {
      if (!engine_->unusable()) engine_->poll_link(*link_);  // credits come that way
      return attempt();
    });
  }
  if (done && !error) return {};
  const Lock lock(send_mutex_);
  if (!error || error->code == ErrorCode::timeout)
    error = why_blocked(out, error ? &*error : nullptr);
  if (!take_back(out)) return {};
  return *std::move(error);
}

Result<void> PipeCore::send(const TensorDict& batch, Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return busy_error("send");
  TENDON_CHECK(prepare(scratch_, batch));
  return send_now(scratch_, deadline);
}

Result<void> PipeCore::send(Loan&& loan, Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return busy_error("send");
  TENDON_CHECK(check_loan(loan));
  TENDON_CHECK(prepare_loan(scratch_, loan.dict_, loan.lease_));
  TENDON_CHECK(send_now(scratch_, deadline));
  loan.clear();
  return {};
}

Result<void> PipeCore::send(Bytes bytes, const MessageOptions& options, Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return busy_error("send");
  TENDON_CHECK(prepare_bytes(scratch_, bytes, options));
  return send_now(scratch_, deadline);
}

Error PipeCore::busy_error(std::string_view what) const {
  return Error{ErrorCode::busy, "pipe",
               "another thread is in " + std::string(what) + " on this pipe to " +
                   link_->peer_name() + "; one sender and one receiver at a time are legal"};
}

Result<void> PipeCore::check_loan(const Loan& loan) const {
  if (loan.lease_ == nullptr) {
    return Error{ErrorCode::invalid_argument, "pipe.send",
                 "the loan is empty: it was sent before; take a new one with Pipe::loan"};
  }
  if (!link_->owns(*loan.lease_)) {
    return Error{ErrorCode::wrong_link, "pipe.send",
                 "the loan was taken from another link than that to " + link_->peer_name() +
                     "; a loan can only go where it was taken for"};
  }
  return {};
}

Result<Loan> PipeCore::loan(const std::shared_ptr<const Schema>& schema, Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.loan"));
  if (schema == nullptr)
    return Error{ErrorCode::invalid_argument, "pipe.loan", "schema is null; a Schema is needed"};
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  Descriptor descriptor;
  descriptor.payload_bytes = size;
  TENDON_CHECK(check_size(descriptor));
  std::optional<Error> error;
  std::shared_ptr<SlotLease> lease;
  const auto attempt = [&] {
    auto acquired = usable_for_send("pipe.loan");
    if (!acquired) {
      error = std::move(acquired).error();
      return true;
    }
    auto slot = link_->acquire(size);
    if (slot) {
      lease = *std::move(slot);
      error.reset();
      return true;
    }
    error = std::move(slot).error();
    return error->code != ErrorCode::resource_exhausted;
  };
  if (!attempt() && !deadline.is_poll()) {
    waits_.fetch_add(1, std::memory_order_relaxed);
    const WaitsForReturns waits(*engine_, *link_);
    engine_->wait(link_.get(), deadline, [&] {
      if (!engine_->unusable()) engine_->poll_link(*link_);
      return attempt();
    });
  }
  if (error) return *std::move(error);
  Storage storage(lease, lease->slot().memory.data(), size, Access::read_write);
  TENDON_TRY(dict, TensorDict::from_packed(schema, Layout::aligned, std::move(storage)));
  return Loan(std::move(dict), std::move(lease));
}

// Flush and half-close

Result<void> PipeCore::flush(Deadline deadline) {
  TENDON_CHECK(usable_for_send("pipe.flush"));
  std::uint64_t wanted = 0;
  bool asked = false;
  std::optional<Error> error;
  const auto attempt = [&] {
    if (!engine_->unusable()) engine_->poll_link(*link_);
    // First: a peer that has everything may have closed its end right after it said so.
    if (asked && acked_sequence_.load(std::memory_order_acquire) >= wanted) return true;
    if (auto usable = usable_for_send("pipe.flush"); !usable) {
      error = std::move(usable).error();
      return true;
    }
    if (progress_sends()) return false;
    if (link_->delivers_at_once()) return link_->drained();
    if (!asked) {
      const Lock lock(send_mutex_);
      wanted = next_sequence_ - 1;
      if (wanted == 0) return true;
      Descriptor ping;
      ping.kind = MessageKind::ping;
      ping.pipe = id_;
      ping.sequence = wanted;
      link_->post(ping);
      asked = true;
    }
    return acked_sequence_.load(std::memory_order_acquire) >= wanted;
  };
  if (!engine_->wait(link_.get(), deadline, attempt)) {
    return Error{
        ErrorCode::timeout, "pipe.flush",
        "not everything had arrived at " + link_->peer_name() + " before the deadline (" +
            std::to_string(queued_count_.load()) + " queued sends left, acknowledged up to " +
            std::to_string(acked_sequence_.load()) + " of " + std::to_string(wanted) + ")"};
  }
  if (error) return *std::move(error);
  return {};
}

Result<void> PipeCore::finish_sending(Deadline deadline) {
  TENDON_CHECK(engine_->usable("pipe.finish_sending"));
  if (finished_sending_) return {};
  TENDON_CHECK(flush(deadline));
  finished_sending_ = true;
  post_end(false);
  const Lock lock(error_mutex_);
  if (!send_error_)
    send_error_ =
        Error{ErrorCode::pipe_closed, "pipe.send", "finish_sending() was called on this pipe"};
  send_ended_.store(true, std::memory_order_release);
  return {};
}

// Asynchronous sends

Completion<void> PipeCore::enqueue(std::shared_ptr<QueuedSend> queued, Result<void> prepared) {
  auto completion = queued->completion = std::make_shared<SendCompletion>(shared_from_this());
  if (prepared) prepared = usable_for_send("pipe.send_async");
  if (!prepared) {
    (void)completion->finish(std::move(prepared));
    return Completion<void>(std::move(completion));
  }
  {
    const Lock lock(send_mutex_);
    queue_.push_back(std::move(queued));
    queued_count_.store(queue_.size());
  }
  // What can leave at once does; the rest is the engine's.
  if (progress_sends() && !working_.exchange(true)) engine_->add_work(shared_from_this());
  return Completion<void>(std::move(completion));
}

Completion<void> PipeCore::send_async(TensorDict batch) {
  auto queued = std::make_shared<QueuedSend>();
  queued->batch = std::move(batch);
  auto prepared = prepare(queued->out, queued->batch);
  return enqueue(std::move(queued), std::move(prepared));
}

Completion<void> PipeCore::send_async(Loan&& loan) {
  auto queued = std::make_shared<QueuedSend>();
  auto checked = check_loan(loan);
  if (!checked) return enqueue(std::move(queued), std::move(checked));
  queued->batch = std::move(loan.dict_);
  queued->lease = std::move(loan.lease_);
  loan.clear();
  auto prepared = prepare_loan(queued->out, queued->batch, queued->lease);
  return enqueue(std::move(queued), std::move(prepared));
}

Completion<void> PipeCore::send_async(Storage bytes, const MessageOptions& options) {
  auto queued = std::make_shared<QueuedSend>();
  queued->bytes = std::move(bytes);
  queued->header.assign(options.header.begin(), options.header.end());
  auto prepared = prepare_bytes(queued->out, queued->bytes.bytes(),
                                {.tag = options.tag, .header = queued->header});
  return enqueue(std::move(queued), std::move(prepared));
}

// Sends from the queue what can be sent. True while something is left.
bool PipeCore::progress_sends() {
  if (queued_count_.load(std::memory_order_acquire) == 0) return false;
  if (!send_mutex_.try_lock()) return true;  // somebody is at it
  const Lock lock(send_mutex_, kAdoptLock);
  while (!queue_.empty()) {
    const auto queued = queue_.front();
    auto sent = try_send(queued->out, Deadline::never());
    if (sent && !*sent) {
      if (std::exchange(waits_announced_, true)) return true;
      link_->waiting_for_returns.fetch_add(1);
      engine_->announce_again(*link_);
      continue;  // a slot that came back before this was said rings no bell
    }
    Result<void> result;
    if (!sent && take_back(queued->out)) result = std::move(sent).error();
    queue_.pop_front();
    queued_count_.store(queue_.size());
    if (auto run = queued->completion->finish(std::move(result))) engine_->schedule(std::move(run));
    engine_->note_completed();
  }
  if (std::exchange(waits_announced_, false)) link_->waiting_for_returns.fetch_sub(1);
  return false;
}

void PipeCore::cancel_send(const CompletionBase* completion) {
  const Lock lock(send_mutex_);
  for (auto queued = queue_.begin(); queued != queue_.end(); ++queued) {
    if ((*queued)->completion.get() != completion) continue;
    Result<void> result;
    if (take_back((*queued)->out)) {
      result = Error{ErrorCode::cancelled, "completion.cancel",
                     "the send was cancelled before it was done"};
    }
    auto run = (*queued)->completion->finish(std::move(result));
    if (run) engine_->schedule(std::move(run));
    queue_.erase(queued);
    queued_count_.store(queue_.size());
    return;
  }
}

}  // namespace tendon::v0::detail
