// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/acceptor.hpp"
#include "runtime/admitted_connection.hpp"
#include "runtime/handshake_stream.hpp"
#include "runtime/same_host.hpp"
#include "runtime/strangers.hpp"

namespace tendon::v0::detail {

/// The accepting side of one handshake, driven by its stream. It may open a rendezvous, a unix
/// socket in the runtime directory, where the connector proves that it is on this host. The
/// connection made there is an Admission of its own, with this one as its parent.
class Admission final : public FdHandler,
                        public Timed,
                        public std::enable_shared_from_this<Admission> {
 public:
  Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number,
            std::unique_ptr<ByteStream> stream, const std::optional<Source>& source);
  /// The admission of a visitor at the rendezvous that `parent` opened.
  Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number,
            std::unique_ptr<RendezvousSocket> visitor, std::shared_ptr<Admission> parent);
  ~Admission() override;

  [[nodiscard]] Result<void> start();
  /// Ends it from outside.
  void cancel();
  /// Logs that this connection was refused.
  void note_refused(std::string_view why) const;

  void on_ready(int fd, std::uint32_t events) override;
  /// Ends it if its time has passed or its place was taken.
  void on_time() override;

  // For the table of link_makers.hpp, which describes them.
  [[nodiscard]] Result<HelloMessage> offer_memory(HelloMessage answer) TENDON_REQUIRES(mutex_);
  bool accept_memory(const HelloMessage& path) TENDON_REQUIRES(mutex_);
  bool accept_stream(const HelloMessage& path) TENDON_REQUIRES(mutex_);

 private:
  void advance() TENDON_REQUIRES(mutex_);
  /// Called in turn after its time has passed, when everything that had arrived is read.
  void end_if_late() TENDON_REQUIRES(mutex_);
  void end_late(std::string_view why) TENDON_REQUIRES(mutex_);
  void on_rendezvous() TENDON_REQUIRES(mutex_);
  /// True if the peer says that it is this user on this host.
  [[nodiscard]] bool may_be_here() const;
  /// Each handles a frame; true while the handshake continues.
  bool on_hello(const HelloMessage& hello) TENDON_REQUIRES(mutex_);
  bool on_attach(const HelloMessage& attach) TENDON_REQUIRES(mutex_);
  bool on_path(const HelloMessage& path) TENDON_REQUIRES(mutex_);
  bool on_lane(const HelloMessage& lane) TENDON_REQUIRES(mutex_);
  bool on_ready_frame() TENDON_REQUIRES(mutex_);
  bool refuse(Error error) TENDON_REQUIRES(mutex_);
  /// Sends the last frame; true while a part of it waits for room in the stream.
  bool say_last(const HelloMessage& frame) TENDON_REQUIRES(mutex_);
  void on_said_last() TENDON_REQUIRES(mutex_);
  void wait_for_more() TENDON_REQUIRES(mutex_);
  /// Watches the stream: for input, or for room while a frame waits for it.
  void listen() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<Nonce128> open_rendezvous() TENDON_REQUIRES(mutex_);
  void close_rendezvous() TENDON_REQUIRES(mutex_);
  void finish() TENDON_REQUIRES(mutex_);
  [[nodiscard]] ContextCore& context() const { return *acceptor_->context_; }
  /// The origin of the link that it makes. peer_ must have a value.
  [[nodiscard]] LinkOrigin origin() const { return {.boot_id = peer_->boot_id, .source = source_}; }

  Mutex mutex_;  // handles one event at a time
  std::shared_ptr<Acceptor> acceptor_;
  const Door::Number number_;
  RendezvousSocket* const visitor_;  // the socket under stream_, or null
  HandshakeStream stream_ TENDON_GUARDED_BY(mutex_);
  const std::shared_ptr<Admission> parent_;
  const std::optional<Source> source_;
  const Stranger stranger_;
  AdmittedConnection connection_;
  bool finished_ TENDON_GUARDED_BY(mutex_) = false;
  std::uint64_t timer_ TENDON_GUARDED_BY(mutex_) = 0;

  // Set once, before a child exists that compares it with its own; so it needs no lock.
  std::optional<HelloMessage> peer_;
  OwnedFd rendezvous_ TENDON_GUARDED_BY(mutex_);
  std::string rendezvous_path_ TENDON_GUARDED_BY(mutex_);
  std::optional<SameHostProof> proof_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<StreamLink> lane_of_ TENDON_GUARDED_BY(mutex_);  // the link that will own the
                                                                   // stream as a lane
  bool wants_room_ TENDON_GUARDED_BY(mutex_) = false;
  bool is_late_ TENDON_GUARDED_BY(mutex_) = false;
  std::atomic<bool> proved_{false};  // a child mapped the connector's memory
};

}  // namespace tendon::v0::detail
