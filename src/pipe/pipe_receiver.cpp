// SPDX-License-Identifier: Apache-2.0
#include "pipe/pipe_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/packed.hpp>

#include "channel/direct_to_host.hpp"
#include "channel/staging.hpp"
#include "core/failpoint.hpp"
#include "core/stage_clock.hpp"
#include "cuda/delivered_slot.hpp"
#include "cuda/gpus.hpp"
#include "cuda/stream_work.hpp"
#include "memory/large_copy.hpp"
#include "pipe/taken_message.hpp"
#include "runtime/busy.hpp"
#include "runtime/waits_for.hpp"
#include "tensor/copy.hpp"
#include "tensor/destination_check.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/packed_copy.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPieceBytes = 1ull << 20;

bool same_leaves(const Schema& a, const Schema& b) {
  if (a == b) return true;
  return std::equal(a.leaves().begin(), a.leaves().end(), b.leaves().begin(), b.leaves().end(),
                    [](const SchemaLeaf& x, const SchemaLeaf& y) {
                      return x.path == y.path && x.dtype == y.dtype && x.shape == y.shape;
                    });
}

Result<void> same_schema(const TensorDict& destination, const Schema* schema, const Link& link) {
  // The leaves decide: a dict that holds non-tensor data only is no difference.
  if (schema == nullptr || same_leaves(*schema, *destination.schema())) return {};
  return Error{ErrorCode::schema_mismatch, "pipe.recv_into",
               "the next message from " + link.peer_name() + " does not fit the destination: " +
                   describe_difference(*destination.schema(), *schema)};
}

Error wrong_kind(const Link& link) {
  return Error{ErrorCode::wrong_kind, "pipe.recv",
               "the next message from " + link.peer_name() +
                   " is raw bytes, not a TensorDict; take it with recv_message()"};
}

// Copies until the deadline, but twice as far as the try before, which copied `before` bytes: so
// even polls end, and soon. It starts anew each time: the caller may have written to its memory
// since, or have other memory at the same address. Returns the number of copied bytes.
std::uint64_t copy_pieces(Bytes packed, Layout layout, const TensorDict& destination,
                          std::uint64_t before, Deadline deadline) {
  std::uint64_t offset = 0;
  while (offset < packed.size() && (offset <= 2 * before || !deadline.has_passed())) {
    const std::uint64_t piece = std::min<std::uint64_t>(kPieceBytes, packed.size() - offset);
    unpack_piece(packed.subspan(offset, piece), destination, layout, offset);
    offset += piece;
  }
  return offset;
}

bool same_memory(const TensorDict& a, const TensorDict& b) {
  if (a.leaf_count() != b.leaf_count()) return false;
  for (std::size_t i = 0; i < a.leaf_count(); ++i)
    if (leaf_view(a, i).data != leaf_view(b, i).data) return false;
  return true;
}

}  // namespace

PipeReceiver::PipeReceiver(PipeEnd& end, Channel& channel)
    : end_(end),
      context_(*end.context),
      link_(*end.link),
      channel_(channel),
      posted_(*this, end, channel) {}

PipeReceiver::~PipeReceiver() = default;

// Events of the channel

// Claims the destination of a receive: tcp asks when a body is about to arrive.
bool PipeReceiver::claim(const Descriptor& descriptor, std::vector<MutableBytes>& pieces) {
  channel_.receive_mutex().assert_held();
  // The next in turn: an earlier posted receive, else the one that waits.
  const TensorDict* into = waiting_;
  if (!posted_.is_empty()) into = posted_.next_destination();
  if (into == nullptr || !channel_.receiver().empty() || !put_back_.empty()) return false;
  if (channel_.receiver().is_known(descriptor.sequence)) return false;  // it will be refused
  if (descriptor.kind != MessageKind::data || descriptor.values_bytes != 0) return false;
  const auto& known = channel_.receiver().schema(descriptor.schema);
  if (known == nullptr) return false;
  if (known != into->schema() && !same_leaves(*known, *into->schema())) return false;
  const PackedLayout& layout = known->layout(descriptor.layout);
  return layout.total_bytes == descriptor.payload_bytes &&
         destination_.claim(*into, layout, pieces);
}

// look() sees it at the head of the inbox.
void PipeReceiver::on_transfer_ended(const Transfer& transfer) {
  channel_.receive_mutex().assert_held();
  if (transfer.body.place == IncomingBody::Place::claimed) {
    if (transfer.aborted)
      destination_.abort();
    else
      destination_.complete();
  }
}

