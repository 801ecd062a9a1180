// SPDX-License-Identifier: Apache-2.0
#include "pipe/pipe_sender.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/packed.hpp>

#include "channel/gpu_wait.hpp"
#include "channel/loaned_batch.hpp"
#include "channel/staging.hpp"
#include "channel/to_host.hpp"
#include "core/failpoint.hpp"
#include "core/stage_clock.hpp"
#include "pipe/async_ops.hpp"
#include "pipe/direct_fill.hpp"
#include "pipe/gpu_source.hpp"
#include "runtime/busy.hpp"
#include "runtime/gpu_loan.hpp"
#include "tensor/on_cpu.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/devices_out.hpp"

namespace tendon::v0::detail {
namespace {

// For the first use of a GPU by an asynchronous send, which has no deadline of its own.
constexpr std::chrono::seconds kFirstUse{5};

// Adds a leaf of host memory. `strided` has room: parts point into it.
void add_part(Outgoing& out, const TensorDict& batch, std::size_t index, const LeafView& leaf,
              std::uint64_t offset) {
  if (leaf.size_bytes == 0) return;
  BodyPart part{offset, {leaf.data, leaf.size_bytes}, nullptr, leaf.size_bytes};
  if (!leaf.contiguous) {
    out.strided.push_back(batch.leaf(index));
    part.strided = &out.strided.back();
    part.bytes = {};
  }
  out.parts.push_back(part);
}

// Acquires memory for a body that the link copies into a slot. False: not now.
Result<bool> take_slot(Link& link, SendOp& op) {
  const std::uint64_t size = op.descriptor.body_bytes();
  const bool is_copied = op.loaned == nullptr && op.published == nullptr;
  if (!is_copied || !link.traits().slots_go_over || size <= kMaxInlineBytes) return true;
  auto slot = link.acquire(size);
  if (slot) {
    op.own_slot = *std::move(slot);
    op.loaned = op.own_slot.get();
    return true;
  }
  // Slots that return make room below the cap, but not memory that the system has refused.
  if (slot.error().code == ErrorCode::resource_exhausted && slot.error().system_errno == 0)
    return false;
  return std::move(slot).error();
}

// Leaves of host memory make the payload; the others are in `fill`.
void fill_out(Outgoing& out, const TensorDict& batch, const PlacedLayout& layout,
              std::shared_ptr<DeviceFill> fill) {
  out.fill = std::move(fill);
  out.op.device = out.fill.get();
  out.op.device_part = out.fill->part();
  out.op.descriptor.layout = Layout::aligned;
  out.op.descriptor.payload_bytes = layout.host_bytes;
  out.op.descriptor.device_parts = 1;
  out.parts.clear();
  out.strided.clear();
  out.strided.reserve(batch.leaf_count());
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device == cpu()) add_part(out, batch, i, leaf, layout.offsets[i]);
  }
  out.op.parts = out.parts;
  out.prepared = true;
}

/// The reason why the peer drops a message that was shown.
Error incomplete(const cuda::Gpu& gpu, const std::string& peer) {
  if (auto usable = gpu.context()->check_usable("pipe.send_async"); !usable)
    return std::move(usable).error();
  return Error{ErrorCode::system, "pipe.send_async",
               to_string(gpu.context()->device()) + " could not tell " + peer +
                   " that the tensors are there: the peer drops the message"};
}

Result<void> check_size(const Descriptor& descriptor, const Link& link) {
  const std::uint64_t size = descriptor.body_bytes();
  const std::uint64_t cap = std::min(link.cap_bytes(), link.peer_cap_bytes());
  if (descriptor.payload_bytes <= cap && size <= cap) return {};
  return Error{ErrorCode::message_too_large, "pipe.send",
               "a message of " + std::to_string(size) + " bytes to " + link.peer_name() +
                   "; at most " + std::to_string(cap) +
                   " bytes are legal on this link (ContextOptions::link_cap_bytes "
                   "of both ends)"};
}

bool has_held(const std::deque<std::shared_ptr<QueuedSend>>& queue) {
  return std::ranges::any_of(queue, [](const auto& each) { return each->held != nullptr; });
}

bool is_filling(const QueuedSend& queued) {
  return queued.filling != nullptr && !queued.filling->answer().is_over();
}

// Keeps a prepared message on its GPU.
Result<void> stay_on_gpu(QueuedSend& queued, const GpuSource& source, const PlacedLayout& layout,
                         std::shared_ptr<DeviceFill> fill, const PipeEnd& end) {
  queued.copied = std::make_shared<GpuAnswer>();
  fill->tell([answer = queued.copied, gpu = source.gpu, peer = end.link->peer_name(),
              tell = end.teller(end.filled)](DeviceCopies::How how) {
    answer->finish(how == DeviceCopies::How::done ? Result<void>() : incomplete(*gpu, peer));
    tell();
  });
  queued.out.placement = source.placement;
  fill_out(queued.out, queued.batch, layout, std::move(fill));
  return check_size(queued.out.op.descriptor, *end.link);
}

