// SPDX-License-Identifier: Apache-2.0
#include "secure/renewal.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kWhere = "secure.renewal";
// A longer time between two checks was caused by this process.
constexpr std::chrono::seconds kMostAtOnce{1};

Error violation(std::string why) {
  return Error{ErrorCode::protocol_violation, kWhere, std::move(why)};
}

std::string text_of(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
         " ms";
}

std::string text_of(const std::string& identity, PeerProof proof) {
  return "'" + identity + "' (" + std::string(to_string(proof)) + ")";
}

}  // namespace

Renewal::Renewal(RenewalTerms terms, TimePoint now)
    : terms_(std::move(terms)), begun_(now), checked_(now) {}

bool Renewal::is_due(std::uint64_t bytes, TimePoint now) const {
  const auto age = terms_.limits.age - terms_.limits.age / 8 / 255 * terms_.earlier;
  return state_ == State::idle && terms_.role == TlsHandshake::Role::client &&
         (now - begun_ >= age || bytes - bytes_then_ >= terms_.limits.bytes);
}

RenewalStep Renewal::begin(std::uint64_t bytes, TimePoint now) {
  bytes_then_ = bytes;
  return begin_handshake(now);
}

RenewalStep Renewal::begin_handshake(TimePoint now) {
  begun_ = now;
  waited_ = {};
  TlsHandshakeOptions options;
  if (terms_.role == TlsHandshake::Role::client) options.own_identity = terms_.own_identity;
  auto made = TlsHandshake::make(terms_.credentials, terms_.role, std::move(options));
  if (!made) return fail(std::move(made).error());
  handshake_ = *std::move(made);
  state_ = State::shaking;
  return terms_.role == TlsHandshake::Role::client ? shake({}) : RenewalStep{};
}

RenewalStep Renewal::hear(RenewalWord word, Bytes bytes, TimePoint now) {
  if (state_ == State::failed) return {};
  if (word == RenewalWord::handshake ? bytes.empty() : !bytes.empty())
    return fail(violation("a word of a renewal has " + std::to_string(bytes.size()) + " bytes"));
  switch (word) {
    case RenewalWord::handshake:
      if (state_ == State::shaking) return shake(bytes);
      if (state_ == State::idle && terms_.role == TlsHandshake::Role::server)
        return hear_hello(bytes, now);
      return unexpected(word);
    case RenewalWord::done:
      if (state_ != State::confirming) return unexpected(word);
      state_ = State::switching;
      return {.switches = true};
    case RenewalWord::switched:
      if (state_ != State::switching || terms_.role != TlsHandshake::Role::client)
        return unexpected(word);
      state_ = State::draining;
      return {};
    case RenewalWord::refused: {
      state_ = State::failed;
      handshake_.reset();
      return {.failed = Error{ErrorCode::authentication_failed, kWhere,
                              "the peer refused to renew the session with this end: its log has "
                              "the reason"}};
    }
  }
  return fail(violation("a word of a renewal has no meaning"));
}

RenewalStep Renewal::hear_hello(Bytes bytes, TimePoint now) {
  if (starts_ == 0 || now - starts_since_ >= terms_.limits.starts_within) {
    starts_since_ = now;
    starts_ = 0;
  }
  if (++starts_ > terms_.limits.starts) {
    return fail(violation("more than " + std::to_string(terms_.limits.starts) + " renewals in " +
                          text_of(terms_.limits.starts_within)));
  }
  RenewalStep begun = begin_handshake(now);
  return begun.failed ? begun : shake(bytes);
}

RenewalStep Renewal::shake(Bytes bytes) {
  RenewalStep step;
  auto advanced = handshake_->advance(bytes, step.handshake);
  if (!advanced) return fail(std::move(advanced).error());
  return handshake_->state() == TlsHandshake::State::done ? agree(std::move(step)) : step;
}

RenewalStep Renewal::agree(RenewalStep step) {
  TlsSession made = handshake_->take_session();
  handshake_.reset();
  if (!made.records.empty()) return fail(violation("bytes of TLS follow the end of its handshake"));
  if (made.proof != terms_.proof || made.identity != terms_.identity) {
    return fail(Error{ErrorCode::authentication_failed, kWhere,
                      "the peer has proved to be " + text_of(made.identity, made.proof) +
                          ", and was " + text_of(terms_.identity, terms_.proof) +
                          " before: a link stays with one identity"});
  }
  if (terms_.proof == PeerProof::key && made.credential != terms_.credential) {
    return fail(Error{ErrorCode::authentication_failed, kWhere,
                      "the key behind " + text_of(terms_.identity, terms_.proof) +
                          " has changed since the link was made: a link stays with one key; "
                          "connect again, and let a new key have a new label"});
  }
  session_ = std::move(made);
  ++count_;
  step.agreed = true;
  if (terms_.role == TlsHandshake::Role::client) {
    state_ = State::confirming;
  } else {
    state_ = State::switching;
    step.word = RenewalWord::done;
    step.switches = true;
  }
  return step;
}

RenewalStep Renewal::note_switched() {
  if (state_ == State::draining) {
    state_ = State::idle;
  } else if (state_ == State::switching && terms_.role == TlsHandshake::Role::server) {
    state_ = State::idle;
    return {.word = RenewalWord::switched};
  }
  return {};
}

RenewalStep Renewal::check_time(TimePoint now) {
  const RenewalLimits& limits = terms_.limits;
  waited_ += std::min<std::chrono::nanoseconds>(now - checked_, kMostAtOnce);
  checked_ = now;
  if (!terms_.has_deadline) return {};
  const bool is_agreeing = state_ == State::shaking || state_ == State::confirming;
  const bool is_switching = state_ == State::switching || state_ == State::draining;
  if (is_agreeing && waited_ >= limits.deadline) {
    return fail(Error{ErrorCode::peer_lost, kWhere,
                      "the renewal of the session did not end within " + text_of(limits.deadline)});
  }
  // Bytes under the old keys may wait for a program, but not beyond the next renewal.
  if (is_switching && waited_ >= limits.age + limits.deadline) {
    return fail(Error{ErrorCode::peer_lost, kWhere,
                      "the link did not go over to the keys of its renewed session within " +
                          text_of(limits.age + limits.deadline)});
  }
  return {};
}

// Sends no alert of TLS, which might tell one reason from another.
RenewalStep Renewal::fail(Error error) {
  state_ = State::failed;
  handshake_.reset();
  RenewalStep step;
  if (error.code == ErrorCode::authentication_failed) step.word = RenewalWord::refused;
  step.failed = std::move(error);
  return step;
}

RenewalStep Renewal::unexpected(RenewalWord word) {
  return fail(violation("a renewal's '" + std::string(to_string(word)) + "' while it is " +
                        std::string(to_string(state_))));
}

}  // namespace tendon::v0::detail::secure
