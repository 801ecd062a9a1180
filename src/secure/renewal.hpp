// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/words.hpp>
#include <utility>
#include <vector>

#include "secure/renewal_limits.hpp"
#include "secure/tls_handshake.hpp"

namespace tendon::v0::detail::secure {

/// The words by which the ends of a link renew its session. The numbers are wire contract: append
/// only.
enum class RenewalWord : std::uint8_t {
  handshake = 0,  ///< bytes of TLS
  done = 1,       ///< from the server: it also has the new session
  switched = 2,   ///< from the server: all its input is under the new keys
  refused = 3,    ///< the last word: the peer's identity has changed, whatever the reason
};
TENDON_WORDS(RenewalWord, handshake, done, switched, refused);

enum class RenewalState : std::uint8_t { idle, shaking, confirming, switching, draining, failed };
TENDON_WORDS(RenewalState, idle, shaking, confirming, switching, draining, failed);

/// The end that renews, and the peer whose identity it must find again.
struct RenewalTerms {
  TlsHandshake::Role role = TlsHandshake::Role::client;
  std::shared_ptr<const Credentials> credentials{};
  std::string own_identity{};  ///< a client's, in the link's first session
  std::string identity{};      ///< the peer's there
  std::string credential{};    ///< the id of the key there; not compared for a certificate
  PeerProof proof = PeerProof::key;
  /// A client begins up to an eighth of the age earlier, so that links of the same age do not renew
  /// together.
  std::uint8_t earlier = 0;
  bool has_deadline = true;  ///< false: the peer answers when its program makes progress
  RenewalLimits limits{};
};

/// The actions of a link after one input, in this order.
struct RenewalStep {
  bool agreed = false;                 ///< take_session(): each input expects its switch
  std::vector<std::byte> handshake{};  ///< to be sent in words `handshake`
  std::optional<RenewalWord> word{};   ///< to be sent
  bool switches = false;               ///< each output switches to the new keys
  std::optional<Error> failed{};       ///< the link ends
};

/// One end of the handshakes that renew the session of a link while it carries messages. Each makes
/// a new Diffie-Hellman exchange and a new proof of the same identity. It does no I/O and has no
/// clock.
///
///   state      role    input                      says                next
///   ---------  ------  -------------------------  ------------------  ----------
///   idle       client  begin()                    handshake           shaking
///   idle       server  handshake                  handshake           shaking
///   shaking    both    handshake                  handshake           shaking
///   shaking    client  handshake, TLS is done     handshake           confirming: inputs expect
///   shaking    server  handshake, TLS is done     done                switching: inputs expect,
///                                                                     then outputs switch
///   confirming client  done                                           switching: outputs switch
///   switching  client  switched                                       draining
///   switching  server  note_switched()            switched            idle
///   draining   client  note_switched()                                idle
///   any        both    refused, another identity  (refused)           failed
///   any        both    another word, or too late                      failed
///
/// An end sends under new keys only once it knows that the other expects them: the server after the
/// client's Finished, the client after `done`. The next renewal begins when no old key is left.
///
/// Owns:    a handshake while one is under way; the new session, until it is taken.
/// Threads: one at a time.
/// Errors:  RenewalStep::failed: authentication_failed, protocol_violation, peer_lost where the
///          time has passed, or other errors of a TlsHandshake.
/// Blocks:  never.
/// Cost:    that of a TlsHandshake, for each renewal.
class Renewal {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using State = RenewalState;

  /// `now`: the time at which the first session was agreed.
  Renewal(RenewalTerms terms, TimePoint now);

  [[nodiscard]] State state() const noexcept { return state_; }
  /// Uses these credentials for later renewals.
  void use(std::shared_ptr<const Credentials> credentials) {
    terms_.credentials = std::move(credentials);
  }
  /// True if a client whose link has carried `bytes` in all may begin.
  [[nodiscard]] bool is_due(std::uint64_t bytes, TimePoint now) const;
  [[nodiscard]] RenewalStep begin(std::uint64_t bytes, TimePoint now);
  /// Handles a word of the peer.
  [[nodiscard]] RenewalStep hear(RenewalWord word, Bytes bytes, TimePoint now);
  /// All input of this end is under the new keys.
  [[nodiscard]] RenewalStep note_switched();
  /// Notes the passage of time, except for the time in which this process was stopped.
  [[nodiscard]] RenewalStep check_time(TimePoint now);

  /// Returns the new session, once, after RenewalStep::agreed. Destroy it when keys are derived
  /// from it, because it can decrypt all traffic under them.
  [[nodiscard]] TlsSession take_session() { return *std::exchange(session_, std::nullopt); }
  /// The number of agreed renewals.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

 private:
  [[nodiscard]] RenewalStep begin_handshake(TimePoint now);
  [[nodiscard]] RenewalStep hear_hello(Bytes bytes, TimePoint now);
  [[nodiscard]] RenewalStep shake(Bytes bytes);
  [[nodiscard]] RenewalStep agree(RenewalStep step);
  [[nodiscard]] RenewalStep fail(Error error);
  [[nodiscard]] RenewalStep unexpected(RenewalWord word);

  RenewalTerms terms_;
  State state_ = State::idle;
  std::unique_ptr<TlsHandshake> handshake_;
  std::optional<TlsSession> session_;
  std::uint64_t count_ = 0;
  std::uint64_t bytes_then_ = 0;  // when the last renewal began
  TimePoint begun_;               // the last renewal, or the first session
  TimePoint checked_;
  std::chrono::nanoseconds waited_{0};  // for the peer, since it began
  // Renewals that the peer began.
  std::uint32_t starts_ = 0;
  TimePoint starts_since_{};
};

}  // namespace tendon::v0::detail::secure