void PipeReceiver::on_link_ended() noexcept {
  channel_.receive_mutex().assert_held();
  left_bytes_ = channel_.receiver().held_bytes();
}

// The memory behind it is about to be released, or nobody will take the message any more.
void PipeReceiver::drop_claim() {
  link_.receive_mutex().assert_held();
  if (destination_.drop()) link_.drop_claims(end_.id);
}

void PipeReceiver::credit_all() {
  Descriptor credit;
  {
    const Lock receiving(channel_.receive_mutex());
    credit = channel_.receiver().tell();
  }
  if (credit.pipe != 0) link_.post(credit);
}

void PipeReceiver::drop_inbox() {
  channel_.receive_mutex().assert_held();
  drop_claim();
  stats_.dropped += channel_.receiver().clear();
}

void PipeReceiver::drop_all() {
  channel_.receive_mutex().assert_held();
  drop_inbox();
  stats_.dropped += put_back_.size();
  put_back_.clear();
  channel_.receiver().forget_schemas();
}

// The head of the inbox

// Handles everything that is no message (schemas, ends) until a complete message is at the head.
PipeReceiver::Head PipeReceiver::look() {
  if (!put_back_.empty()) return Head::message;
  // Withdrawals are no words of a pipe: the channel reads them as its own.
  if (channel_.look() != Channel::Head::nothing) return Head::message;
  const bool waits = !channel_.receiver().empty();  // for a transfer
  return waits || channel_.is_open() ? Head::nothing : Head::over;
}

Error PipeReceiver::over() const {
  if (channel_.state() != Channel::State::ended) return channel_.why();
  return Error{ErrorCode::end_of_stream, "pipe.recv",
               "peer " + link_.peer_name() + " finished sending; everything it sent was taken"};
}

// On failure the message stays in the pipe: another kind, another schema than the destination's, no
// credit.
Result<PipeReceiver::Lend> PipeReceiver::check_take(Want want, RecvMode mode,
                                                    const TensorDict* destination) {
  if (!put_back_.empty()) {
    if (const Taken* const untaken = put_back_.front().untaken.get()) {
      if (destination != nullptr)
        TENDON_CHECK(same_schema(*destination, untaken->schema.get(), link_));
      return Lend::yes;
    }
    const Message& head = put_back_.front().message;
    if (want != Want::any && !head.tensors) return wrong_kind(link_);
    if (destination != nullptr) {
      TENDON_CHECK(same_schema(*destination, head.tensors->schema().get(), link_));
      TENDON_CHECK(check_on_cpu(*head.tensors, "pipe.recv_into"));
    }
    if (want == Want::on_cpu) TENDON_CHECK(check_on_cpu(*head.tensors, "pipe.recv"));
    return Lend::no;
  }
  const Incoming& head = channel_.receiver().front();
  if (want != Want::any && head.descriptor.kind == MessageKind::bytes) return wrong_kind(link_);
  if (destination != nullptr) {
    const auto& known = channel_.receiver().schema(head.descriptor.schema);
    if (known != nullptr && known != destination->schema())
      TENDON_CHECK(same_schema(*destination, known.get(), link_));
  }
  const Placement* const placement = want == Want::on_cpu ? nullptr : head_placement();
  const bool is_direct = head.device != nullptr;
  if (mode == RecvMode::view_only && !is_direct && (want == Want::on_gpu || placement != nullptr)) {
    return Error{ErrorCode::no_credit, "pipe.recv",
                 "a view cannot be lent on a GPU: what " + link_.peer_name() +
                     " sent travels through host memory and is copied there; use "
                     "RecvMode::view_or_copy"};
  }
  // The GPU reads it once, and its slot returns then.
  if (is_direct && head.descriptor.payload_bytes == 0) return Lend::yes;
  if (want == Want::on_gpu || (placement != nullptr && placement->is_all_on_gpu()))
    return Lend::yes;
  if (mode == RecvMode::copy) return Lend::no;
  link_.receive_mutex().assert_held();
  if (head.body.place != IncomingBody::Place::claimed && link_.lend(head.body)) return Lend::yes;
  if (mode == RecvMode::view_only) {
    return Error{ErrorCode::no_credit, "pipe.recv",
                 "a view cannot be lent: this process holds so much of what " + link_.peer_name() +
                     " sent that fewer than two slots of " + std::to_string(head.body.slot_bytes) +
                     " bytes would stay free; release some, or use RecvMode::view_or_copy"};
  }
  return Lend::no;
}

