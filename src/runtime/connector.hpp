// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/connect_options.hpp>
#include <tendon/session/path.hpp>
#include <vector>

#include "runtime/connect.hpp"
#include "runtime/dial_errors.hpp"
#include "runtime/redial.hpp"
#include "runtime/same_host.hpp"
#include "runtime/secure_dial.hpp"
#include "runtime/talk.hpp"
#include "session/proofs.hpp"
#include "session/resolve.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {

/// One call of connect(): dials the listener, and asks the makers of links in turn.
///
/// Threads: the calling one, which makes progress meanwhile.
class Connector {
 public:
  Connector(ContextCore& context, std::string_view address, const ConnectOptions& options,
            Deadline deadline)
      : context_(context),
        address_text_(address),
        dial_(security_of(options)),
        deadline_(deadline),
        absent_(options.absent),
        stop_(options.stop) {}
  Connector(ContextCore& context, const Carrier& carrier, Security security, Deadline deadline)
      : context_(context),
        address_text_(carrier.name),
        dial_(std::move(security)),
        deadline_(deadline),
        carrier_(&carrier),
        expected_(carrier.context) {}

  /// Sets the Context that must answer; without this call, any may.
  void expect(const ContextId& context) { expected_ = context; }
  [[nodiscard]] Result<Connected> run();

  // For the table of link_makers.hpp, which describes them.
  [[nodiscard]] Result<std::string> why_no_memory();
  [[nodiscard]] Result<std::shared_ptr<Link>> link_by_memory();
  [[nodiscard]] Result<std::string> why_no_cable();
  [[nodiscard]] Result<std::string> why_no_stream();
  [[nodiscard]] Result<std::shared_ptr<Link>> link_by_stream();

 private:
  /// The result of meet(): both sides have found each other's nonce at the rendezvous.
  struct Met {
    Talk talk;
    RendezvousSocket* socket;  // the socket under `talk`
    SameHostProof proof;
  };
  [[nodiscard]] Result<OwnedFd> open_socket(const SocketAddress& address, Deadline deadline);
  [[nodiscard]] Result<OwnedFd> open_any(std::span<const SocketAddress> addresses);
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> open_stream(
      std::span<const SocketAddress> addresses, Lane lane);
  /// The host name to check; empty for a unix path.
  [[nodiscard]] std::string host_dialled() const;
  /// The key that the peer of a living link to the same place has proved; see
  /// LinkTable::key_of_dialled().
  [[nodiscard]] Proofs living_key() const;
  /// True if a living link to the same place is by another key than this connection.
  [[nodiscard]] bool proves_another_key(const Talk& talk) const;
  /// A later dial of the same place proves by the key of this link.
  void note_dialled(const Link& link) const;
  [[nodiscard]] Result<std::vector<SocketAddress>> find_addresses() const;
  [[nodiscard]] Result<Talk> dial_listener();
  [[nodiscard]] Result<Talk> dial_once(std::span<const SocketAddress> addresses);
  /// Opens a stream to the listener that answered; the connection may still be under way.
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> open_lane();
  [[nodiscard]] Result<void> check_user(const ByteStream& stream) const;
  /// Checks that one of this Context's own listeners was dialled, because this Context has answered
  /// with `ticket`. `local`: this side's host of the connection.
  [[nodiscard]] Result<void> check_own_listener(const Nonce128& ticket,
                                                std::string_view local) const;
  [[nodiscard]] Result<PathKind> agree_on_path(const HelloMessage& peer) const;
  [[nodiscard]] Result<HelloMessage> exchange(Talk& talk, HandshakeStep step);
  [[nodiscard]] Result<HelloMessage> say_path(const Path& path);
  [[nodiscard]] Result<std::shared_ptr<Link>> make_link();
  [[nodiscard]] bool has_peer_gone() const;
  [[nodiscard]] Result<Met> meet();
  [[nodiscard]] Result<void> add_lanes(StreamLink& link, const Nonce128& lane_ticket);
  [[nodiscard]] bool is_unix() const { return reached_.family() == AF_UNIX; }
  /// The kind of stream that was opened: a socket, or a cable.
  [[nodiscard]] PathKind stream_kind() const { return talk_->stream.stream()->peer().kind; }
  /// True unless either side insists on another path.
  [[nodiscard]] bool may_take(PathKind kind) const {
    return wanted_ == PathKind::none || wanted_ == kind;
  }
  [[nodiscard]] bool must_be_proved() const {
    return (dial_.profile() == Profile::local && !is_unix()) || wanted_ == PathKind::shm;
  }
  [[nodiscard]] Error explain(Error error) const {
    return at_address(address_text_, std::move(error));
  }

  ContextCore& context_;
  const std::string address_text_;
  SecureDial dial_;
  const Deadline deadline_;
  const Absent absent_ = Absent::fail;
  const std::stop_token stop_{};
  const Carrier* const carrier_ = nullptr;  // null: `address_text_` is dialled
  std::optional<ContextId> expected_;
  Heard heard_ = Heard::nothing;  // of the last dial
  SocketAddress reached_;
  std::optional<Talk> talk_;
  PathKind wanted_ = PathKind::none;  // the path that a side insists on, or none
  Proofs proofs_{};                   // so far
  std::string why_not_;               // of the makers that were asked before
  bool is_elsewhere_ = false;  // true if the peer is, or seems to be, of another host or user
  std::optional<Met> met_;
};

}  // namespace tendon::v0::detail