// True if the head of the queue can be sent now.
Result<bool> make_ready(QueuedSend& queued, const PipeEnd& end) {
  if (queued.held != nullptr) {
    queued.held->try_again();
    if (!queued.held->answer().is_over()) return false;
    TENDON_CHECK(queued.held->answer().result());
    const auto held = std::exchange(queued.held, nullptr);
    TENDON_CHECK(stay_on_gpu(queued, held->source(), held->layout(), held->take(), end));
  }
  if (queued.filling == nullptr) return true;
  const GpuAnswer& filled = queued.filling->answer();
  if (filled.is_over() && !filled.result()) return filled.result().error();
  return filled.is_over();
}

Result<void> prepare_values(Outgoing& out, const TensorDict& batch) {
  out.values.clear();
  if (const auto& values = batch.values(); values != nullptr) {
    TENDON_TRY(json, to_json(*values));
    out.values = std::move(json);
  }
  out.op.values = as_bytes(out.values);
  out.op.descriptor.values_bytes = static_cast<std::uint32_t>(out.values.size());
  return {};
}

}  // namespace

Result<void> check_size(const TensorDict& batch, const Link& link) {
  Descriptor descriptor;
  descriptor.payload_bytes = batch.schema()->layout(Layout::aligned).total_bytes;
  if (batch.values() != nullptr) {
    TENDON_TRY(json, to_json(*batch.values()));
    descriptor.values_bytes = static_cast<std::uint32_t>(json.size());
  }
  return check_size(descriptor, link);
}

PipeSender::PipeSender(PipeEnd& end, Window window, std::function<void()> go_on)
    : end_(end),
      go_on_(std::move(go_on)),
      context_(*end.context),
      link_(*end.link),
      window_(window, link_.peer_cap_bytes()),
      sender_(end.id, window_, link_.peer_cap_bytes()) {}

PipeSender::~PipeSender() = default;

// Preparing

Result<void> PipeSender::usable(std::string_view where) const {
  TENDON_CHECK(context_.usable(where));
  if (!end_.sending.may_send()) return end_.sending.error();
  if (end_.handle.is(HandleState::State::closed))
    return Error{ErrorCode::pipe_closed, where, "this end of the pipe was closed"};
  if (link_.ended()) return link_.end_error();
  return {};
}

Result<PipeSender::Lies> PipeSender::prepare(Outgoing& out, const TensorDict& batch) {
  out.op = SendOp{};
  out.placement.reset();
  out.parts.clear();
  out.strided.clear();
  out.is_loan = false;
  out.is_first_of_schema = false;
  out.announcement.reset();
  if (const auto& schema = batch.schema(); out.schema != schema) out.schema = schema;
  const PackedView* packed = packed_view(batch);
  // Memory that was packed for programs is sent as it lies; in a file leaves start anywhere.
  const bool as_it_is = packed != nullptr && packed->layout != Layout::safetensors;
  Descriptor& descriptor = out.op.descriptor;
  descriptor.kind = MessageKind::data;
  descriptor.layout = as_it_is ? packed->layout : Layout::aligned;
  descriptor.pipe = end_.id;
  const PackedLayout& layout = out.schema->layout(descriptor.layout);
  descriptor.payload_bytes = layout.total_bytes;
  TENDON_CHECK(prepare_values(out, batch));
  TENDON_CHECK(check_size(descriptor, link_));
  if (as_it_is) {
    if (packed->storage.device() != cpu() && batch.leaf_count() != 0) return Lies::on_gpu;
    if (layout.total_bytes != 0) {
      out.parts.push_back(
          {0, packed->storage.bytes().first(layout.total_bytes), nullptr, layout.total_bytes});
    }
    if (packed->storage.origin() == Origin::peer_slot) {
      const Lock lock(mutex_);
      ++stats_.copied_other_link;
    }
  } else {
    const std::size_t count = batch.leaf_count();
    out.strided.reserve(count);  // parts point into it
    for (std::size_t i = 0; i < count; ++i) {
      const LeafView leaf = leaf_view(batch, i);
      if (leaf.device != cpu()) return Lies::on_gpu;
      add_part(out, batch, i, leaf, layout.offsets[i]);
    }
  }
  out.op.parts = out.parts;
  out.prepared = true;
  return Lies::on_cpu;
}

Result<void> PipeSender::prepare_bytes(Outgoing& out, Bytes bytes, const MessageOptions& options) {
  if (options.header.size() > kMaxMessageHeaderBytes) {
    return Error{ErrorCode::limit_exceeded, "pipe.send",
                 "MessageOptions::header has " + std::to_string(options.header.size()) +
                     " bytes; at most " + std::to_string(kMaxMessageHeaderBytes) + " are legal"};
  }
  out.op = SendOp{};
  out.parts.clear();
  out.schema = nullptr;
  out.placement.reset();
  out.is_loan = false;
  out.is_first_of_schema = false;
  out.announcement.reset();
  Descriptor& descriptor = out.op.descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = end_.id;
  descriptor.tag = options.tag;
  descriptor.payload_bytes = bytes.size();
  descriptor.header_bytes = static_cast<std::uint16_t>(options.header.size());
  TENDON_CHECK(check_size(descriptor, link_));
  if (!bytes.empty()) out.parts.push_back({0, bytes, nullptr, bytes.size()});
  out.op.parts = out.parts;
  out.op.header = options.header;
  out.prepared = true;
  return {};
}