const Placement* PipeReceiver::head_placement() {
  if (!put_back_.empty()) return put_back_.front().placement.get();
  const Descriptor& head = channel_.receiver().front().descriptor;
  if (head.kind != MessageKind::data) return nullptr;
  return channel_.receiver().placement(head.schema).get();
}

bool PipeReceiver::head_is_direct() {
  if (!put_back_.empty()) return put_back_.front().untaken != nullptr;
  return !channel_.receiver().empty() && channel_.receiver().front().device != nullptr;
}

// Returns the credit that is due, to be posted without the lock; pipe 0 when none is.
Descriptor PipeReceiver::take(RecvMode mode, const TensorDict* destination, Lend lend,
                              Taken& taken) {
  // From here on the destination belongs to this message: the next one may not claim it.
  if (destination != nullptr && destination == waiting_) waiting_ = nullptr;
  if (!put_back_.empty()) {
    auto head = std::make_unique<PutBack>(std::move(put_back_.front()));
    put_back_.pop_front();
    if (head->untaken != nullptr) {
      taken = std::move(*head->untaken);
      return {};
    }
    taken.number = head->number;
    taken.placement = head->placement;
    taken.put_back = std::move(head);
    return {};
  }
  const Descriptor credit = channel_.receiver().take_front();
  taken.incoming = channel_.receiver().pop_front();
  taken.number = channel_.receiver().taken_messages();
  const bool lent = lend == Lend::yes;
  taken.lent = lent;
  const Descriptor& descriptor = taken.incoming.descriptor;
  if (descriptor.kind == MessageKind::data) {
    taken.schema = channel_.receiver().schema(descriptor.schema);
    taken.placement = channel_.receiver().placement(descriptor.schema);
    if (taken.schema == nullptr)
      taken.no_schema = channel_.receiver().why_unknown(descriptor.schema);
  }
  ++stats_.messages_received;
  stats_.bytes_received += descriptor.payload_bytes;
  if (taken.is_direct()) {
    stats_.bytes_received += taken.incoming.device->part().size_bytes;
    return credit;
  }
  const auto place = taken.incoming.body.place;
  // Under the lock: the next message may claim a destination as soon as this one is out.
  if (place == IncomingBody::Place::claimed) taken.written_to = destination_.take(destination);
  if (place == IncomingBody::Place::peer_slot && !lent && mode == RecvMode::view_or_copy)
    ++stats_.copied_low_credit;
  if (place == IncomingBody::Place::private_copy) ++stats_.copied_inline;
  const bool copied =
      place == IncomingBody::Place::private_copy ||
      (!lent && place != IncomingBody::Place::claimed && descriptor.payload_bytes != 0);
  if (copied) {
    ++stats_.copies;
    stats_.bytes_copied += descriptor.payload_bytes;
  }
  return credit;
}

// A message that was put back is first, but the one behind it may be on its way to the very memory
// that is wanted for the former. Then that one is received and moved away.
bool PipeReceiver::destination_free(const TensorDict* destination) {
  if (put_back_.empty() || !destination_.belongs_to(destination)) return true;
  if (destination_.is_written_to()) return false;
  Incoming& head = channel_.receiver().front();
  if (!head.arrived()) return false;
  const std::uint64_t size = head.descriptor.payload_bytes;
  auto storage = Storage::allocate(size);
  if (!storage) return false;
  destination_.move_away(head.descriptor.layout, {storage->data(), size});
  head.body.place = IncomingBody::Place::pool_slot;
  head.body.data = storage->data();
  head.body.owner = storage->owner();
  return true;
}

// True: `taken` holds the next message. Filled in place: a message is moved as seldom as possible.
Result<bool> PipeReceiver::try_take(Want want, RecvMode mode, const TensorDict* destination,
                                    Taken& taken) {
  bool took = false;
  Descriptor credit;
  {
    Receiving receiving(context_, link_);
    channel_.receive_mutex().assert_held();
    Head head = look();
    if (head == Head::nothing && !link_.ended() && receiving.poll()) head = look();
    // Messages for which asynchronous receives wait are theirs.
    if (head == Head::message && posted_.is_empty() && destination_free(destination)) {
      TENDON_TRY(lend, check_take(want, mode, destination));
      credit = take(mode, destination, lend, taken);
      TENDON_STAGE(taken);
      took = true;
    } else if (head == Head::over && posted_.is_empty()) {
      return over();
    }
  }
  if (credit.pipe != 0) link_.post(credit);
  return took;
}

