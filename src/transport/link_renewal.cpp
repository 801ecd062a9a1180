// SPDX-License-Identifier: Apache-2.0
#include "transport/link_renewal.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>
#include <utility>

#include "secure/tls_limits.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "link.renewal";

Error violation(std::string_view why) {
  return Error{ErrorCode::protocol_violation, kWhere, std::string(why)};
}

}  // namespace

LinkRenewal::LinkRenewal(LinkRenewalOptions options, LinkRenewalHooks hooks, TimePoint now)
    : credentials_(options.terms.credentials),
      lanes_(options.lanes),
      on_agreed_(std::move(options.on_agreed)),
      hooks_(std::move(hooks)) {
  if (credentials_ == nullptr) return;
  options.terms.limits = credentials_->rotation().renewal;
  options.terms.has_deadline = hooks_.expects_signs_of_life;
  renewal_.emplace(std::move(options.terms), now);
}

bool LinkRenewal::has_lanes() const {
  if (!hooks_.each_stream) return true;
  std::size_t streams = 0;
  hooks_.each_stream([&](ByteStream&) { ++streams; });
  return streams > lanes_;  // the control lane is one more
}

bool LinkRenewal::has_switched() const {
  bool has = true;
  if (hooks_.each_stream)
    hooks_.each_stream([&](ByteStream& stream) { has = has && !stream.expects_switch(); });
  return has;
}

Result<void> LinkRenewal::take(const Descriptor& descriptor, Bytes body, TimePoint now) {
  if (!renewal_) return violation("a renewal of a session on a link that has none");
  if (descriptor.tag > static_cast<std::uint32_t>(secure::RenewalWord::refused))
    return violation("a word of a renewal that has no meaning");
  const auto word = static_cast<secure::RenewalWord>(descriptor.tag);
  // A server's last lane may be on its way to the link when the client begins.
  if (renewal_->state() == secure::RenewalState::idle && word == secure::RenewalWord::handshake &&
      (!held_.empty() || !has_lanes())) {
    if (body.empty() || body.size() > kMaxHandshakeInputBytes - held_.size())
      return violation("a renewal begins with nothing, or with too much");
    held_.insert(held_.end(), body.begin(), body.end());
    return {};
  }
  if (renewal_->state() == secure::RenewalState::idle) use_latest();
  TENDON_CHECK(act(renewal_->hear(word, body, now)));
  return note_switched();
}

Result<void> LinkRenewal::note_switched() {
  const bool may_switch = renewal_->state() == secure::RenewalState::switching ||
                          renewal_->state() == secure::RenewalState::draining;
  return may_switch && has_switched() ? act(renewal_->note_switched()) : Result<void>();
}

Result<void> LinkRenewal::go_on(std::uint64_t bytes, TimePoint now) {
  if (!renewal_) return {};
  TENDON_CHECK(act(renewal_->check_time(now)));
  if (!held_.empty() && has_lanes()) {
    const std::vector<std::byte> hello = std::exchange(held_, {});
    use_latest();
    TENDON_CHECK(act(renewal_->hear(secure::RenewalWord::handshake, hello, now)));
  }
  TENDON_CHECK(note_switched());
  if (!renewal_->is_due(bytes, now) || !has_lanes()) return {};
  use_latest();
  return act(renewal_->begin(bytes, now));
}

// In the order of RenewalStep: nobody sends under a key that the other end does not expect.
Result<void> LinkRenewal::act(secure::RenewalStep step) {
  if (step.agreed) TENDON_CHECK(agree());
  for (Bytes rest = step.handshake; !rest.empty();) {
    const Bytes part = rest.first(std::min(rest.size(), kMaxInlineBytes));
    say(secure::RenewalWord::handshake, part);
    rest = rest.subspan(part.size());
  }
  if (step.word) say(*step.word);
  if (step.switches && hooks_.each_stream)
    hooks_.each_stream([](ByteStream& stream) { stream.switch_output(); });
  if (!step.failed) return {};
  if (step.failed->code == ErrorCode::authentication_failed)
    refused_count_.fetch_add(1, std::memory_order_relaxed);
  return *std::move(step.failed);
}

Result<void> LinkRenewal::agree() {
  const secure::TlsSession session = renewal_->take_session();
  Result<void> done;
  if (hooks_.each_stream) {
    hooks_.each_stream([&](ByteStream& stream) {
      if (auto expects = stream.expect_switch(session.renewal_key.bytes()); !expects)
        done = std::move(expects);
    });
  }
  count_.store(renewal_->count(), std::memory_order_relaxed);
  if (on_agreed_) on_agreed_(session);
  return done;
}

void LinkRenewal::say(secure::RenewalWord word, Bytes body) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::secure;
  descriptor.tag = static_cast<std::uint32_t>(word);
  descriptor.payload_bytes = body.size();
  hooks_.post(descriptor, body);
}

}  // namespace tendon::v0::detail
