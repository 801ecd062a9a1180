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

/// The settings of one end of a secure stream.
struct SecureStreamOptions {
  secure::TlsHandshake::Role role = secure::TlsHandshake::Role::client;
  std::shared_ptr<const secure::Credentials> credentials;
  secure::TlsHandshakeOptions handshake{};
  secure::SealerKind sealer = secure::SealerKind::automatic;
  secure::RecordLimits limits{};
};

/// TLS 1.3 over another stream: nobody between the ends reads its bytes, or changes them unseen.
/// The first reads and writes make the handshake and move no bytes before it is done.
///
///   handshake --> open --> ended: the peer said close_notify; this end may still write
///       \           \----> lost
///        \---------------> lost
///
/// A link that renews its session changes the keys while it is open, each direction by itself. If
/// the receiver expects a switch, close_notify means the switch and not the end.
///
/// Owns:    the stream below, the keys, the send buffer (of kSealedAtOnceBytes and a record at
///          most), and the part of an incomplete record that has arrived.
/// Threads: as a ByteStream. Its reader and its writer take turns, for a few records each.
/// Errors:  StreamIo::lost with EPROTO, or the error of the stream below. After a write that is
///          lost, reading continues to the end of what has arrived. why_lost() has the reason:
///          authentication_failed, protocol_violation, peer_lost if the stream ended without
///          close_notify, or `forked` in a child, where nothing is read or written.
/// Blocks:  never, except for the other thread's turn.
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

  /// The session that both ends know once the handshake is done; null before. The record layer has
  /// taken its traffic secrets.
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
  /// Continues the handshake as far as the stream below allows.
  void shake() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> begin_records() TENDON_REQUIRES(mutex_);
  /// Reads more from the stream below; false: nothing has arrived, or the stream has ended.
  bool fetch(std::size_t wanted_bytes) TENDON_REQUIRES(mutex_);
  /// Opens one record into `destination` as far as it fits; nothing: no record is complete, or the
  /// stream has ended.
  [[nodiscard]] std::optional<std::size_t> open_record(MutableBytes destination)
      TENDON_REQUIRES(mutex_);
  /// Hands sealed records to the stream below.
  void flush() TENDON_REQUIRES(mutex_);
  void say_end() TENDON_REQUIRES(mutex_);
  void lose(int error) TENDON_REQUIRES(mutex_);
  void lose(Error why) TENDON_REQUIRES(mutex_);
  void on_end_below() TENDON_REQUIRES(mutex_);
  /// Returns how many bytes a read returns although the descriptor is not ready.
  [[nodiscard]] std::size_t readable_inside() const TENDON_REQUIRES(mutex_);

  /// A child has none of the keys, and a thread of its parent may hold the lock.
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
  bool ends_output_ TENDON_GUARDED_BY(mutex_) = false;  // once everything is sent
  int write_error_ TENDON_GUARDED_BY(mutex_) = 0;       // earlier input is still read
  int lost_error_ TENDON_GUARDED_BY(mutex_) = 0;
  std::optional<Error> why_lost_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