// Making a taken message into the user's values

Result<TensorDict> PipeReceiver::to_tensors(Taken& taken) {
  if (taken.put_back != nullptr) return *std::move(taken.put_back->message.tensors);
  if (const Error* failure = taken.incoming.body.failure()) return *failure;
  TENDON_CHECK(check_schema(taken, link_));
  TENDON_TRY(values, read_values(taken, link_));
  IncomingBody& body = taken.incoming.body;
  const Layout layout = taken.incoming.descriptor.layout;
  const std::uint64_t size = taken.incoming.descriptor.payload_bytes;
  Storage storage;
  if (body.place == IncomingBody::Place::claimed) {
    if (!taken.written_to) {
      return Error{ErrorCode::internal, "pipe.recv",
                   "a message lies in the destination of nobody; please report it"};
    }
    TENDON_TRY(fresh, Storage::allocate(size));
    pack_piece(*taken.written_to, layout, 0, {fresh.data(), size});
    storage = std::move(fresh);
  } else if (size != 0 && !taken.lent && body.place != IncomingBody::Place::private_copy) {
    TENDON_TRY(fresh, copy_out(body.data, size));
    storage = std::move(fresh);
    body = {};  // returns the slot now
  } else {
    const Origin origin =
        body.place == IncomingBody::Place::peer_slot ? Origin::peer_slot : Origin::here;
    storage = Storage(std::move(body.owner), body.data, size, body.access, origin);
  }
  return make_packed(std::move(taken.schema), layout, std::move(storage), std::move(values));
}

Result<Message> PipeReceiver::to_message(Taken taken) {
  if (taken.put_back != nullptr) return std::move(taken.put_back->message);
  Message message;
  const Descriptor descriptor = taken.incoming.descriptor;
  message.tag = descriptor.tag;
  if (const Error* failure = taken.incoming.body.failure()) return *failure;
  if (descriptor.kind == MessageKind::data) {
    TENDON_TRY(tensors, to_tensors(taken));
    message.tensors = std::move(tensors);
    return message;
  }
  IncomingBody& body = taken.incoming.body;
  const std::uint64_t size = descriptor.payload_bytes;
  const std::uint64_t whole = descriptor.body_bytes();
  if (whole == 0) return message;
  Storage all(body.owner, body.data, whole, body.access,
              body.place == IncomingBody::Place::peer_slot ? Origin::peer_slot : Origin::here);
  if (!taken.lent && body.place == IncomingBody::Place::peer_slot) {
    TENDON_TRY(fresh, copy_out(body.data, whole));
    all = std::move(fresh);
    body = {};
  }
  message.bytes = all.part(0, size);
  message.header = all.part(size + descriptor.values_bytes, descriptor.header_bytes).read_only();
  return message;
}

Error PipeReceiver::keep_for_later(const Taken& taken, TensorDict tensors,
                                   std::uint64_t copied_bytes) {
  PutBack returned;
  returned.number = taken.number;
  returned.message.tensors = std::move(tensors);
  returned.copied_bytes = copied_bytes;
  returned.placement = taken.placement;
  put_back(std::move(returned), Place::before_equals);
  return Error{ErrorCode::timeout, "pipe.recv_into",
               "the deadline passed after " + std::to_string(copied_bytes) +
                   " bytes were copied; the message from " + link_.peer_name() +
                   " stays in the pipe, its destination is unspecified until the next "
                   "recv_into"};
}

Result<void> PipeReceiver::copy_into(Taken& taken, TensorDict& destination, Deadline deadline) {
  const IncomingBody& body = taken.incoming.body;
  const Layout layout = taken.incoming.descriptor.layout;
  const std::uint64_t size = taken.incoming.descriptor.payload_bytes;
  TENDON_TRY(values, read_values(taken, link_));
  if (values != nullptr) TENDON_CHECK(check_values(*taken.schema, *values));
  if (body.place == IncomingBody::Place::claimed) {
    const bool in_place = !taken.written_to || same_memory(*taken.written_to, destination);
    if (!in_place) {
      TENDON_TRY(between, Storage::allocate(size));
      pack_piece(*taken.written_to, layout, 0, {between.data(), size});
      unpack_piece(between.bytes(), destination, layout, 0);
    }
  } else {
    const std::uint64_t copied = copy_pieces({body.data, size}, layout, destination, 0, deadline);
    if (copied != size) {
      taken.lent = true;  // it stays for the next call
      TENDON_TRY(tensors, to_tensors(taken));
      return keep_for_later(taken, std::move(tensors), copied);
    }
  }
  taken.values = std::move(values);
  return taken.values == nullptr ? Result<void>() : Tree::merge_values(destination, *taken.values);
}

