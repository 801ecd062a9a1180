// SPDX-License-Identifier: Apache-2.0
#include "group/messages/point_to_point.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/packed.hpp>

#include "group/operands/flat.hpp"
#include "group/operands/share.hpp"
#include "runtime/awaited.hpp"
#include "tensor/copy.hpp"

namespace tendon::v0::detail {
namespace {

// The kinds of contents of a message, in Envelope::op.
constexpr std::uint8_t kTensors = 0;
constexpr std::uint8_t kWholeDict = 1;

/// Stands before the payload of a whole dict: lengths of the following parts.
struct DictHead {
  std::uint64_t schema_bytes = 0;
  std::uint64_t values_bytes = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t reserved = 0;
};

std::string group_text(const GroupCore& core) { return " on group \"" + core.name() + "\""; }

Result<void> check_rank(const GroupCore& core, const Epoch& epoch, GroupRank rank,
                        std::string_view what) {
  if (rank.value < epoch.size() && rank != epoch.self) return {};
  return Error{ErrorCode::invalid_argument, "group.message",
               std::string(what) + group_text(core) + ": rank " + std::to_string(rank.value) +
                   (rank == epoch.self ? " is this member itself"
                                       : " of " + std::to_string(epoch.size()) + " members")};
}

/// Reports a wait to Group::status() once the first look was in vain.
class WaitsSoon {
 public:
  WaitsSoon(GroupCore& core, std::string_view what, std::optional<GroupRank> peer)
      : core_(core), what_(what), peer_(peer) {}
  /// Call it after a look in vain; returns false.
  [[nodiscard]] bool not_yet() {
    if (!here_) here_.emplace(core_.waits(), what_, peer_);
    return false;
  }

 private:
  GroupCore& core_;
  const std::string_view what_;
  const std::optional<GroupRank> peer_;
  std::optional<MessageWaits::Here> here_;
};

/// A message under way, and all that it needs until it has left.
struct Sending {
  std::shared_ptr<Epoch> epoch;
  GroupRank rank;
  Flat flat;
  std::vector<std::byte> head;
  std::shared_ptr<Outbound> outbound = std::make_shared<Outbound>();

  [[nodiscard]] MemberChannel& channel() const { return *epoch->channels[rank]; }
  [[nodiscard]] bool done() const { return outbound->done.load(std::memory_order_acquire); }
  /// Its result, once it is done. A receiver that took it and then left did not lose it.
  [[nodiscard]] Result<void> outcome(const GroupCore& core) const {
    if (outbound->handed_over.load(std::memory_order_relaxed)) return {};
    if (auto gone = core.lost(*epoch, rank)) return *std::move(gone);
    const Error& why = *outbound->failure;
    // The group is about to hear of it.
    if (why.code == ErrorCode::end_of_stream || why.code == ErrorCode::peer_lost)
      return error_of_gone(*epoch, rank, why);
    return why;
  }
};

Result<void> begin(GroupCore& core, Sending& sending, To to, std::string_view what, Hold hold,
                   const Tensors& tensors) {
  sending.epoch = core.epoch();
  sending.rank = to.rank;
  if (auto failed = core.failure(what)) return *std::move(failed);
  TENDON_CHECK(check_rank(core, *sending.epoch, sending.rank, what));
  if (auto gone = core.lost(*sending.epoch, sending.rank)) return *std::move(gone);
  TENDON_TRY(flat, Flat::make(tensors, Use::read, hold, "group.send"));
  sending.flat = std::move(flat);
  Outbound& out = *sending.outbound;
  out.envelope = {.kind = EnvelopeKind::message,
                  .from = sending.epoch->places[sending.epoch->self],
                  .group = core.id(),
                  .epoch = sending.epoch->number(),
                  .count = sending.flat.size_bytes(),
                  .extra = sending.flat.shape_hash(),
                  .tag = to.tag};
  if (const auto dtype = sending.flat.dtype())
    out.envelope.dtype = static_cast<std::uint8_t>(*dtype);
  return {};
}

void queue(GroupCore& core, Sending& sending) {
  Outbound& out = *sending.outbound;
  const std::uint64_t head = sending.head.size();
  if (head != 0) {
    out.envelope.op = kWholeDict;
    out.parts.push_back({0, sending.head, nullptr, head});
  }
  for (const Flat::Run& run : sending.flat.runs())
    out.parts.push_back(
        {head + run.begin, Bytes(run.data, run.size_bytes), nullptr, run.size_bytes});
  sending.channel().queue(sending.outbound);
  if (!sending.done()) core.mesh()->keep_sending();
}

Result<void> finish_sending(GroupCore& core, Sending& sending, std::string_view what,
                            Deadline deadline) {
  Link& link = sending.channel().link();
  WaitsSoon waits(core, what, sending.rank);
  const bool done = core.context()->wait(&link, deadline, [&] {
    if (sending.done() || core.context()->unusable()) return true;
    core.context()->poll_link(link);
    sending.channel().advance();
    return sending.done() || waits.not_yet();
  });
  if (!done && sending.channel().withdraw(*sending.outbound)) {
    return Error{ErrorCode::timeout, "group.send",
                 std::string(what) + group_text(core) + ": " + sending.epoch->names[sending.rank] +
                     " has not taken what was sent to it before; nothing of this was delivered"};
  }
  TENDON_CHECK(core.context()->usable("group.send"));
  return sending.outcome(core);
}

/// The request of a receive.
struct Wanted {
  std::shared_ptr<Epoch> epoch;
  std::optional<GroupRank> rank;
  std::optional<std::uint32_t> tag;