Result<void> PipeSender::prepare_loan(Outgoing& out, const TensorDict& dict,
                                      const std::shared_ptr<LoanedSlot>& slot) {
  TENDON_CHECK(prepare(out, dict));
  out.is_loan = true;
  const std::uint64_t payload = out.op.descriptor.payload_bytes;
  const std::uint64_t body = out.op.descriptor.body_bytes();
  // Over sockets the slot is just the place of the bytes. In shared memory it is handed over as it
  // is, if the non-tensor data fits behind the tensors.
  if (!link_.traits().slots_go_over || body > slot->slot().memory.size()) return {};
  out.op.loaned = slot.get();
  out.op.filled_bytes = payload;
  return {};
}

// Sending

Result<bool> PipeSender::announce(Outgoing& out, Deadline deadline) {
  std::uint32_t& number = out.op.descriptor.schema;
  if (!out.announcement) {
    if (number != 0 || out.schema == nullptr) return true;
    number = sender_.number_of(out.schema, out.placement.get());
    if (number != 0) return true;
    // Nothing is announced for a message that has no room itself.
    if (!sender_.has_room(out.op.descriptor)) return false;
    TENDON_TRY(has_slot, take_slot(link_, out.op));
    if (!has_slot) return false;
    SendOp announcement;
    announcement.descriptor = sender_.announcement(*out.schema, out.placement.get());
    number = announcement.descriptor.schema;
    out.announcement_part = {0, out.schema->encoding(), nullptr, out.schema->encoding().size()};
    announcement.parts = {&out.announcement_part, 1};
    if (out.placement != nullptr)
      announcement.values = std::as_bytes(std::span(out.placement->leaves));
    out.announcement = announcement;
    begun_ = &out;
  }
  TENDON_TRY(announced, link_.send(*out.announcement, deadline));
  if (announced == Sent::later) return false;
  count_announced(out);
  out.is_first_of_schema = true;
  return true;
}

Result<bool> PipeSender::try_send(Outgoing& out, Deadline deadline) {
  TENDON_CHECK(usable("pipe.send"));
  if (begun_ != nullptr && begun_ != &out) return false;
  TENDON_TRY(announced, announce(out, deadline));
  if (!announced) return false;
  if (!sender_.begin(out.op.descriptor)) {
    // Later announcements of others may push it out of the table.
    if (begun_ == nullptr) out.op.descriptor.schema = 0;
    return false;
  }
  begun_ = &out;
  TENDON_STAGE(numbered);
  TENDON_TRY(sent, out.op.published != nullptr ? send_published(out.op, deadline)
                                               : link_.send(out.op, deadline));
  if (sent != Sent::done) return false;
  count_sent(out);
  if (out.is_first_of_schema) prepare_next(out);
  return true;
}

// Nothing is copied: the peer takes a hold of the slot, as other peers do.
Result<Sent> PipeSender::send_published(SendOp& op, Deadline deadline) {
  TENDON_TRY(sent, context_.publishing().prepare(link_, op, deadline));
  Link* const link = &link_;
  if (sent == Sent::done) show_and_ring({&link, 1});
  return sent;
}

// Prepares a slot: more of that size may follow. Once the first has left: before, it would be in
// its way.
void PipeSender::prepare_next(Outgoing& out) {
  out.is_first_of_schema = false;
  const std::uint64_t size = out.op.descriptor.body_bytes();
  const bool is_copied = !out.is_loan && out.op.published == nullptr;
  if (!link_.traits().slots_go_over || size <= kMaxInlineBytes || !is_copied) return;
  context_.prefault_soon([link = end_.link, size] { link->prefault(size); });
}

void PipeSender::count_announced(Outgoing& out) {
  sender_.announced(out.op.descriptor.schema, out.schema, out.placement);
  out.announcement.reset();
  ++stats_.schemas_announced;
}

void PipeSender::count_sent(const Outgoing& out) {
  const std::uint64_t payload_bytes = out.op.descriptor.payload_bytes;
  sender_.sent(out.op.descriptor);
  begun_ = nullptr;
  ++stats_.messages_sent;
  stats_.bytes_sent += payload_bytes;
  if (out.op.device != nullptr) {
    const std::uint64_t size_bytes = out.op.device->size_bytes();
    stats_.bytes_sent += size_bytes;
    if (out.op.device->is_loan()) {
      ++stats_.loans_sent;
    } else {
      ++stats_.copies_d2d;
      stats_.bytes_d2d += size_bytes;
    }
    if (payload_bytes == 0) return;
  }
  if (out.is_loan || (out.op.published != nullptr && !out.op.over_share)) {
    ++stats_.loans_sent;
  } else if (link_.traits().slots_go_over) {
    ++stats_.copies;
    stats_.bytes_copied += payload_bytes;
  }
}