// Blocking receives

Result<void> PipeReceiver::wait_take(Want want, RecvMode mode, const TensorDict* destination,
                                     Deadline deadline, std::string_view where, Taken& taken) {
  TENDON_CHECK(context_.usable(where));
  std::optional<Error> error;
  bool waited = false;
  const auto attempt = [&] {
    if (context_.unusable()) {
      error = context_.usable(where).error();
      return true;
    }
    // Receives that were posted before are first.
    if (posted_.count() != 0) (void)posted_.progress();
    const auto result = try_take(want, mode, destination, taken);
    if (!result) error = result.error();
    const bool done = !result || *result;
    waited = waited || !done;
    return done;
  };
  const bool done = context_.wait(&link_, deadline, attempt);
  if (waited && !deadline.is_poll()) end_.waits.fetch_add(1, std::memory_order_relaxed);
  if (error) return *std::move(error);
  if (done) return {};
  const Lock receiving(channel_.receive_mutex());
  return Error{
      ErrorCode::timeout, where,
      (head_is_direct() ? "the GPU of " + link_.peer_name() +
                              " had not made the next message before the deadline"
                        : "nothing came from " + link_.peer_name() + " before the deadline") +
          (link_.suspect() ? "; it gives no sign of life" : "")};
}

Result<TensorDict> PipeReceiver::recv(const RecvOptions& options, Deadline deadline) {
  const Busy busy(user_receiving_);
  if (!busy.mine()) return end_.busy("recv");
  Want want = Want::tensors;
  std::shared_ptr<cuda::Gpu> gpu;
  if (options.device) {
    TENDON_CHECK(context_.usable("pipe.recv"));
    TENDON_TRY(wanted, wanted_gpu(options.device, "pipe.recv", deadline));
    want = wanted == nullptr ? Want::on_cpu : Want::on_gpu;
    gpu = std::move(wanted);
  }
  Taken taken;
  TENDON_CHECK(wait_take(want, options.mode, nullptr, deadline, "pipe.recv", taken));
  if (taken.is_direct()) return deliver_direct(taken, want, std::move(gpu), options, deadline);
  const bool stays = want == Want::on_cpu || (want == Want::tensors && taken.placement == nullptr);
  if (stays) return to_tensors(taken);
  return deliver(taken, std::move(gpu), options, deadline);
}

// A failure puts the message back, for another try or another place.
Result<TensorDict> PipeReceiver::deliver(Taken& taken, std::shared_ptr<cuda::Gpu> gpu,
                                         const RecvOptions& options, Deadline deadline) {
  PutBack returned;
  returned.number = taken.number;
  returned.placement = taken.placement;
  const Placement* const placement = gpu == nullptr ? returned.placement.get() : nullptr;
  const bool is_passing = taken.put_back == nullptr &&
                          taken.incoming.body.place == IncomingBody::Place::peer_slot &&
                          (placement == nullptr || placement->is_all_on_gpu());
  TENDON_TRY(batch, to_tensors(taken));
  if (gpu != nullptr && lies_on(batch, gpu->context()->device()))
    return batch;  // it was put back
                   // before
  const auto copied = [&]() -> Result<TensorDict> {
    if (gpu == nullptr) {
      TENDON_TRY(found, cuda::find_process_gpu(placement->gpu, deadline));
      gpu = std::move(found);
    }
    return copy_to_gpu(batch,
                       {.gpu = gpu,
                        .pool = context_.memory().devices->of(gpu),
                        .stream = static_cast<cuda::StreamHandle>(options.stream),
                        .placement = placement},
                       "pipe.recv", deadline);
  };
  auto delivered = copied();
  if (!delivered) {
    // It has a slot of the peer that was not lent for long.
    if (is_passing) {
      if (auto own = private_copy(batch)) batch = *std::move(own);
    }
    returned.message.tensors = std::move(batch);
    put_back(std::move(returned), Place::before_equals);
    return delivered;
  }
  note_copy(bytes_on_gpu(*batch.schema(), placement), DeviceCopyKind::h2d);
  return delivered;
}