  [[nodiscard]] Link* link() const { return rank ? &epoch->channels[*rank]->link() : nullptr; }
  [[nodiscard]] std::optional<GroupPlace> place() const {
    return rank ? std::optional(epoch->places[*rank]) : std::nullopt;
  }
};

Result<Wanted> want(GroupCore& core, From from, std::string_view what) {
  TENDON_CHECK(core.check_process("group.recv"));
  Wanted wanted{core.epoch(), {}, from.tag};
  if (!from.rank) return wanted;
  // Messages that arrived before a failure can still be taken; look() reports the rest.
  TENDON_CHECK(check_rank(core, *wanted.epoch, *from.rank, what));
  wanted.rank = from.rank;
  return wanted;
}

/// A receive that has its turn among those of the group, from its call until it is withdrawn.
class PostedReceive {
 public:
  PostedReceive(GroupCore& core, const Wanted& wanted)
      : core_(core), receive_{wanted.place(), wanted.tag} {
    core_.messages().post(receive_);
  }
  PostedReceive(const PostedReceive&) = delete;
  PostedReceive& operator=(const PostedReceive&) = delete;
  // In a forked child a thread that is not there may hold the box.
  ~PostedReceive() {
    if (!core_.context()->forked()) withdraw();
  }
  void withdraw() {
    if (!std::exchange(waits_, false)) return;
    if (core_.messages().withdraw(receive_)) core_.context()->wake_for_work();
  }
  template <class F>
  [[nodiscard]] Result<std::optional<MessageBox::Entry>> take(F accepts) {
    auto taken = core_.messages().take(receive_, accepts);
    if (taken && *taken) waits_ = false;
    return taken;
  }
  [[nodiscard]] bool has_message() const noexcept { return receive_.match != 0; }