// False: too late, the link had sent it all. Then it counts as sent, whatever the caller waited
// for: `timeout` would be wrong for a message that arrives.
bool PipeSender::take_back(Outgoing& out) {
  // Over sockets the receiver may have heard of a number: it is not used again.
  const bool used_up = !link_.traits().sent_is_delivered;
  if (begun_ == &out) begun_ = nullptr;
  if (out.announcement) {
    if (!link_.withdraw(*out.announcement)) {
      count_announced(out);
      out.is_first_of_schema = true;
    } else if (used_up) {
      sender_.use_sequence();
    }
    out.announcement.reset();
  }
  const bool was_begun = out.op.descriptor.sequence != 0;
  if (!link_.withdraw(out.op) && was_begun) {
    count_sent(out);
    return false;
  }
  if (used_up && was_begun) sender_.use_sequence();
  return true;
}

// Sends a message whose deadline has passed all the same, as an asynchronous send: its schema was
// announced, and a second one may not be stranded.
Result<void> PipeSender::keep(Outgoing& out) {
  const Descriptor& sent = out.op.descriptor;
  auto queued = std::make_shared<QueuedSend>();
  TENDON_TRY(copy, Storage::allocate(sent.body_bytes()));
  copy_body(out.op, 0, {copy.data(), sent.body_bytes()});
  queued->bytes = std::move(copy);
  const Bytes body = queued->bytes.bytes();
  Outgoing& kept = queued->out;
  kept.schema = out.schema;
  kept.placement = out.placement;
  kept.op.descriptor = sent;
  kept.op.descriptor.schema = 0;
  kept.op.descriptor.sequence = 0;
  if (sent.payload_bytes != 0)
    kept.parts.push_back({0, body.first(sent.payload_bytes), nullptr, sent.payload_bytes});
  kept.op.parts = kept.parts;
  kept.op.values = body.subspan(sent.payload_bytes, sent.values_bytes);
  kept.op.header = body.subspan(sent.payload_bytes + sent.values_bytes, sent.header_bytes);
  kept.op.share = out.op.share;
  kept.op.device = out.op.device;
  kept.op.device_part = out.op.device_part;
  kept.fill = std::move(out.fill);
  kept.prepared = true;
  ++stats_.copies;
  stats_.bytes_copied += sent.payload_bytes;
  queue_.push_front(std::move(queued));
  queued_count_.store(queue_.size());
  return {};
}

Error PipeSender::why_blocked(const Outgoing& out, const Error* timeout) const {
  const std::uint64_t size = out.op.descriptor.body_bytes();
  const std::uint64_t untaken = window_.untaken_messages();
  if (out.op.loaned == nullptr && size > kMaxInlineBytes && link_.traits().slots_go_over &&
      window_.open_for(size)) {
    if (auto slot = link_.acquire(size); !slot) return std::move(slot).error();
  }
  if (timeout != nullptr) return *timeout;
  const std::uint64_t untaken_bytes = link_.stats().untaken_bytes;
  return Error{
      ErrorCode::timeout, "pipe.send",
      "a message of " + std::to_string(size) + " bytes was not sent to " + link_.peer_name() +
          " before the deadline; the peer has not taken " + std::to_string(untaken) +
          " of at most " + std::to_string(window_.window().messages) + " messages" +
          (untaken_bytes == 0
               ? ""
               : ", and " + std::to_string(untaken_bytes) + " of at most " +
                     std::to_string(link_.peer_cap_bytes()) + " bytes on all pipes of this link") +
          "; nothing was delivered"};
}

Result<void> PipeSender::send_now(Outgoing& out, Deadline deadline) {
  std::optional<Error> error;
  const auto has_begun = [&] {
    const Lock lock(mutex_);
    return begun_ == &out;
  };
  const auto attempt = [&] {
    // Asynchronous sends that were queued before are sent first.
    if (queued_count_.load(std::memory_order_relaxed) != 0 && !has_begun() && progress() &&
        queued_count_.load() != 0) {
      if (context_.unusable()) error = context_.usable("pipe.send").error();
      return error.has_value();
    }
    const Lock lock(mutex_);
    const auto sent = try_send(out, deadline);
    if (!sent) error = sent.error();
    return !sent || *sent;
  };
  context_.note_activity();
  bool done = attempt();
  if (!done && !deadline.is_poll()) {
    end_.waits.fetch_add(1, std::memory_order_relaxed);
    const WaitsFor waits(context_, link_, WaitsFor::kReturns);
    done = context_.wait(&link_, deadline, [&] {
      if (!context_.unusable()) context_.poll_link(link_);  // credits arrive that way
      return attempt();
    });
  }
  auto result = done && !error ? Result<void>() : give_up(out, std::move(error));
  // Continues also the sends that waited for the numbers of this one.
  if (queued_count_.load(std::memory_order_relaxed) != 0) go_on_();
  return result;
}

// `error` is the reason, empty when the deadline has passed.
Result<void> PipeSender::give_up(Outgoing& out, std::optional<Error> error) {
  const Lock lock(mutex_);
  const bool late = !error || error->code == ErrorCode::timeout;
  if (late) error = why_blocked(out, error ? &*error : nullptr);
  if (!take_back(out)) return {};
  if (!out.is_first_of_schema) return *std::move(error);
  if (late && sender_.has_stranded()) return keep(out);
  sender_.strand(out.op.descriptor.schema);
  return *std::move(error);
}