// Messages whose tensors lie on a GPU, in memory of the peer

// The bytes are there, so any stream may read them.
Result<TensorDict> PipeReceiver::in_host_memory(const DirectMessage& message, Taken& taken,
                                                Deadline deadline) {
  const std::function<Result<void>()> usable = [this] { return context_.usable("pipe.recv"); };
  TENDON_TRY(copied, direct_to_host(message,
                                    {.context = end_.context,
                                     .link = &link_,
                                     .where = "pipe.recv",
                                     .usable = usable,
                                     .patience = taken.patience},
                                    deadline));
  note_copy(bytes_on_gpu(*message.schema, message.placement.get()), DeviceCopyKind::d2h);
  return copied;
}

// A failure puts the message back, as in deliver().
Result<TensorDict> PipeReceiver::deliver_direct(Taken& taken, Want want,
                                                std::shared_ptr<cuda::Gpu> gpu,
                                                const RecvOptions& options, Deadline deadline) {
  TENDON_TRY(message, read_direct(taken, link_));
  const auto& there = message.body->gpu();
  const bool is_all_there = message.placement->is_all_on_gpu();
  const bool stays =
      want != Want::on_cpu &&
      (gpu == nullptr || (is_all_there && gpu->context()->device() == there->context()->device()));
  const auto stream = static_cast<cuda::StreamHandle>(options.stream);
  const bool may_stay =
      options.mode != RecvMode::copy && options.device_mode != RecvMode::copy && views_.has_room();
  if (stays && may_stay) {
    // Another GPU's stream would prove nothing when the batch is dropped.
    if (auto checked = cuda::StreamWork::begin(there, stream, "pipe.recv"); !checked) {
      put_back(untaken(taken), Place::before_equals);
      return std::move(checked).error();
    }
    return direct_batch(message, cuda::deliver(there, views_.counted(message.body), stream));
  }
  const auto copied = [&]() -> Result<TensorDict> {
    if (options.mode == RecvMode::view_only || options.device_mode == RecvMode::view_only) {
      return Error{
          ErrorCode::no_credit, "pipe.recv",
          "a view cannot be lent: " +
              (stays ? "this program holds " + std::to_string(DirectViews::kMost) + " of what " +
                           link_.peer_name() + " sent on a GPU; release some"
                     : "the tensors lie elsewhere, on " + to_string(there->context()->device())) +
              ", or use RecvMode::view_or_copy"};
    }
    if (want == Want::on_cpu) return in_host_memory(message, taken, deadline);
    const auto& target = gpu == nullptr ? there : gpu;
    const bool is_elsewhere = target->context()->device() != there->context()->device();
    // Whether one GPU may read the memory of the other is not checked: the copy uses the host.
    TENDON_TRY(batch, is_elsewhere ? in_host_memory(message, taken, deadline)
                                   : direct_batch(message, message.body));
    TENDON_TRY(fresh, copy_to_gpu(batch,
                                  {.gpu = target,
                                   .pool = context_.memory().devices->of(target),
                                   .stream = stream,
                                   .placement = gpu == nullptr ? message.placement.get() : nullptr},
                                  "pipe.recv", deadline));
    const std::uint64_t size =
        bytes_on_gpu(*message.schema, gpu == nullptr ? message.placement.get() : nullptr);
    note_copy(size, is_elsewhere ? DeviceCopyKind::h2d : DeviceCopyKind::d2d);
    return fresh;
  };
  auto delivered = copied();
  if (!delivered) put_back(untaken(taken), Place::before_equals);
  return delivered;
}

Result<void> PipeReceiver::fill_direct(Taken& taken, TensorDict& destination, Deadline deadline) {
  TENDON_TRY(message, read_direct(taken, link_));
  auto batch = in_host_memory(message, taken, deadline);
  if (!batch) {
    put_back(untaken(taken), Place::before_equals);
    return std::move(batch).error();
  }
  for (std::size_t i = 0; i < batch->leaf_count(); ++i)
    copy_strided(destination.leaf(i), batch->leaf(i));
  taken.values = batch->values();
  return taken.values == nullptr ? Result<void>() : Tree::merge_values(destination, *taken.values);
}