 private:
  GroupCore& core_;
  MessageBox::Receive receive_;
  bool waits_ = true;
};

// The next message that fits; nullopt: none yet.
template <class F>
Result<std::optional<MessageBox::Entry>> look(GroupCore& core, const Wanted& wanted,
                                              PostedReceive& posted, std::string_view what,
                                              F accepts) {
  TENDON_TRY(taken, posted.take(accepts));
  if (taken) return taken;
  if (auto failed = core.failure(what)) return *std::move(failed);
  if (wanted.rank) {
    if (auto gone = core.gone(*wanted.epoch, *wanted.rank)) {
      // Its last message may have arrived between the two looks.
      TENDON_TRY(last, posted.take(accepts));
      if (last) return last;
      return *std::move(gone);
    }
  }
  return std::optional<MessageBox::Entry>();
}

template <class F>
Result<MessageBox::Entry> wait_for(GroupCore& core, const Wanted& wanted, std::string_view what,
                                   Deadline deadline, F accepts) {
  Result<std::optional<MessageBox::Entry>> found = std::optional<MessageBox::Entry>();
  PostedReceive posted(core, wanted);
  Link* const link = wanted.link();
  WaitsSoon waits(core, what, wanted.rank);
  const bool done = core.context()->wait(link, deadline, [&] {
    if (link != nullptr) core.context()->poll_link(*link);
    found = look(core, wanted, posted, what, accepts);
    return !found || *found || core.context()->unusable() || waits.not_yet();
  });
  TENDON_CHECK(core.context()->usable("group.recv"));
  if (!found) return std::move(found).error();
  if (!done || !*found) {
    return Error{ErrorCode::timeout, "group.recv",
                 std::string(what) + group_text(core) + ": nothing came from " +
                     (wanted.rank ? wanted.epoch->names[*wanted.rank] : "anybody") +
                     (wanted.tag ? " with tag " + std::to_string(*wanted.tag) : std::string())};
  }
  return **std::move(found);
}

Error other_kind(const MessageBox::Entry& entry) {
  return Error{ErrorCode::wrong_kind, "group.recv",
               entry.inbound.envelope.op == kWholeDict
                   ? "the next message is a whole TensorDict: take it with from_remote_init"
                   : "the next message is tensors of known shapes: take it with recv"};
}

// Checks that this message fits those tensors.
Result<void> fits(const Flat& flat, const Epoch& epoch, const MessageBox::Entry& entry) {
  const Envelope& envelope = entry.inbound.envelope;
  if (envelope.op != kTensors) return other_kind(entry);
  if (envelope.count == flat.size_bytes() && envelope.extra == flat.shape_hash() &&
      entry.inbound.size_bytes == flat.size_bytes())
    return {};
  const auto dtype = dtype_from_number(envelope.dtype);
  const auto rank = epoch.rank_at(entry.place);
  return Error{ErrorCode::mismatch, "group.recv",
               (rank ? epoch.names[*rank] : std::string("a former member")) + " sent " +
                   std::to_string(envelope.count) + " bytes" +
                   (dtype ? " of " + std::string(to_string(*dtype)) : std::string()) +
                   ", this member expects " + to_string(flat.summary()) +
                   (envelope.count == flat.size_bytes() ? ": another shape or dtype" : "")};
}

Received received_of(const Epoch& epoch, const MessageBox::Entry& entry) {
  const GroupRank former{epoch.size()};  // no member of this epoch
  return {.rank = epoch.rank_at(entry.place).value_or(former),
          .tag = entry.inbound.envelope.tag,
          .place = entry.place.value,
          .number = entry.number};
}

Received take_in(const Epoch& epoch, const MessageBox::Entry& entry, Flat& flat) {
  flat.write(0, entry.inbound.payload());
  flat.finish();
  entry.inbound.credit();
  return received_of(epoch, entry);
}

// Puts a taken message back to its place, with bytes of its own.
void put_back(GroupCore& core, MessageBox::Entry&& entry, const Storage& bytes) {
  InboundMessage& inbound = entry.inbound;
  inbound.size_bytes = bytes.size_bytes();
  inbound.body.place = IncomingBody::Place::private_copy;
  inbound.body.data = bytes.data();
  inbound.body.owner = bytes.owner();
  core.messages().put_back(std::move(entry));
  core.context()->wake_for_work();
}

// The same for the caller's tensors: `head` before the data of `flat`.
Result<void> put_back(GroupCore& core, const Received& received, const Flat& flat,
                      std::span<const std::byte> head) {
  if (received.number == 0) {
    return Error{ErrorCode::invalid_argument, "group.give_back",
                 "it was not received: the number of a message is 1 or more"};
  }
  TENDON_CHECK(core.context()->usable("group.give_back"));
  TENDON_TRY(bytes, Storage::allocate(head.size() + flat.size_bytes()));
  std::ranges::copy(head, bytes.data());
  flat.read(0, {bytes.data() + head.size(), flat.size_bytes()});
  MessageBox::Entry entry{.place = {received.place}, .number = received.number, .inbound = {}};
  Envelope& envelope = entry.inbound.envelope;
  envelope.kind = EnvelopeKind::message;
  envelope.op = head.empty() ? kTensors : kWholeDict;
  if (const auto dtype = flat.dtype()) envelope.dtype = static_cast<std::uint8_t>(*dtype);
  envelope.group = core.id();
  envelope.count = flat.size_bytes();
  envelope.extra = flat.shape_hash();
  envelope.tag = received.tag;
  put_back(core, std::move(entry), bytes);
  return {};
}

Result<std::vector<std::byte>> head_of(const TensorDict& dict, std::uint64_t tensor_bytes) {
  const Bytes schema = dict.schema()->encoding();
  std::string values;
  if (dict.values() != nullptr) {
    TENDON_TRY(text, to_json(*dict.values()));
    values = std::move(text);
  }
  const DictHead head{schema.size(), values.size(), tensor_bytes, 0};
  // Tensors begin at a multiple of 64.
  std::vector<std::byte> bytes(aligned(sizeof head + schema.size() + values.size()));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, schema.data(), schema.size());
  std::memcpy(bytes.data() + sizeof head + schema.size(), values.data(), values.size());
  return bytes;
}

// Reads a whole dict from a peer's bytes, which are not trusted.
Result<TensorDict> read_dict(Bytes bytes) {
  const auto corrupt = [](std::string_view what) {
    return Error{ErrorCode::corrupt_data, "group.from_remote_init",
                 "the message is no TensorDict: " + std::string(what)};
  };
  DictHead head;
  if (bytes.size() < sizeof head) return corrupt("it is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  Bytes rest = bytes.subspan(sizeof head);
  if (head.schema_bytes > std::min(rest.size(), kMaxSchemaBytes))
    return corrupt("its schema is cut off, or too long");
  if (head.values_bytes > std::min(rest.size() - head.schema_bytes, kMaxValuesBytes))
    return corrupt("its values are cut off, or too long");
  // A copy: the peer may still write to the message, and the checked bytes must be the used ones.
  const std::vector<std::byte> text(
      rest.begin(),
      rest.begin() + static_cast<std::ptrdiff_t>(head.schema_bytes + head.values_bytes));
  const Bytes encoding = Bytes(text).first(head.schema_bytes);
  const Bytes json = Bytes(text).subspan(head.schema_bytes);
  TENDON_TRY(schema, Schema::decode(encoding));
  std::shared_ptr<const Value> values;
  if (!json.empty()) {
    TENDON_TRY(parsed, parse_json(json));
    values = std::make_shared<const Value>(std::move(parsed));
  }
  const std::uint64_t begin = aligned(sizeof head + encoding.size() + json.size());
  const std::uint64_t needed = schema->layout(Layout::aligned).total_bytes;
  // Flat leaves out the padding after the last leaf.
  if (begin > bytes.size() || head.tensor_bytes != bytes.size() - begin ||
      head.tensor_bytes > needed || needed - head.tensor_bytes >= 64)
    return corrupt("its tensors are cut off");
  TENDON_TRY(memory, Storage::allocate(needed));
  std::ranges::copy(bytes.subspan(begin), memory.data());
  return make_packed(std::move(schema), Layout::aligned, std::move(memory), std::move(values));
}

class SendCompletion final : public Awaited<void>, public Work {
 public:
  SendCompletion(std::shared_ptr<GroupCore> core, Sending sending)
      : Awaited(*core->context()), core_(std::move(core)), sending_(std::move(sending)) {}
  void drive(Deadline deadline) override {
    Link& link = sending_.channel().link();
    const MessageWaits::Here here(core_->waits(), "send", sending_.rank);
    (void)core_->context()->wait(&link, deadline, [&] {
      core_->context()->poll_link(link);
      return !progress();
    });
  }
  void cancel() override {
    if (finished() || !sending_.channel().withdraw(*sending_.outbound)) return;
    end(Error{ErrorCode::cancelled, "completion.cancel", "the send was cancelled"});
  }
  void abandon() override {}
  bool progress() override {
    if (finished()) return false;
    if (!core_->context()->unusable()) sending_.channel().advance();
    if (auto usable = core_->context()->usable("group.send"); !usable) {
      end(std::move(usable));
    } else if (sending_.done()) {
      end(sending_.outcome(*core_));
    }
    return !finished();
  }
  [[nodiscard]] bool has_input() const noexcept override { return sending_.done() && !finished(); }

 private:
  void end(Result<void> result) {
    if (ended_.exchange(true)) return;
    conclude(std::move(result));
  }
  const std::shared_ptr<GroupCore> core_;
  Sending sending_;
  std::atomic<bool> ended_{false};
};

class RecvCompletion final : public Awaited<Received>, public Work {
 public:
  RecvCompletion(std::shared_ptr<GroupCore> core, Wanted wanted, Flat flat)
      : Awaited(*core->context()),
        core_(std::move(core)),
        wanted_(std::move(wanted)),
        flat_(std::move(flat)) {}
  /// Call it once, first. True: it continues as a Work.
  [[nodiscard]] bool begin() {
    posted_.emplace(*core_, wanted_);
    return progress();
  }
  void drive(Deadline deadline) override {
    Link* const link = wanted_.link();
    const MessageWaits::Here here(core_->waits(), "recv", wanted_.rank);
    (void)core_->context()->wait(link, deadline, [&] {
      if (link != nullptr) core_->context()->poll_link(*link);
      return !progress();
    });
  }
  void cancel() override {
    const Lock lock(mutex_);
    end(Error{ErrorCode::cancelled, "completion.cancel", "the receive was cancelled"});
  }
  void abandon() override { cancel(); }
  void give_back() override {
    cancel();
    hand_back();
  }
  // A copy: the caller may write to the tensors.
  void left_over(Result<Received> received) override {
    if (!received) return;
    auto copy = Storage::allocate(flat_.size_bytes());
    if (!copy) return;
    flat_.read(0, {copy->data(), copy->size_bytes()});
    put_back(*core_, std::move(came_), *copy);
  }
  bool progress() override {
    if (!mutex_.try_lock()) return !finished();
    const Lock lock(mutex_, kAdoptLock);
    if (ended_) return !finished();
    if (auto usable = core_->context()->usable("group.recv"); !usable) {
      end(std::move(usable).error());
      return false;
    }
    auto found = look(*core_, wanted_, *posted_, "recv", [this](const MessageBox::Entry& entry) {
      return fits(flat_, *wanted_.epoch, entry);
    });
    if (!found)
      end(std::move(found).error());
    else if (*found)
      take(**std::move(found));
    return !ended_;
  }
  [[nodiscard]] bool has_input() const noexcept override { return posted_->has_message(); }

 private:
  void take(MessageBox::Entry entry) TENDON_REQUIRES(mutex_) {
    const Received received = take_in(*wanted_.epoch, entry, flat_);
    came_ = std::move(entry);
    came_.inbound.body = {};  // its memory returns now
    came_.inbound.channel.reset();
    end(received);
  }
  void end(Result<Received> result) TENDON_REQUIRES(mutex_) {
    if (std::exchange(ended_, true)) return;
    if (posted_) posted_->withdraw();  // its arguments may have been refused
    conclude(std::move(result));
  }
  const std::shared_ptr<GroupCore> core_;
  const Wanted wanted_;
  Flat flat_;
  std::optional<PostedReceive> posted_;  // set before another thread knows of this
  // The taken message, without the bytes; left_over() has it once the result is there.
  MessageBox::Entry came_;
  Mutex mutex_;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<void> send(GroupCore& core, const Tensors& tensors, To to, Deadline deadline) {
  Sending sending;
  TENDON_CHECK(begin(core, sending, to, "send", Hold::borrow, tensors));
  queue(core, sending);
  return finish_sending(core, sending, "send", deadline);
}

Completion<void> send_async(const std::shared_ptr<GroupCore>& core, const Tensors& tensors, To to) {
  Sending sending;
  auto begun = begin(*core, sending, to, "send", Hold::keep, tensors);
  if (begun) queue(*core, sending);
  auto completion = std::make_shared<SendCompletion>(core, std::move(sending));
  if (!begun)
    (void)completion->finish(std::move(begun).error());
  else if (completion->progress())
    core->context()->add_work(completion);
  return Completion<void>(completion);
}

Result<Received> recv(GroupCore& core, const Tensors& tensors, From from, Deadline deadline) {
  TENDON_TRY(wanted, want(core, from, "recv"));
  TENDON_TRY(flat, Flat::make(tensors, Use::write, Hold::borrow, "group.recv"));
  TENDON_TRY(entry, wait_for(core, wanted, "recv", deadline, [&](const MessageBox::Entry& found) {
               return fits(flat, *wanted.epoch, found);
             }));
  return take_in(*wanted.epoch, entry, flat);
}

Completion<Received> recv_async(const std::shared_ptr<GroupCore>& core, const Tensors& tensors,
                                From from) {
  auto wanted = want(*core, from, "recv");
  auto flat = Flat::make(tensors, Use::write, Hold::keep, "group.recv");
  std::optional<Error> failure;
  if (!wanted)
    failure = wanted.error();
  else if (!flat)
    failure = flat.error();
  auto completion = std::make_shared<RecvCompletion>(core, failure ? Wanted() : *std::move(wanted),
                                                     failure ? Flat() : *std::move(flat));
  if (failure)
    (void)completion->finish(*std::move(failure));
  else if (completion->begin())
    core->context()->add_work(completion);
  return Completion<Received>(completion);
}

Result<void> init_remote(GroupCore& core, const TensorDict& dict, To to, Deadline deadline) {
  Sending sending;
  TENDON_CHECK(begin(core, sending, to, "init_remote", Hold::borrow, dict));
  TENDON_TRY(head, head_of(dict, sending.flat.size_bytes()));
  sending.head = std::move(head);
  queue(core, sending);
  return finish_sending(core, sending, "init_remote", deadline);
}

Result<void> give_back(GroupCore& core, const Tensors& tensors, const Received& received) {
  TENDON_TRY(flat, Flat::make(tensors, Use::read, Hold::borrow, "group.give_back"));
  return put_back(core, received, flat, {});
}

Result<void> give_back_init(GroupCore& core, const TensorDict& dict, const Received& received) {
  TENDON_TRY(flat, Flat::make(dict, Use::read, Hold::borrow, "group.give_back"));
  TENDON_TRY(head, head_of(dict, flat.size_bytes()));
  return put_back(core, received, flat, head);
}

Result<TensorDict> from_remote_init(GroupCore& core, From from, Deadline deadline,
                                    Received* received) {
  TENDON_TRY(wanted, want(core, from, "from_remote_init"));
  TENDON_TRY(entry, wait_for(core, wanted, "from_remote_init", deadline,
                             [](const MessageBox::Entry& found) -> Result<void> {
                               if (found.inbound.envelope.op != kWholeDict)
                                 return other_kind(found);
                               return {};
                             }));
  auto dict = read_dict(entry.inbound.payload());
  entry.inbound.credit();
  if (received != nullptr) *received = received_of(*wanted.epoch, entry);
  return dict;
}

Result<TensorDict> broadcast_init(Group& group, GroupCore& core, const TensorDict& dict,
                                  GroupRank root, Deadline deadline) {
  const bool is_root = core.epoch()->self == root;
  std::vector<std::byte> whole;
  if (is_root) {
    TENDON_TRY(flat, Flat::make(dict, Use::read, Hold::borrow, "group.broadcast_init"));
    TENDON_TRY(head, head_of(dict, flat.size_bytes()));
    whole = std::move(head);
    const std::uint64_t begin = whole.size();
    whole.resize(begin + flat.size_bytes());
    flat.read(0, std::span(whole).subspan(begin));
  }
  std::uint64_t size = whole.size();
  const Tensor length = Tensor::of<std::uint64_t>({1}, std::span<const std::uint64_t>(&size, 1));
  TENDON_CHECK(group.broadcast(length, root, deadline));
  size = length.item<std::uint64_t>({0});
  // A peer stated it: memory for it is allocated only within the limit.
  if (size > core.context()->options().link_cap_bytes) {
    return Error{ErrorCode::message_too_large, "group.broadcast_init",
                 "the root's TensorDict has " + std::to_string(size) + " bytes, at most " +
                     std::to_string(core.context()->options().link_cap_bytes) +
                     " are taken (ContextOptions::link_cap_bytes)"};
  }
  TENDON_TRY(bytes, Tensor::empty(DType::u8, Shape({static_cast<std::int64_t>(size)})));
  if (is_root) std::memcpy(const_cast<std::byte*>(bytes.data()), whole.data(), size);
  TENDON_CHECK(group.broadcast(bytes, root, deadline));
  if (is_root) return dict;
  return read_dict({bytes.data(), size});
}

Result<std::vector<GroupRank>> agree_on_split(Group& group, GroupCore& core,
                                              std::span<const GlobalRank> members,
                                              Deadline deadline) {
  const auto epoch = core.epoch();
  std::vector<GroupRank> ranks;
  for (const GlobalRank member : members) {
    const auto place = core.place_of(mesh_place_of(member));
    const auto rank = place ? epoch->rank_at(*place) : std::nullopt;
    if (!rank) {
      return Error{ErrorCode::invalid_argument, "group.split",
                   "global rank " + std::to_string(member.value) + " is not in group \"" +
                       core.name() + "\""};
    }
    ranks.push_back(*rank);
  }
  // Every member's list, as marks: the place of each rank in the list, counted from 1.
  const std::uint32_t count = epoch->size();
  std::vector<std::uint32_t> marks(count, 0);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    marks[ranks[i].value] = static_cast<std::uint32_t>(i) + 1;
  const Tensor mine = Tensor::of<std::uint32_t>({count}, std::span<const std::uint32_t>(marks));
  TENDON_TRY(all, Tensor::empty(DType::u32, Shape({count, count})));
  TENDON_CHECK(group.all_gather(mine, all, deadline));
  for (std::uint32_t other = 0; other < count; ++other) {
    // Only members that are in this member's list, or have this member in theirs, are compared.
    if (marks[other] == 0 && all.item<std::uint32_t>({other, epoch->self.value}) == 0) continue;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      if (all.item<std::uint32_t>({other, rank}) == marks[rank]) continue;
      return Error{ErrorCode::mismatch, "group.split",
                   epoch->names[epoch->self] + " and " + epoch->names[GroupRank{other}] +
                       " give different lists of the members of their group; they differ at rank " +
                       std::to_string(rank)};
    }
  }
  return ranks;
}

}  // namespace tendon::v0::detail
