// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "runtime/redial.hpp"
#include "runtime/talk.hpp"
#include "session/nonce128.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// When the lanes of a link may be dialled.
enum class LanePace : std::uint8_t {
  all_at_once,  ///< to a listener with Feature::lanes_at_once
  one_by_one,   ///< to any other: each answer carries the ticket for the next lane
};

/// How the lanes of one link are dialled.
struct LaneDialOptions {
  /// Opens a connection to the link's listener; it may still be under way.
  std::function<Result<std::unique_ptr<ByteStream>>()> open{};
  std::string address{};  ///< for errors
  Nonce128 ticket{};      ///< of the link
  std::uint32_t count = 0;
  LanePace pace = LanePace::all_at_once;
  Deadline deadline;
  std::stop_token stop{};
  /// The error with which the link has ended; nothing while it lives.
  std::function<std::optional<Error>()> why_over{};
};

/// Dials the lanes of one link. All at once, they take as many round trips as one: for the
/// connection, for TLS where the link has it, and for the request to join.
///
///   state   input                                       next
///   ------  ------------------------------------------  ------
///   due     its pause is over, and its pace allows it   begun
///   begun   `ready`                                     joined
///   begun   the connection ends before its first frame  due, after a pause
///   begun   any other end or refusal                    over: run() returns the error
///
/// Owns:    the connections, until run() returns them.
/// Threads: the calling one, which makes progress meanwhile.
/// Errors:  that of the link, once it has ended; server_busy where the listener has no place until
///          the deadline, or the link has ended there; peer_lost where every handshake was cut
///          until then; timeout, which names the missing frame; cancelled; those of the handshake.
/// Blocks:  run(), up to the deadline.
/// Cost:    a connection and a handshake per lane.
class LaneDials {
 public:
  LaneDials(ContextCore& context, LaneDialOptions options);

  /// Returns all lanes, each joined to the link at its other end.
  [[nodiscard]] Result<std::vector<std::unique_ptr<ByteStream>>> run();

 private:
  struct Lane {
    std::optional<Talk> talk{};      // begun
    std::optional<Redial> redial{};  // since its first failure
    Deadline next_try = Deadline::now();
    bool is_ready = false;                 // the connection has something new
    std::unique_ptr<ByteStream> joined{};  // set in the last state
  };
  [[nodiscard]] Result<void> advance(std::uint32_t index);
  [[nodiscard]] bool may_begin(std::uint32_t index) const;
  [[nodiscard]] Result<void> begin(std::uint32_t index);
  [[nodiscard]] Result<void> take(Lane& lane, HandshakeStep step);
  /// Decides whether the lane is dialled again.
  [[nodiscard]] Result<void> take_failure(Lane& lane, Error error, Heard heard);
  [[nodiscard]] std::optional<Error> why_over() const {
    return options_.why_over ? options_.why_over() : std::nullopt;
  }
  [[nodiscard]] bool are_all_joined() const;
  [[nodiscard]] bool note_ready();
  [[nodiscard]] Deadline next_due() const;
  [[nodiscard]] Error timed_out();

  ContextCore& context_;
  LaneDialOptions options_;
  std::vector<Lane> lanes_;
};

}  // namespace tendon::v0::detail