Result<Message> PipeReceiver::recv_message(Deadline deadline) {
  const Busy busy(user_receiving_);
  if (!busy.mine()) return end_.busy("recv");
  Taken taken;
  TENDON_CHECK(
      wait_take(Want::any, RecvMode::view_or_copy, nullptr, deadline, "pipe.recv_message", taken));
  if (taken.placement == nullptr && !taken.is_direct()) return to_message(std::move(taken));
  Message message;
  message.tag = taken.incoming.descriptor.tag;
  TENDON_TRY(tensors, taken.is_direct() ? deliver_direct(taken, Want::any, nullptr,
                                                         {.device_mode = RecvMode::copy}, deadline)
                                        : deliver(taken, nullptr, {}, deadline));
  message.tensors = std::move(tensors);
  return message;
}

Result<void> PipeReceiver::recv_into(TensorDict& destination, const OnStream& on,
                                     Deadline deadline) {
  TENDON_CHECK(context_.usable("pipe.recv_into"));
  const Busy busy(user_receiving_);
  if (!busy.mine()) return end_.busy("recv_into");
  if (auto legal = check_destination(destination); !legal) {
    if (legal.error().code != ErrorCode::unsupported_device) return legal;
    return recv_into_gpu(destination, on, deadline);
  }
  {
    const Lock receiving(channel_.receive_mutex());
    waiting_ = &destination;
  }
  Taken taken;
  auto waited =
      wait_take(Want::tensors, RecvMode::copy, &destination, deadline, "pipe.recv_into", taken);
  {
    const Lock receiving(channel_.receive_mutex());
    waiting_ = nullptr;
    (void)keep_claim(destination);
  }
  if (!waited) return waited;
  TENDON_CHECK(fill(taken, destination, deadline));
  filled_values_ = std::move(taken.values);
  filled_placement_ = std::move(taken.placement);
  return {};
}

// Without a claim: tcp does not write to memory of a GPU.
Result<void> PipeReceiver::recv_into_gpu(TensorDict& destination, const OnStream& on,
                                         Deadline deadline) {
  constexpr std::string_view kWhere = "pipe.recv_into";
  TENDON_TRY(device, gpu_of(destination, kWhere));
  TENDON_CHECK(check_writable(destination));
  TENDON_TRY(gpu, wanted_gpu(device, kWhere, deadline));
  TENDON_TRY(work,
             cuda::StreamWork::begin(gpu, static_cast<cuda::StreamHandle>(on.stream), kWhere));
  filled_values_.reset();
  Taken taken;
  TENDON_CHECK(
      wait_take(Want::on_gpu, RecvMode::view_or_copy, &destination, deadline, kWhere, taken));
  TENDON_TRY(copy, copy_to_leaves(taken, destination, work, deadline));
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < destination.leaf_count(); ++i)
    if (const LeafView leaf = leaf_view(destination, i); leaf.device != cpu())
      size += leaf.size_bytes;
  note_copy(size, copy);
  return {};
}

Result<DeviceCopyKind> PipeReceiver::copy_to_leaves(Taken& taken, TensorDict& destination,
                                                    cuda::StreamWork& work, Deadline deadline) {
  const bool is_direct = taken.is_direct();
  const bool is_passing = !is_direct && taken.put_back == nullptr &&
                          taken.incoming.body.place == IncomingBody::Place::peer_slot;
  DeviceCopyKind copy = is_direct ? DeviceCopyKind::d2d : DeviceCopyKind::h2d;
  PutBack returned;
  returned.number = taken.number;
  returned.placement = taken.placement;
  const auto source = [&]() -> Result<TensorDict> {
    if (!is_direct) return to_tensors(taken);
    TENDON_TRY(message, read_direct(taken, link_));
    // Leaves that leave their GPU must be awaited.
    const Device there = message.body->gpu()->context()->device();
    for (std::size_t i = 0; i < destination.leaf_count(); ++i) {
      if (!message.placement->is_on_gpu(i) || leaf_view(destination, i).device == there) continue;
      copy = DeviceCopyKind::h2d;
      auto host = in_host_memory(message, taken, deadline);
      if (!host) put_back(untaken(taken), Place::before_equals);
      return host;
    }
    return direct_batch(message, message.body);
  };
  TENDON_TRY(batch, source());
  auto copied = copy_into_leaves(batch, destination, work);
  if (copied && batch.values() != nullptr)
    copied = Tree::merge_values(destination, *batch.values());
  if (copied) return copy;
  if (is_direct) {
    put_back(untaken(taken), Place::before_equals);
    return std::move(copied).error();
  }
  // It has a slot of the peer that was not lent for long.
  if (is_passing) {
    if (auto own = private_copy(batch)) batch = *std::move(own);
  }
  returned.message.tensors = std::move(batch);
  put_back(std::move(returned), Place::before_equals);
  return std::move(copied).error();
}

