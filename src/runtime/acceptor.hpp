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

/// A listening socket: lets peers through the handshake, makes their links, hands out tickets for
/// pipes.
///
/// Owns:    the socket, and the handshakes under way that its Door lets stay.
/// Threads: thread-safe; works on the threads that make progress, several at a time.
/// Errors:  of bind(); a failed handshake is logged and ends that connection only.
/// Blocks:  never, but for looking up a name in bind().
class Acceptor final : public FdHandler,
                       public Timed,
                       public std::enable_shared_from_this<Acceptor> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Acceptor>> bind(std::shared_ptr<ContextCore> context,
                                                              std::string_view address,
                                                              Security security,
                                                              std::weak_ptr<OpenHandler> handler);
  /// It listens nowhere: what it lets in is handed to admit(), which makes TLS over it where
  /// `security` asks for that. Errors: invalid_argument, as check_credentials().
  [[nodiscard]] static Result<std::shared_ptr<Acceptor>> without_socket(
      std::shared_ptr<ContextCore> context, Security security, std::weak_ptr<OpenHandler> handler);
  Acceptor(std::shared_ptr<ContextCore> context, Security security,
           std::weak_ptr<OpenHandler> handler);
  ~Acceptor() override;

  /// With the port that was chosen.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void close();
  // The next three are for one that bound a name in the runtime directory.
  /// Listens at this path from now on, also where it was before; what its peers do goes on. Errors:
  /// system; then it listens where it did.
  [[nodiscard]] Result<void> serve_at(const std::string& path) TENDON_EXCLUDES(mutex_);
  /// Listens nowhere until serve_at().
  void leave() TENDON_EXCLUDES(mutex_);
  /// The path leads to its socket.
  [[nodiscard]] bool serves_at(const std::string& path) const TENDON_EXCLUDES(mutex_);
  /// A connection that came, whatever carries it; nothing for `source`: it is not counted.
  void admit(std::unique_ptr<ByteStream> stream, const std::optional<Source>& source);

  void on_ready(int fd, std::uint32_t events) override;
  /// Listens again after a rest for want of descriptors.
  void on_time() override;

 private:
  friend class Admission;
  /// Its socket as a file, to be removed in the end.
  struct Place {
    std::string path;
    FileId file;
  };
  [[nodiscard]] Result<void> open(const Address& address);
  [[nodiscard]] Result<void> begin(OwnedFd socket, std::optional<Place> place)
      TENDON_EXCLUDES(mutex_);
  void leave_locked() TENDON_REQUIRES(mutex_);
  /// The next connection, or nothing and errno.
  [[nodiscard]] OwnedFd accept_one();
  /// A visitor of a rendezvous has a place already: that of the peer that opened it.
  void admit_visitor(OwnedFd fd, std::shared_ptr<Admission> parent);
  /// Over TLS, where the listener is secure.
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> secured(std::unique_ptr<ByteStream> stream);
  /// Refuses another user.
  [[nodiscard]] bool serves(ByteStream& stream) const;
  /// A line that one cause repeats as often as others connect.
  void say_at_pace(LogLevel level, std::string_view where, const std::string& text);
  void start(const std::shared_ptr<Admission>& admission);
  /// Its ClientHello was answered. False: it has no place to go on.
  [[nodiscard]] bool answered(Door::Number admission);
  /// The same for a whole frame of it.
  [[nodiscard]] bool heard(Door::Number admission);
  void finished(Door::Number admission);
  /// Its connection is a link's: it has no place before the door any more.
  void leave_door(Door::Number admission);
  /// When it must be further than it is.
  [[nodiscard]] Deadline due(Door::Number admission);
  /// What the Door decided: true when the connection stays.
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
