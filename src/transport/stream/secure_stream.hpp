// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fork_guard.hpp"
#include "secure/record_layer.hpp"
#include "secure/tls_handshake.hpp"
#include "transport/stream/byte_stream.hpp"
#include "transport/stream/sealed_input.hpp"
#include "transport/stream/sealed_output.hpp"

namespace tendon::v0::detail {

/// How one end of a secure stream begins.
struct SecureStreamOptions {
  secure::TlsHandshake::Role role = secure::TlsHandshake::Role::client;
  std::shared_ptr<const secure::Credentials> credentials;
  secure::TlsHandshakeOptions handshake{};
  secure::SealerKind sealer = secure::SealerKind::automatic;
  secure::RecordLimits limits{};
};

/// TLS 1.3 over another stream: nobody between the ends reads its bytes, or changes them unseen.
/// The handshake happens within the first reads and writes, which until then move nothing.
///
///   handshake --> open --> ended: the peer said close_notify; this end may go on writing
///       \           \----> lost
///        \---------------> lost
///
/// A link that renews its session goes over to other keys while it is open, each direction by
/// itself: where its receiver expects a switch, close_notify is that and no end.
///
/// Owns:    the stream below, the keys, its send buffer (of kSealedAtOnceBytes and a record at
///          most), and while a record is here in part, what there is of it.
/// Threads: as a ByteStream. Its reader and its writer take turns, for a few records each.
/// Errors:  StreamIo::lost with EPROTO, or the error of the stream below; after a write that is
///          lost, reading goes on to the end of what has arrived. why_lost() has the reason:
///          authentication_failed, protocol_violation, peer_lost where the stream ended without
///          close_notify, or `forked` in a child, where nothing is read or written.
/// Blocks:  never, but for the other thread's turn.
/// Cost:    one pass over the bytes each way, beside the cost of the stream below.
class SecureStream final : public ByteStream {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SecureStream>> make(std::unique_ptr<ByteStream> below,
                                                                  SecureStreamOptions options);

  [[nodiscard]] StreamIo read(std::span<const iovec> pieces) noexcept override
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] StreamIo write(std::span<const iovec> pieces) noexcept override
      TENDON_EXCLUDES(mutex_);
  void end_output() noexcept override TENDON_EXCLUDES(mutex_);
  void end_input() noexcept override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool has_room() const noexcept override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool wants_room() const noexcept override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] int fd() const noexcept override { return below_->fd(); }
  [[nodiscard]] const StreamPeer& peer() const noexcept override { return below_->peer(); }
  void set_lease(std::chrono::milliseconds lease) noexcept override { below_->set_lease(lease); }
  void discard_input() noexcept override { below_->discard_input(); }
  [[nodiscard]] std::optional<Error> why_lost() const override TENDON_EXCLUDES(mutex_);

  /// What both ends know once the handshake is done; null before. The traffic secrets are with the
  /// records already.
  [[nodiscard]] const secure::TlsSession* session() const noexcept override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool has_answered() const noexcept override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool has_heard() const noexcept override TENDON_EXCLUDES(mutex_);

  [[nodiscard]] Result<void> expect_switch(Bytes renewal_key) override TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool expects_switch() const noexcept override TENDON_EXCLUDES(mutex_);
  void switch_output() noexcept override TENDON_EXCLUDES(mutex_);

  static constexpr std::size_t kSealedAtOnceBytes = std::size_t{256} << 10;

 private:
  enum class Stage : std::uint8_t { handshake, open, ended, lost };

  SecureStream(std::unique_ptr<ByteStream> below, std::unique_ptr<secure::TlsHandshake> handshake,
               const SecureStreamOptions& options);

  [[nodiscard]] StreamIo read_locked(std::span<const iovec> pieces) TENDON_REQUIRES(mutex_);
  [[nodiscard]] StreamIo write_locked(std::span<const iovec> pieces) TENDON_REQUIRES(mutex_);
  /// Goes on with the handshake as far as the stream below does.
  void shake() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> begin_records() TENDON_REQUIRES(mutex_);
  /// Reads more from the stream below; false: nothing has arrived, or it is over.
  bool fetch(std::size_t wanted_bytes) TENDON_REQUIRES(mutex_);
  /// One record, into `destination` as far as it fits; nothing: none is whole, or it is over.
  [[nodiscard]] std::optional<std::size_t> open_record(MutableBytes destination)
      TENDON_REQUIRES(mutex_);
  /// Hands what was sealed to the stream below.
  void flush() TENDON_REQUIRES(mutex_);
  void say_end() TENDON_REQUIRES(mutex_);
  void lose(int error) TENDON_REQUIRES(mutex_);
  void lose(Error why) TENDON_REQUIRES(mutex_);
  void on_end_below() TENDON_REQUIRES(mutex_);
  /// What a read returns although the descriptor has nothing.
  [[nodiscard]] std::size_t readable_inside() const TENDON_REQUIRES(mutex_);

  /// A child has none of the keys, and its parent's threads may hold the lock.
  [[nodiscard]] bool is_of_parent() const noexcept { return process_ != process_number(); }

  const std::uint32_t process_ = process_number();
  const std::unique_ptr<ByteStream> below_;
  const secure::TlsHandshake::Role role_;
  const secure::SealerKind sealer_;
  const secure::RecordLimits limits_;
  mutable Mutex mutex_;
  Stage stage_ TENDON_GUARDED_BY(mutex_) = Stage::handshake;
  std::unique_ptr<secure::TlsHandshake> handshake_ TENDON_GUARDED_BY(mutex_);
  std::optional<secure::RecordLayer> records_ TENDON_GUARDED_BY(mutex_);
  std::optional<secure::TlsSession> session_ TENDON_GUARDED_BY(mutex_);          // the first one
  std::optional<secure::TrafficSecret> next_sending_ TENDON_GUARDED_BY(mutex_);  // of the switch
  SealedInput input_ TENDON_GUARDED_BY(mutex_);
  SealedOutput output_ TENDON_GUARDED_BY(mutex_);
  bool ends_output_ TENDON_GUARDED_BY(mutex_) = false;  // once all was sent
  int write_error_ TENDON_GUARDED_BY(mutex_) = 0;       // what arrived before is still read
  int lost_error_ TENDON_GUARDED_BY(mutex_) = 0;
  std::optional<Error> why_lost_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