Result<void> PipeSender::send(const TensorDict& batch, const SendOptions& options,
                              Deadline deadline) {
  TENDON_CHECK(usable("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return end_.busy("send");
  TENDON_TRY(lies, prepare(scratch_, batch));
  if (lies == Lies::on_gpu) return send_from_gpu(batch, options, deadline);
  TENDON_STAGE(prepared);
  return send_now(scratch_, deadline);
}

Result<void> PipeSender::send(Loan&& loan, const SendOptions& options, Deadline deadline) {
  TENDON_CHECK(usable("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return end_.busy("send");
  if (loan.device_slot_ != nullptr) {
    TENDON_TRY(batch, sealed_loan(loan.dict_, *loan.device_slot_, context_, "pipe.send"));
    TENDON_TRY(lies, prepare(scratch_, batch));
    TENDON_CHECK(lies == Lies::on_gpu ? send_from_gpu(batch, options, deadline)
                                      : send_now(scratch_, deadline));
    loan.device_slot_->note_ordered();
    loan.clear();
    return {};
  }
  TENDON_CHECK(check_loan(loan, link_));
  TENDON_CHECK(prepare_loan(scratch_, loan.dict_, loan.slot_));
  TENDON_STAGE(prepared);
  TENDON_CHECK(send_now(scratch_, deadline));
  loan.clear();
  return {};
}

Result<void> PipeSender::send(Bytes bytes, const MessageOptions& options, Deadline deadline) {
  TENDON_CHECK(usable("pipe.send"));
  const Busy busy(user_sending_);
  if (!busy.mine()) return end_.busy("send");
  TENDON_CHECK(prepare_bytes(scratch_, bytes, options));
  return send_now(scratch_, deadline);
}

Result<void> PipeSender::send_from_gpu(const TensorDict& batch, const SendOptions& options,
                                       Deadline deadline) {
  TENDON_TRY(source, gpu_source(batch, link_, deadline));
  const PlacedLayout layout = placed_layout(*batch.schema(), *source.placement);
  const DirectSource direct{.batch = batch,
                            .gpu = source,
                            .layout = layout,
                            .stream = static_cast<cuda::StreamHandle>(options.stream),
                            .context = end_.context,
                            .link = link_,
                            .usable = [this] { return usable("pipe.send"); },
                            .is_behind_held =
                                [this] {
                                  (void)progress();
                                  const Lock lock(mutex_);
                                  return has_held(queue_);
                                }};
  TENDON_TRY(fill, direct_fill(direct, deadline));
  if (fill == nullptr) return send_staged(batch, source, options, deadline);
  scratch_.placement = std::move(source.placement);
  fill_out(scratch_, batch, layout, fill);
  auto sent = check_size(scratch_.op.descriptor, link_);
  if (sent) sent = send_now(scratch_, deadline);
  // The word that the copies are done follows once the message is shown, and numbered.
  if (scratch_.op.done) {
    (void)TENDON_FAILPOINT("pipe.gpu.shown");
    fill->note_shown();
  }
  scratch_.op = SendOp{};
  scratch_.fill = nullptr;
  fill->leave();
  return sent;
}

// Uses a slot, if the link lets the peer read it, so that the host copies nothing. Not ahead of
// queued sends, which may need the last slot.
Result<void> PipeSender::send_staged(const TensorDict& batch, const GpuSource& source,
                                     const SendOptions& options, Deadline deadline) {
  const std::uint64_t body_bytes = scratch_.op.descriptor.body_bytes();
  const auto& schema = batch.schema();
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  Storage room;
  std::shared_ptr<LoanedSlot> slot;
  if (body_bytes <= kMaxInlineBytes || queued_count_.load() != 0) {
    TENDON_TRY(storage, Storage::allocate(size));
    room = std::move(storage);
  } else {
    TENDON_TRY(loaned, loan(schema, deadline, body_bytes - size));
    room = packed_view(loaned.dict_)->storage;
    slot = loaned.slot_;
    if (SharedMemoryLink* const memory = link_.shared_memory())
      memory->devices_out().register_later(*slot);
  }
  const auto wait = [&](cuda::StreamWork& work) {
    return wait_for_gpu(work, end_.context, &link_, deadline,
                        [this] { return usable("pipe.send"); });
  };
  TENDON_TRY(work, cuda::StreamWork::begin(
                       source.gpu, static_cast<cuda::StreamHandle>(options.stream), "pipe.send"));
  if (auto copied = copy_to_host(batch, room, std::move(work),
                                 *context_.memory().devices->of(source.gpu), deadline, wait);
      !copied) {
    if (copied.error().code != ErrorCode::timeout) return copied;
    return Error{
        ErrorCode::timeout, "pipe.send",
        "the GPU had not copied " + std::to_string(size) + " bytes for " + link_.peer_name() +
            " before the deadline: its stream has work to do first; nothing was delivered"};
  }
  copies_d2h_.fetch_add(1, std::memory_order_relaxed);
  bytes_d2h_.fetch_add(bytes_on_gpu(*schema, source.placement.get()), std::memory_order_relaxed);
  TENDON_TRY(staged, make_packed(schema, Layout::aligned, std::move(room), batch.values()));
  if (slot != nullptr)
    TENDON_CHECK(prepare_loan(scratch_, staged, slot));
  else
    TENDON_CHECK(prepare(scratch_, staged));
  scratch_.is_loan = false;
  scratch_.placement = source.placement;
  return send_now(scratch_, deadline);
}

Result<void> PipeSender::check_loan(const Loan& loan, const Link& link) {
  if (loan.sample_ != nullptr) {
    return Error{ErrorCode::wrong_link, "pipe.send",
                 "the loan was taken from a publisher: publish it there, or take one with "
                 "Pipe::loan"};
  }
  if (loan.slot_ == nullptr && loan.device_slot_ == nullptr) {
    return Error{ErrorCode::invalid_argument, "pipe.send",
                 "the loan is empty: it was sent before; take a new one with Pipe::loan"};
  }
  if (loan.slot_ != nullptr && !link.owns(*loan.slot_)) {
    return Error{ErrorCode::wrong_link, "pipe.send",
                 "the loan was taken from another link than that to " + link.peer_name() +
                     "; a loan can only go where it was taken for"};
  }
  return {};
}

Result<Loan> PipeSender::loan(const std::shared_ptr<const Schema>& schema,
                              const LoanOptions& options, Deadline deadline) {
  TENDON_CHECK(usable("pipe.loan"));
  TENDON_TRY(gpu, wanted_gpu(options.device, "pipe.loan", deadline));
  if (gpu == nullptr || schema == nullptr) return loan(schema, deadline);
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  Descriptor descriptor;
  descriptor.payload_bytes = size;
  TENDON_CHECK(check_size(descriptor, link_));
  const RoomOnGpu room{.gpu = gpu, .context = context_, .link = &link_, .usable = [this] {
                         return usable("pipe.loan");
                       }};
  TENDON_TRY(slot, take_gpu_loan(room, options.stream, size, deadline, "pipe.loan"));
  TENDON_TRY(dict,
             make_packed(schema, Layout::aligned, cuda::LoanedDeviceSlot::storage(slot, size)));
  return Loan(std::move(dict), std::move(slot));
}

Result<Loan> PipeSender::loan(const std::shared_ptr<const Schema>& schema, Deadline deadline,
                              std::uint64_t beside_bytes) {
  TENDON_CHECK(usable("pipe.loan"));
  if (schema == nullptr)
    return Error{ErrorCode::invalid_argument, "pipe.loan", "schema is null; a Schema is needed"};
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  Descriptor descriptor;
  descriptor.payload_bytes = size;
  TENDON_CHECK(check_size(descriptor, link_));
  std::optional<Error> error;
  std::shared_ptr<LoanedSlot> slot;
  const auto attempt = [&] {
    auto acquired = usable("pipe.loan");
    if (!acquired) {
      error = std::move(acquired).error();
      return true;
    }
    auto taken = link_.acquire(size + beside_bytes);
    if (taken) {
      slot = *std::move(taken);
      error.reset();
      return true;
    }
    error = std::move(taken).error();
    return error->code != ErrorCode::resource_exhausted;
  };
  if (!attempt() && !deadline.is_poll()) {
    end_.waits.fetch_add(1, std::memory_order_relaxed);
    const WaitsFor waits(context_, link_, WaitsFor::kReturns);
    context_.wait(&link_, deadline, [&] {
      if (!context_.unusable()) context_.poll_link(link_);
      return attempt();
    });
  }
  if (error) return *std::move(error);
  TENDON_STAGE(slot_acquired);
  Storage storage(slot, slot->slot().memory.data(), size, Access::read_write);
  TENDON_TRY(dict, make_packed(schema, Layout::aligned, std::move(storage)));
  return Loan(std::move(dict), std::move(slot));
}

// Flush and half-close

Result<void> PipeSender::flush(Deadline deadline) {
  TENDON_CHECK(context_.usable("pipe.flush"));
  // True if the peer has taken everything, and then closed its end.
  const auto taken_and_closed = [this] {
    return end_.sending.state() == SendingLife::State::closed &&
           !end_.handle.is(HandleState::State::closed) && queued_count_.load() == 0 &&
           window_.untaken_messages() == 0;
  };
  std::uint64_t wanted = 0;
  bool asked = false;
  std::optional<Error> error;
  const auto attempt = [&] {
    if (!context_.unusable()) context_.poll_link(link_);
    // Checked first: a peer that has everything may have closed its end right after it said so.
    if ((asked && window_.acked_sequence() >= wanted) || taken_and_closed()) return true;
    if (auto still = usable("pipe.flush"); !still) {
      // Its end may have arrived between the two checks, and before that the word that it took all.
      if (!taken_and_closed()) error = std::move(still).error();
      return true;
    }
    if (progress()) return false;
    if (link_.traits().sent_is_delivered) return link_.drained();
    if (!asked) {
      const Lock lock(mutex_);
      wanted = sender_.last_sequence();
      if (wanted == 0) return true;
      Descriptor ping;
      ping.kind = MessageKind::ping;
      ping.pipe = end_.id;
      ping.sequence = wanted;
      link_.post(ping);
      asked = true;
    }
    return window_.acked_sequence() >= wanted;
  };
  if (!context_.wait(&link_, deadline, attempt)) {
    return Error{
        ErrorCode::timeout, "pipe.flush",
        "not everything had arrived at " + link_.peer_name() + " before the deadline (" +
            std::to_string(queued_count_.load()) + " queued sends left, acknowledged up to " +
            std::to_string(window_.acked_sequence()) + " of " + std::to_string(wanted) + ")"};
  }
  if (error) return *std::move(error);
  return {};
}

void PipeSender::post_end(End what) {
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = end_.id;
  end.tag = static_cast<std::uint32_t>(what);
  link_.post(end);
}

Result<void> PipeSender::finish(Deadline deadline) {
  TENDON_CHECK(context_.usable("pipe.finish_sending"));
  if (end_.sending.state() == SendingLife::State::finished) return {};
  TENDON_CHECK(flush(deadline));
  post_end(End::of_sending);
  end_.sending.finish(
      Error{ErrorCode::pipe_closed, "pipe.send", "finish_sending() was called on this pipe"});
  return {};
}

// Asynchronous sends

Result<void> PipeSender::queue(std::shared_ptr<QueuedSend> queued) {
  TENDON_CHECK(usable("pipe.send_async"));
  const Lock lock(mutex_);
  queue_.push_back(std::move(queued));
  queued_count_.store(queue_.size());
  return {};
}

// Waits for nothing. A batch that cannot be copied to its slot now is staged, or held.
Result<void> PipeSender::prepare(QueuedSend& queued, TensorDict batch, const SendOptions& options) {
  queued.batch = std::move(batch);
  TENDON_TRY(lies, prepare(queued.out, queued.batch));
  if (lies == Lies::on_cpu) return {};
  TENDON_CHECK(usable("pipe.send_async"));
  TENDON_TRY(source, gpu_source(queued.batch, link_, kFirstUse));
  queued.gpu = source.gpu;
  PlacedLayout layout = placed_layout(*queued.batch.schema(), *source.placement);
  const DirectSource direct{.batch = queued.batch,
                            .gpu = source,
                            .layout = layout,
                            .stream = static_cast<cuda::StreamHandle>(options.stream),
                            .context = end_.context,
                            .link = link_,
                            .usable = [this] { return usable("pipe.send_async"); },
                            .is_behind_held =
                                [this] {
                                  const Lock lock(mutex_);
                                  return has_held(queue_);
                                }};
  // Behind a send that waits for room it takes none: it would wait for that one with its slot.
  if (direct.is_direct_only() && direct.is_behind_held()) {
    // Checked now, while a loan is still the caller's.
    if (auto why = why_never_direct(direct)) return *std::move(why);
  } else {
    TENDON_TRY(tried, try_direct(direct, Deadline::now()));
    if (tried.fill != nullptr)
      return stay_on_gpu(queued, source, layout, std::move(tried.fill), end_);
    if (!direct.is_direct_only()) return stage(queued, options, std::move(source));
    if (!tried.may_be_later()) return *std::move(tried.why);
  }
  queued.held = std::make_shared<HeldForGpu>(HeldForGpu::What{queued.batch, std::move(source),
                                                              std::move(layout), end_.context,
                                                              end_.link, end_.teller(end_.filled)});
  return queued.held->begin(options.stream);
}

// Stages in private memory: a slot may have to be awaited.
Result<void> PipeSender::stage(QueuedSend& queued, const SendOptions& options, GpuSource source) {
  const auto& schema = queued.batch.schema();
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  TENDON_TRY(room, Storage::allocate(size));
  TENDON_CHECK(pack_host_leaves(queued.batch, room));
  TENDON_TRY(staged, make_packed(schema, Layout::aligned, room, queued.batch.values()));
  CopiesToHost copies = copies_to_host(queued.batch, room, *source.gpu,
                                       *context_.memory().devices->of(source.gpu), kFirstUse);
  TENDON_TRY(filling, Filling::begin(std::exchange(queued.batch, std::move(staged)),
                                     std::move(room), std::move(copies), source.gpu, options.stream,
                                     end_.teller(end_.filled)));
  queued.filling = std::move(filling);
  TENDON_CHECK(prepare(queued.out, queued.batch));
  copies_d2h_.fetch_add(1, std::memory_order_relaxed);
  bytes_d2h_.fetch_add(bytes_on_gpu(*queued.batch.schema(), source.placement.get()),
                       std::memory_order_relaxed);
  queued.out.placement = std::move(source.placement);
  return {};
}

Result<void> PipeSender::prepare(QueuedSend& queued, Loan&& loan, const SendOptions& options) {
  TENDON_CHECK(check_loan(loan, link_));
  if (loan.device_slot_ != nullptr) {
    TENDON_TRY(batch, sealed_loan(loan.dict_, *loan.device_slot_, context_, "pipe.send"));
    TENDON_CHECK(prepare(queued, std::move(batch), options));
    loan.device_slot_->note_ordered();  // its sends wait for the stream
    loan.clear();
    return {};
  }
  queued.batch = std::move(loan.dict_);
  queued.slot = std::move(loan.slot_);
  loan.clear();
  return prepare_loan(queued.out, queued.batch, queued.slot);
}

Result<void> PipeSender::prepare(QueuedSend& queued, std::shared_ptr<const KeptBody> kept) {
  const SharedMessage& message = kept->message;
  Outgoing& out = queued.out;
  out.schema = message.schema;
  SendOp& op = out.op;
  op.descriptor = message.descriptor;
  op.descriptor.pipe = end_.id;
  TENDON_CHECK(check_size(op.descriptor, link_));
  const std::uint64_t payload_bytes = op.descriptor.payload_bytes;
  if (payload_bytes != 0)
    out.parts.push_back({0, message.body.first(payload_bytes), nullptr, payload_bytes});
  op.parts = out.parts;
  op.values = message.body.subspan(payload_bytes, op.descriptor.values_bytes);
  SharedMemoryLink* const memory = link_.shared_memory();
  if (memory != nullptr && memory->takes_holds()) op.published = message.slot.get();
  out.prepared = true;
  queued.kept = std::move(kept);
  return {};
}

Result<void> PipeSender::prepare(QueuedSend& queued, Storage bytes, const MessageOptions& options) {
  TENDON_CHECK(check_on_cpu(bytes.device(), "the memory of these bytes", "pipe.send"));
  queued.bytes = std::move(bytes);
  queued.header.assign(options.header.begin(), options.header.end());
  return prepare_bytes(queued.out, queued.bytes.bytes(),
                       {.tag = options.tag, .header = queued.header});
}

bool PipeSender::progress() {
  // A cancelled send may leave an answer of its GPU: nobody sleeps before that is taken.
  if (!is_at_work() && !end_.filled->load()) return false;
  if (!mutex_.try_lock()) return true;  // another thread does it
  const Lock lock(mutex_, kAdoptLock);
  end_.filled->store(false);  // before the look
  copied_.conclude(context_.usable("pipe.send_async"));
  while (!queue_.empty()) {
    const auto queued = queue_.front();
    const auto still = queued->held == nullptr ? Result<void>() : usable("pipe.send");
    auto sent = still ? make_ready(*queued, end_) : Result<bool>(still.error());
    if (sent && *sent) sent = try_send(queued->out, Deadline::never());
    if (sent && !*sent) {
      if (queue_waits_ || is_filling(*queued)) return true;
      queue_waits_.emplace(context_, link_, WaitsFor::kReturns);
      continue;  // a slot that returned before this was said rings no bell
    }
    Result<void> result;
    if (!sent && take_back(queued->out)) result = std::move(sent).error();
    const bool is_copied = queued->out.op.done && queued->out.fill != nullptr;
    if (is_copied) queued->out.fill->note_shown();
    queue_.pop_front();
    queued_count_.store(queue_.size());
    if (queued->completion == nullptr) continue;  // its caller was told before
    if (is_copied) {
      copied_.add([completion = queued->completion](
                      Result<void> copied) { completion->conclude(std::move(copied)); },
                  queued->copied);
      continue;
    }
    queued->completion->conclude(std::move(result));
  }
  queue_waits_.reset();
  return !copied_.is_empty();
}

void PipeSender::cancel(const CompletionBase* completion) {
  const auto take_out = [&] {
    const Lock lock(mutex_);
    for (auto queued = queue_.begin(); queued != queue_.end(); ++queued) {
      if ((*queued)->completion.get() != completion) continue;
      // As in give_up(): it continues.
      if ((*queued)->out.is_first_of_schema && sender_.has_stranded()) return false;
      Result<void> result;
      if (take_back((*queued)->out)) {
        if ((*queued)->out.is_first_of_schema) sender_.strand((*queued)->out.op.descriptor.schema);
        result = Error{ErrorCode::cancelled, "completion.cancel",
                       "the send was cancelled before it was done"};
      }
      if ((*queued)->out.op.done && (*queued)->out.fill != nullptr)
        (*queued)->out.fill->note_shown();
      auto run = (*queued)->completion->finish(std::move(result));
      if (run) context_.schedule(std::move(run));
      queue_.erase(queued);
      queued_count_.store(queue_.size());
      return true;
    }
    return false;
  };
  // The send behind it may be ready.
  if (take_out() && queued_count_.load() != 0) go_on_();
}

void PipeSender::add_to(PipeStats& stats) const {
  const Lock lock(mutex_);
  stats.messages_sent = stats_.messages_sent;
  stats.bytes_sent = stats_.bytes_sent;
  stats.loans_sent = stats_.loans_sent;
  stats.copies += stats_.copies;
  stats.bytes_copied += stats_.bytes_copied;
  stats.copied_other_link = stats_.copied_other_link;
  stats.copies_d2h += copies_d2h_.load(std::memory_order_relaxed);
  stats.copies_d2d += stats_.copies_d2d;
  stats.bytes_d2d += stats_.bytes_d2d;
  stats.bytes_d2h += bytes_d2h_.load(std::memory_order_relaxed);
  stats.schemas_announced = stats_.schemas_announced;
}

}  // namespace tendon::v0::detail
