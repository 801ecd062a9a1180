// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

#include "core/fd.hpp"
#include "observe/line_pace.hpp"
#include "runtime/context_core.hpp"
#include "runtime/door.hpp"
#include "runtime/lane_keys.hpp"
#include "runtime/lane_tickets.hpp"
#include "session/resolve.hpp"
#include "session/socket_names.hpp"

namespace tendon::v0::detail {

class Admission;
class ByteStream;

/// A listening socket: runs the handshakes of peers, makes their links, and issues tickets for
/// pipes.
///
/// Owns:    the socket, and the handshakes under way that its Door lets stay.
/// Threads: thread-safe; works on the threads that make progress, several at a time.
/// Errors:  those of bind(); a failed handshake is logged and ends only that connection.
/// Blocks:  never, except for the name lookup in bind().
class Acceptor final : public FdHandler,
                       public Timed,
                       public std::enable_shared_from_this<Acceptor> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Acceptor>> bind(std::shared_ptr<ContextCore> context,
                                                              std::string_view address,
                                                              Security security,
                                                              std::weak_ptr<OpenHandler> handler);
  /// An acceptor that listens nowhere. Its connections are passed to admit(), which runs TLS over
  /// them where `security` asks for that. Errors: invalid_argument, as check_credentials().
  [[nodiscard]] static Result<std::shared_ptr<Acceptor>> without_socket(
      std::shared_ptr<ContextCore> context, Security security, std::weak_ptr<OpenHandler> handler);
  Acceptor(std::shared_ptr<ContextCore> context, Security security,
           std::weak_ptr<OpenHandler> handler);
  ~Acceptor() override;

  /// The listener's address, with the port that was chosen.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void close();
  // The next three are for a listener that bound a name in the runtime directory.
  /// Listens at this path from now on, also if it already did; existing connections continue.
  /// Errors: system; the old socket then stays in use.
  [[nodiscard]] Result<void> serve_at(const std::string& path) TENDON_EXCLUDES(mutex_);
  /// Stops listening until serve_at() is called.
  void leave() TENDON_EXCLUDES(mutex_);
  /// True if the path leads to this listener's socket.
  [[nodiscard]] bool serves_at(const std::string& path) const TENDON_EXCLUDES(mutex_);
  /// Takes in a new connection, over any carrier. Without a `source` it counts towards no address.
  void admit(std::unique_ptr<ByteStream> stream, const std::optional<Source>& source);

  void on_ready(int fd, std::uint32_t events) override;
  /// Listens again after a rest for lack of descriptors.
  void on_time() override;

 private:
  friend class Admission;
  /// The file of the socket, which is removed at the end.
  struct Place {
    std::string path;
    FileId file;
  };
  [[nodiscard]] Result<void> open(const Address& address);
  [[nodiscard]] Result<void> begin(OwnedFd socket, std::optional<Place> place)
      TENDON_EXCLUDES(mutex_);
  void leave_locked() TENDON_REQUIRES(mutex_);
  /// Returns the next connection, or nothing and sets errno.
  [[nodiscard]] OwnedFd accept_one();
  /// Takes in a visitor of a rendezvous. It uses the place of the peer that opened the rendezvous.
  void admit_visitor(OwnedFd fd, std::shared_ptr<Admission> parent);
  /// Wraps the stream in TLS if the listener is secure.
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> secured(std::unique_ptr<ByteStream> stream);
  /// Refuses a peer of another user.
  [[nodiscard]] bool serves(ByteStream& stream) const;
  /// Logs at a limited pace a line that peers could otherwise repeat with every connection.
  void say_at_pace(LogLevel level, std::string_view where, const std::string& text);
  void start(const std::shared_ptr<Admission>& admission);
  /// Its ClientHello was answered. False: it has no place, and must close.
  [[nodiscard]] bool answered(Door::Number admission);
  /// A whole frame of it has arrived. False: as answered().
  [[nodiscard]] bool heard(Door::Number admission);
  void finished(Door::Number admission);
  /// Releases its place at the door, since its connection is now a link's.
  void leave_door(Door::Number admission);
  /// The time by which it must reach the next stage.
  [[nodiscard]] Deadline due(Door::Number admission);
  /// Carries out the Door's verdict; true if the connection stays.
  [[nodiscard]] bool obey(const Door::Verdict& verdict) TENDON_REQUIRES(mutex_);

  const std::shared_ptr<ContextCore> context_;
  const Security security_;
  const std::weak_ptr<OpenHandler> handler_;
  std::string address_;
  OwnedFd socket_ TENDON_GUARDED_BY(mutex_);
  std::optional<Place> place_ TENDON_GUARDED_BY(mutex_);

  mutable Mutex mutex_;
  Door door_ TENDON_GUARDED_BY(mutex_);
  std::map<Door::Number, std::shared_ptr<Admission>> admissions_ TENDON_GUARDED_BY(mutex_);
  Door::Number next_admission_ TENDON_GUARDED_BY(mutex_) = 1;
  std::uint32_t tickets_as_ = 0;  // its number in the Context's Tickets
  LaneTickets lanes_;
  LaneKeys lane_keys_;
  LinePace pace_;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