// Placed before all numbered ones, also those that other receives put back.
void PipeReceiver::give_back(Message message) {
  if (context_.unusable()) return;
  put_back({.message = std::move(message), .number = 0});
}

Result<void> PipeReceiver::give_back_from(const TensorDict& destination) {
  TENDON_CHECK(context_.usable("pipe.give_back_from"));
  if (!filled_values_) {
    return Error{ErrorCode::invalid_argument, "pipe.give_back_from",
                 "there was no recv_into() whose message is not given back"};
  }
  TENDON_TRY(batch, message_in(destination, *std::exchange(filled_values_, std::nullopt)));
  if (context_.unusable()) return {};
  PutBack returned;
  returned.message.tensors = std::move(batch);
  returned.placement = std::move(filled_placement_);
  put_back(std::move(returned));
  return {};
}

// A receive times out while a message is written to its destination, or lies there. The message
// stays in the pipe and the memory with it, if it can still be taken; else nothing is written there
// any more. Returns whether the transport still writes there.
bool PipeReceiver::keep_claim(const TensorDict& destination) {
  if (!destination_.belongs_to(&destination)) return false;
  if (!channel_.receiver().empty() &&
      channel_.receiver().front().place() == IncomingBody::Place::claimed)
    destination_.keep();
  else
    drop_claim();
  return destination_.is_written_to();
}

Result<void> PipeReceiver::fill(Taken& taken, TensorDict& destination, Deadline deadline) {
  if (taken.is_direct()) return fill_direct(taken, destination, deadline);
  if (taken.put_back == nullptr) {
    if (const Error* failure = taken.incoming.body.failure()) return *failure;
    TENDON_CHECK(check_schema(taken, link_));
    return copy_into(taken, destination, deadline);
  }
  const TensorDict& source = *taken.put_back->message.tensors;
  const PackedView* packed = packed_view(source);
  if (packed != nullptr) {
    const std::uint64_t size = packed->schema->layout(packed->layout).total_bytes;
    const std::uint64_t copied = copy_pieces(packed->storage.bytes().first(size), packed->layout,
                                             destination, taken.put_back->copied_bytes, deadline);
    if (copied != size)
      return keep_for_later(taken, *std::move(taken.put_back->message.tensors), copied);
  } else {
    for (std::size_t i = 0; i < source.leaf_count(); ++i)
      copy_strided(destination.leaf(i), source.leaf(i));
  }
  taken.values = source.values();
  return taken.values == nullptr ? Result<void>() : Tree::merge_values(destination, *taken.values);
}

void PipeReceiver::put_back(PutBack returned, Place place) {
  // A message on a GPU that is lost to this process is lost with it.
  if (returned.untaken != nullptr && is_lost(*returned.untaken)) {
    const Lock receiving(channel_.receive_mutex());
    ++stats_.incomplete;
    return;
  }
  {
    const Lock receiving(channel_.receive_mutex());
    const auto first =
        std::ranges::lower_bound(put_back_, returned.number, std::less(), &PutBack::number);
    const auto behind =
        std::ranges::upper_bound(put_back_, returned.number, std::less(), &PutBack::number);
    put_back_.insert(place == Place::before_equals ? first : behind, std::move(returned));
  }
  context_.wake_others();
}

void PipeReceiver::note_copy(std::uint64_t bytes, DeviceCopyKind copy) {
  const Lock receiving(channel_.receive_mutex());
  switch (copy) {
    case DeviceCopyKind::h2d:
      ++stats_.copies_h2d;
      stats_.bytes_h2d += bytes;
      break;
    case DeviceCopyKind::d2h:
      ++stats_.copies_d2h;
      stats_.bytes_d2h += bytes;
      break;
    case DeviceCopyKind::d2d:
      ++stats_.copies_d2d;
      stats_.bytes_d2d += bytes;
  }
}

PipeStats PipeReceiver::stats() const {
  const Lock receiving(channel_.receive_mutex());
  PipeStats stats = stats_;
  stats.dropped += channel_.late_count();
  stats.incomplete += channel_.receiver().incomplete_count();
  return stats;
}

}  // namespace tendon::v0::detail
