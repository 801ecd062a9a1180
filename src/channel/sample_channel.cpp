// SPDX-License-Identifier: Apache-2.0
#include "channel/sample_channel.hpp"

#include <tendon/session/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

SampleChannel::SampleChannel(ContextCore& context, std::shared_ptr<Link> link, std::uint32_t pipe,
                             Window window)
    : context_(context),
      link_(std::move(link)),
      pipe_(pipe),
      window_(window, link_->peer_cap_bytes()),
      sender_(pipe, window_, link_->peer_cap_bytes()) {}

Result<Shown> SampleChannel::prepare(const SharedMessage& sample, std::uint32_t tag) {
  if (link_->ended()) {
    end();
    return link_->end_error();
  }
  TENDON_TRY(before, go_on());
  if (before == Sent::later) return Shown::closed;
  Descriptor descriptor = sample.descriptor;
  descriptor.pipe = pipe_;
  descriptor.tag = tag;
  if (sample.schema != nullptr) {
    TENDON_TRY(known, announce(sample.schema));
    if (known == Sent::later) return Shown::closed;
    descriptor.schema = sender_.number_of(sample.schema);
  }
  if (!sender_.begin(descriptor)) return Shown::closed;
  const std::uint64_t payload_bytes = descriptor.payload_bytes;
  payload_ = {0, sample.body.first(payload_bytes), nullptr, payload_bytes};
  op_ = {};
  op_.descriptor = descriptor;
  op_.parts = {&payload_, 1};
  op_.values = sample.body.subspan(payload_bytes, descriptor.values_bytes);
  op_.header =
      sample.body.subspan(payload_bytes + descriptor.values_bytes, descriptor.header_bytes);
  op_.published = sample.slot.get();
  op_.share = sample.share;
  slot_ = sample.slot;
  TENDON_TRY(begun, begin());
  if (begun == Sent::later && !under_way_) return Shown::closed;
  sender_.sent(descriptor);
  return under_way_ ? Shown::under_way : Shown::shown;
}

// `later` where the sample has to wait for it.
Result<Sent> SampleChannel::announce(const std::shared_ptr<const Schema>& schema) {
  if (sender_.number_of(schema) != 0) return Sent::done;
  const Bytes encoding = schema->encoding();
  payload_ = {0, encoding, nullptr, encoding.size()};
  op_ = {};
  op_.descriptor = sender_.announcement(*schema);
  op_.parts = {&payload_, 1};
  announced_ = schema;
  const std::uint32_t number = op_.descriptor.schema;
  TENDON_TRY(begun, begin());
  if (begun == Sent::done || under_way_) sender_.announced(number, schema);
  return begun;
}

// `later`: it is under way, or nothing was done.
Result<Sent> SampleChannel::begin() {
  auto begun = try_begin();
  if (begun && *begun == Sent::later && !under_way_ && !waits_) {
    waits_.emplace(context_, *link_, WaitsFor::kReturns);
    begun = try_begin();  // what came back before this was said rings no bell
  }
  if (begun && *begun == Sent::done) waits_.reset();
  if (!under_way_) let_go();
  return begun;
}

Result<Sent> SampleChannel::try_begin() {
  auto sent = op_.published != nullptr
                  ? context_.publishing().prepare(*link_, op_, Deadline::never())
              : announced_ != nullptr ? link_->send(op_, Deadline::never())
                                      : link_->prepare(op_, Deadline::never());
  if (sent && *sent == Sent::done) return sent;
  // A large body goes on leaving over sockets. Anything else was taken whole or not at all.
  under_way_ =
      sent && !link_->traits().sent_is_delivered && op_.descriptor.body_bytes() > kMaxInlineBytes;
  if (!under_way_ && !link_->withdraw(op_)) return Sent::done;  // another thread wrote its end
  return sent;
}

Result<Sent> SampleChannel::go_on() {
  if (!under_way_) return Sent::done;
  auto sent = link_->send(op_, Deadline::never());
  if (sent && *sent == Sent::later) return sent;
  if (!sent && !link_->withdraw(op_)) sent = Sent::done;
  let_go();
  return sent;
}

void SampleChannel::end() noexcept {
  if (under_way_) (void)link_->withdraw(op_);
  let_go();
  waits_.reset();
}

void SampleChannel::let_go() noexcept {
  under_way_ = false;
  slot_ = nullptr;
  announced_ = nullptr;
}

}  // namespace tendon::v0::detail
