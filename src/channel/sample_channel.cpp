// SPDX-License-Identifier: Apache-2.0
#include "channel/sample_channel.hpp"

#include <span>
#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "channel/gpu_offer.hpp"
#include "memory/recycler.hpp"

namespace tendon::v0::detail {

SampleChannel::SampleChannel(ContextCore& context, std::shared_ptr<Link> link, std::uint32_t pipe,
                             Window window, std::shared_ptr<std::atomic<std::uint64_t>> copied)
    : context_(context),
      link_(std::move(link)),
      pipe_(pipe),
      copied_(std::move(copied)),
      window_(window, link_->peer_cap_bytes()),
      sender_(pipe, window_, link_->peer_cap_bytes()) {}

Result<Shown> SampleChannel::prepare(const SharedMessage& sample, std::uint32_t tag,
                                     std::uint64_t share_bytes, Keeps keeps) {
  if (link_->ended()) {
    end();
    return link_->end_error();
  }
  if (failure_) return *failure_;
  TENDON_TRY(before, go_on());
  if (before == Sent::later) return Shown::closed;
  if (was_dropped()) return Shown::dropped;
  Descriptor descriptor = sample.descriptor;
  descriptor.pipe = pipe_;
  descriptor.tag = tag;
  if (!sender_.has_room(descriptor)) return Shown::closed;
  TENDON_TRY(placement, peer_placement(sample));
  if (sample.on_gpu.slot != nullptr) {
    TENDON_TRY(made, direct_.make(*link_, sample.on_gpu));
    if (made == DirectShow::Made::later) return Shown::closed;
    if (made == DirectShow::Made::beyond_share) return Shown::beyond_share;
  }
  auto shown = prepare_with_room(sample, descriptor, placement, share_bytes, keeps);
  if (step_ == Step::idle) direct_.reset();  // releases memory that was not placed
  return shown;
}

Result<Shown> SampleChannel::prepare_with_room(const SharedMessage& sample, Descriptor descriptor,
                                               const std::shared_ptr<const Placement>& placement,
                                               std::uint64_t share_bytes, Keeps keeps) {
  const bool is_first =
      sample.schema != nullptr && sender_.number_of(sample.schema, placement.get()) == 0;
  auto announced = Sent::done;
  if (is_first) {
    TENDON_CHECK(check_size(descriptor));
    TENDON_CHECK(check_strandings());
    TENDON_TRY(begun, announce(sample.schema, placement));
    if (begun == Sent::later && !under_way_) return Shown::closed;
    announced = begun;
  }
  if (sample.schema != nullptr)
    descriptor.schema = sender_.number_of(sample.schema, placement.get());
  (void)sender_.begin(descriptor);  // there is room: only the sender reduces it
  share_bytes_ = share_bytes;
  is_first_of_schema_ = is_first;
  // A link of shared memory shows the slot itself; a small body is sent whole or not at all.
  const bool is_lent =
      goes_over_socket() && sample.slot != nullptr && descriptor.body_bytes() > kMaxInlineBytes;
  if (is_lent) lend(sample, keeps);
  if (announced == Sent::later) return keep(Step::announcing, descriptor, sample);
  if (is_lent)
    describe(descriptor, sample.share);
  else
    describe(descriptor, sample.body, sample.slot.get(), sample.share);
  auto begun = offer();
  if (!begun && is_first) return fail(std::move(begun).error());
  if (under_way_) return keep(Step::sending, descriptor, sample);
  if (begun && *begun == Sent::later && is_first) return keep(Step::announced, descriptor, sample);
  let_go();
  if (!begun) return std::move(begun).error();
  if (*begun == Sent::later) return Shown::closed;
  sender_.sent(descriptor);
  return Shown::shown;
}

SampleChannel::~SampleChannel() {
  end();
  if (reader_ != 0) context_.publishing().pool()->retire_link(reader_);
}

void SampleChannel::lend(const SharedMessage& sample, Keeps keeps) {
  const auto& pool = context_.publishing().pool();
  if (reader_ == 0) {
    reader_ = pool->add_link(
        link_->peer_name(), 1,
        goes_over_socket() ? PublishPool::Reads::over_socket : PublishPool::Reads::in_place);
  }
  lent_ = make_recycled<LentSample>(LentSample::Reader{pool, reader_, share_bytes_, copied_},
                                    sample.slot, sample.body, keeps);
}

// Checked before anything is announced: afterwards a message can only be late.
Result<void> SampleChannel::check_size(const Descriptor& descriptor) const {
  const std::uint64_t most =
      link_->traits().slots_go_over ? link_->cap_bytes() : link_->peer_cap_bytes();
  if (descriptor.payload_bytes <= most && descriptor.body_bytes() <= most) return {};
  return Error{ErrorCode::message_too_large, "channel.show",
               "a message of " + std::to_string(descriptor.body_bytes()) + " bytes to " +
                   link_->peer_name() + ": at most " + std::to_string(most) +
                   " are legal on this link (ContextOptions::link_cap_bytes)"};
}

// Each strands at the receiver until it reads on. A new channel begins with none.
Result<void> SampleChannel::check_strandings() const {
  if (sender_.strandings() < ChannelSender::kMostStranded) return {};
  return Error{ErrorCode::resource_exhausted, "channel.show",
               link_->peer_name() + " was told " + std::to_string(sender_.strandings()) +
                   " schemas in a row the samples of which were given up before they could leave"};
}

// Each link has its own numbers for the GPUs of this side.
Result<std::shared_ptr<const Placement>> SampleChannel::peer_placement(
    const SharedMessage& sample) {
  if (sample.placement == nullptr) return sample.placement;
  TENDON_TRY(number, offer_gpu(*link_, sample.placement->gpu, "channel.show"));
  return Placement::numbered(sample.placement, number);
}

// `later`: it is under way, or nothing was done.
Result<Sent> SampleChannel::announce(const std::shared_ptr<const Schema>& schema,
                                     const std::shared_ptr<const Placement>& placement) {
  const Bytes encoding = schema->encoding();
  payload_ = {0, encoding, nullptr, encoding.size()};
  op_ = {};
  op_.descriptor = sender_.announcement(*schema, placement.get());
  op_.parts = {&payload_, 1};
  // The sender's table keeps both while the announcement is under way.
  if (placement != nullptr) op_.values = std::as_bytes(std::span(placement->leaves));
  const std::uint32_t number = op_.descriptor.schema;
  TENDON_TRY(begun, offer());
  if (begun == Sent::done || under_way_) sender_.announced(number, schema, placement);
  return begun;
}

void SampleChannel::describe(const Descriptor& descriptor, Bytes body, const PublishedSlot* slot,
                             RingShare share) {
  op_ = {};
  op_.descriptor = descriptor;
  name_body(op_, body, payload_);
  op_.published = slot;
  op_.share = share;
  op_.share_bytes = share_bytes_;
  if (direct_.is_made()) direct_.describe(op_);
}

// Names the body of lent_.
void SampleChannel::describe(const Descriptor& descriptor, RingShare share) {
  op_ = {};
  op_.descriptor = descriptor;
  lent_->describe(op_);
  if (direct_.is_made()) direct_.describe(op_);
  op_.share = share;
  op_.share_bytes = share_bytes_;
  if (!goes_over_socket())
    op_.published = lent_->slot();
  else if (descriptor.body_bytes() > kMaxInlineBytes)
    op_.lent = lent_.get();
}

Shown SampleChannel::keep(Step step, const Descriptor& descriptor, const SharedMessage& sample) {
  sender_.sent(descriptor);
  step_ = step;
  descriptor_ = descriptor;
  share_ = sample.share;
  if (lent_ == nullptr) lend(sample, Keeps::until_sent);
  if (goes_over_socket()) context_.publishing().sends().add(link_, lent_);
  return Shown::under_way;
}

// `later`: it is under way, or nothing was done.
Result<Sent> SampleChannel::offer() {
  auto begun = hand_over();
  if (begun && *begun == Sent::later && !under_way_ && !waits_) {
    waits_.emplace(context_, *link_, WaitsFor::kReturns);
    begun = hand_over();  // slots that returned before this was said ring no bell
  }
  if (!begun || *begun == Sent::later) return begun;
  waits_.reset();
  if (op_.over_share && copied_ != nullptr) copied_->fetch_add(1, std::memory_order_relaxed);
  return begun;
}

Result<Sent> SampleChannel::hand_over() {
  const bool is_schema = op_.descriptor.kind == MessageKind::schema;
  auto sent = is_schema ? link_->send(op_, Deadline::never())
              : op_.published != nullptr
                  ? context_.publishing().prepare(*link_, op_, Deadline::never())
                  : link_->prepare(op_, Deadline::never());
  if (sent && *sent == Sent::done) return sent;
  // A large body continues to leave over sockets. Anything else was taken whole or not at all.
  under_way_ =
      sent && !link_->traits().sent_is_delivered && op_.descriptor.body_bytes() > kMaxInlineBytes;
  if (!under_way_ && !link_->withdraw(op_)) return Sent::done;  // another thread wrote its end
  return sent;
}

Result<Sent> SampleChannel::go_on() {
  if (step_ == Step::announcing) {
    TENDON_TRY(gone, go_on_sending());
    if (gone == Sent::later) return gone;
    step_ = Step::announced;
  }
  if (step_ == Step::announced) {
    TENDON_TRY(begun, go_on_announced());
    if (begun == Sent::later) return begun;
  } else if (step_ == Step::sending) {
    TENDON_TRY(gone, go_on_sending());
    if (gone == Sent::later) return gone;
  }
  if (step_ != Step::idle) {
    if (op_.dropped) note_dropped();
    let_go();
  }
  return Sent::done;
}

bool SampleChannel::was_dropped() {
  if (step_ != Step::idle) (void)go_on();
  return std::exchange(dropped_, false);
}

// Counts the message out of the window. It keeps its number, which no other message has.
void SampleChannel::note_dropped() {
  window_.uncount(descriptor_.payload_bytes);
  if (is_first_of_schema_) sender_.strand(descriptor_.schema);
  dropped_ = true;
}

// Continues the link's send of op_.
Result<Sent> SampleChannel::go_on_sending() {
  auto sent = link_->send(op_, Deadline::never());
  if (sent && *sent == Sent::later) return sent;
  if (!sent && link_->withdraw(op_)) return fail(std::move(sent).error());
  under_way_ = false;
  return Sent::done;
}

Result<Sent> SampleChannel::go_on_announced() {
  describe(descriptor_, share_);
  auto begun = offer();
  if (!begun) return fail(std::move(begun).error());
  if (under_way_) step_ = Step::sending;
  if (*begun == Sent::later) return begun;
  Link* const link = link_.get();
  show_and_ring({&link, 1});  // no round may be there to do it
  return begun;
}

// Ends the channel: the message under way is not sent, so nothing may follow it.
Error SampleChannel::fail(Error why) {
  failure_ = why;
  under_way_ = false;
  let_go();
  return why;
}

void SampleChannel::end() noexcept {
  if (under_way_) (void)link_->withdraw(op_);
  under_way_ = false;
  let_go();
  waits_.reset();
}

void SampleChannel::let_go() noexcept {
  if (std::exchange(step_, Step::idle) != Step::idle && goes_over_socket())
    context_.publishing().sends().remove(*lent_);
  if (lent_ != nullptr) lent_->end();
  lent_ = nullptr;
  direct_.reset();
}

}  // namespace tendon::v0::detail
