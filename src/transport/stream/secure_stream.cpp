// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/secure_stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "secure/renewed_secrets.hpp"

namespace tendon::v0::detail {
namespace {

// Returns the bytes that so much content takes when sealed, with a change of the key before it.
std::size_t sealed_bytes_of(std::size_t content_bytes) {
  const std::size_t records = content_bytes / secure::kMaxContentBytes + 1;
  return secure::RecordLayer::kLeastRoomBytes + content_bytes +
         records * secure::kRecordOverheadBytes;
}

// The limit for one read: a peer that sends records of one byte each does not hold up its reader.
constexpr std::size_t kMostFetches = 16;

MutableBytes bytes_of(const iovec& piece) {
  return {static_cast<std::byte*>(piece.iov_base), piece.iov_len};
}

// Walks through the pieces of a read or write.
class Pieces {
 public:
  explicit Pieces(std::span<const iovec> pieces) : pieces_(pieces) { skip_empty(); }

  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t bytes = 0;
    for (const iovec& piece : pieces_) bytes += piece.iov_len;
    return bytes - offset_;
  }
  [[nodiscard]] MutableBytes front() const { return bytes_of(pieces_.front()).subspan(offset_); }
  void drop(std::size_t bytes) {
    while (bytes != 0) {
      const std::size_t here = std::min(bytes, front().size());
      offset_ += here;
      bytes -= here;
      skip_empty();
    }
  }
  /// Returns as many pieces as one call of the record layer takes.
  [[nodiscard]] std::span<const Bytes> to_seal(std::span<Bytes> room) const {
    std::size_t count = 0;
    for (std::size_t n = 0; n < pieces_.size() && count < room.size(); ++n)
      room[count++] = n == 0 ? Bytes(front()) : Bytes(bytes_of(pieces_[n]));
    return room.first(count);
  }

 private:
  void skip_empty() {
    while (!pieces_.empty() && front().empty()) {
      pieces_ = pieces_.subspan(1);
      offset_ = 0;
    }
  }

  std::span<const iovec> pieces_;
  std::size_t offset_ = 0;  // in the first piece
};

}  // namespace

SecureStream::SecureStream(std::unique_ptr<ByteStream> below,
                           std::unique_ptr<secure::TlsHandshake> handshake,
                           const SecureStreamOptions& options)
    : below_(std::move(below)),
      role_(options.role),
      sealer_(options.sealer),
      limits_(options.limits),
      handshake_(std::move(handshake)) {}

Result<std::unique_ptr<SecureStream>> SecureStream::make(std::unique_ptr<ByteStream> below,
                                                         SecureStreamOptions options) {
  TENDON_TRY(handshake, secure::TlsHandshake::make(options.credentials, options.role,
                                                   std::move(options.handshake)));
  return std::unique_ptr<SecureStream>(
      new SecureStream(std::move(below), std::move(handshake), options));
}

StreamIo SecureStream::read(std::span<const iovec> pieces) noexcept {
  if (is_of_parent()) return StreamIo::lost(EPROTO);
  const Lock lock(mutex_);
  try {
    return read_locked(pieces);
  } catch (const std::bad_alloc&) {
    lose(ENOMEM);
    return StreamIo::lost(ENOMEM);
  }
}

StreamIo SecureStream::write(std::span<const iovec> pieces) noexcept {
  if (is_of_parent()) return StreamIo::lost(EPROTO);
  const Lock lock(mutex_);
  try {
    return write_locked(pieces);
  } catch (const std::bad_alloc&) {
    lose(ENOMEM);
    return StreamIo::lost(ENOMEM);
  }
}

// --- the handshake

void SecureStream::shake() {
  // A client speaks first; a server waits for its hello.
  bool has_input = true;
  while (stage_ == Stage::handshake && has_input) {
    has_input = fetch(0);
    if (stage_ != Stage::handshake) return;
    std::vector<std::byte> answer;
    auto advanced = handshake_->advance(input_.unopened(), answer);
    input_.note_opened(input_.unopened().size(), {});
    output_.append(answer);
    flush();
    if (!advanced) return lose(std::move(advanced).error());
    if (handshake_->state() == secure::TlsHandshake::State::done) {
      if (auto begun = begin_records(); !begun) lose(std::move(begun).error());
    }
  }
}

Result<void> SecureStream::begin_records() {
  secure::TlsSession& session = session_.emplace(handshake_->take_session());
  handshake_.reset();
  const auto unneeded = std::move(session.renewal_key);  // wiped: this session renews none
  input_.begin(std::exchange(session.records, {}));
  TENDON_TRY(records, secure::RecordLayer::make({.sending = std::move(session.sending),
                                                 .receiving = std::move(session.receiving)},
                                                sealer_, limits_));
  records_.emplace(std::move(records));
  stage_ = Stage::open;
  return {};
}

// --- reading

bool SecureStream::fetch(std::size_t wanted_bytes) {
  const StreamIo io = input_.fetch(*below_, wanted_bytes);
  if (io.state == StreamIo::State::ended) on_end_below();
  if (io.state == StreamIo::State::lost) lose(io.error);
  return io.state == StreamIo::State::moved;
}

void SecureStream::on_end_below() {
  if (stage_ == Stage::handshake) {
    return lose(Error{ErrorCode::peer_lost, "secure.stream",
                      "the peer closed the connection during the handshake"});
  }
  if (auto ended = records_->end_of_stream(); !ended) return lose(std::move(ended).error());
  stage_ = Stage::ended;
}

std::optional<std::size_t> SecureStream::open_record(MutableBytes destination) {
  using State = secure::RecordLayer::Opened::State;
  auto opened = records_->open(input_.unopened(), destination, std::chrono::steady_clock::now());
  if (!opened) {
    lose(std::move(opened).error());
    return std::nullopt;
  }
  if (opened->state == State::ended) stage_ = Stage::ended;
  if (opened->state != State::opened) return std::nullopt;
  input_.note_opened(opened->taken_bytes, opened->rest);
  return opened->written_bytes;
}

StreamIo SecureStream::read_locked(std::span<const iovec> wanted) {
  shake();
  Pieces pieces(wanted);
  std::size_t moved = 0;
  std::size_t fetches = 0;
  // Does not ask a drained stream again once a read has bytes: that would be another system call
  // for each small message.
  const auto has_fetched_enough = [&]() TENDON_REQUIRES(mutex_) {
    return fetches == kMostFetches || (fetches != 0 && input_.is_drained());
  };
  while (!pieces.empty() && stage_ == Stage::open) {
    std::size_t written = std::min(input_.plain().size(), pieces.front().size());
    if (written != 0) {
      std::memcpy(pieces.front().data(), input_.plain().data(), written);
      input_.drop_plain(written);
    } else if (const auto opened = open_record(pieces.front())) {
      written = *opened;
    } else if (stage_ != Stage::open || (moved != 0 && has_fetched_enough()) ||
               !fetch(pieces.size_bytes())) {
      break;
    } else {
      ++fetches;
    }
    moved += written;
    pieces.drop(written);
  }
  input_.keep();
  // Leaves an end or a loss to the next call if bytes were read before it.
  if (moved != 0) {
    const bool may_have_more = fetches == kMostFetches && !pieces.empty();
    return StreamIo::moved(moved, std::max<std::size_t>(readable_inside(), may_have_more ? 1 : 0));
  }
  switch (stage_) {
    case Stage::handshake:
    case Stage::open:
      return StreamIo{};
    case Stage::ended:
      return StreamIo::ended();
    case Stage::lost:
      return StreamIo::lost(lost_error_);
  }
  return StreamIo{};
}

std::size_t SecureStream::readable_inside() const {
  if (!input_.plain().empty()) return input_.plain().size();
  if (stage_ != Stage::open) return 1;  // the end, which only a read reports
  const Bytes unopened = input_.unopened();
  const auto sealed = secure::sealed_bytes_in(unopened);
  return sealed && unopened.size() - secure::kRecordHeaderBytes >= *sealed ? 1 : 0;
}

// --- writing

StreamIo SecureStream::write_locked(std::span<const iovec> wanted) {
  shake();
  input_.keep();
  flush();
  Pieces pieces(wanted);
  std::size_t taken = 0;
  const bool takes_more = records_ && !ends_output_;
  while (stage_ != Stage::lost && takes_more && write_error_ == 0 && !pieces.empty() &&
         output_.is_sent()) {
    std::array<Bytes, secure::RecordProtection::kMaxPieces> some;
    const std::size_t room = sealed_bytes_of(std::min(pieces.size_bytes(), kSealedAtOnceBytes));
    auto sealed =
        records_->seal(pieces.to_seal(some), output_.room(room), std::chrono::steady_clock::now());
    if (!sealed) {
      lose(std::move(sealed).error());
      break;
    }
    output_.add(sealed->written_bytes);
    taken += sealed->taken_bytes;
    pieces.drop(sealed->taken_bytes);
    flush();
  }
  if (stage_ == Stage::lost) return StreamIo::lost(lost_error_);
  if (write_error_ != 0) return StreamIo::lost(write_error_);
  if (taken == 0 && (stage_ == Stage::handshake || (!pieces.empty() && output_.is_sent())))
    return StreamIo{};
  return StreamIo::moved(taken, output_.bytes_left());
}

void SecureStream::flush() {
  if (write_error_ != 0) return;
  const StreamIo io = output_.flush(*below_);
  if (io.state == StreamIo::State::lost) write_error_ = io.error;
  if (ends_output_ && output_.is_sent()) below_->end_output();
}

void SecureStream::end_output() noexcept {
  if (is_of_parent()) return;
  const Lock lock(mutex_);
  if (stage_ == Stage::lost || write_error_ != 0 || ends_output_) return;
  if (!records_) return below_->end_output();  // nothing was sent
  say_end();
  ends_output_ = true;
  flush();
}

void SecureStream::end_input() noexcept {
  if (is_of_parent()) return;
  const Lock lock(mutex_);
  if (records_) records_->end_receiving();
  next_sending_.reset();
  if (!session_) return;
  const auto lane_key = std::move(session_->lane_key);
  const auto host_key = std::move(session_->host_key);
}

// Seals close_notify, or the alert that tells the peer of an error.
void SecureStream::say_end() {
  auto written = records_->seal_end(output_.room(secure::RecordLayer::kLeastRoomBytes));
  if (written) output_.add(*written);
}

// --- the switch to a renewed session

Result<void> SecureStream::expect_switch(Bytes renewal_key) {
  if (is_of_parent()) return {};
  const Lock lock(mutex_);
  if (!records_ || stage_ == Stage::lost) return {};
  TENDON_TRY(secrets, secure::renewed_secrets(renewal_key, role_, session_->id));
  records_->expect_switch(std::move(secrets.receiving));
  next_sending_ = std::move(secrets.sending);
  return {};
}

bool SecureStream::expects_switch() const noexcept {
  if (is_of_parent()) return false;
  const Lock lock(mutex_);
  return records_ && stage_ == Stage::open && records_->expects_switch();
}

// Records that were sealed before leave first. Output that has ended has no keys to change.
void SecureStream::switch_output() noexcept {
  if (is_of_parent()) return;
  const Lock lock(mutex_);
  if (!next_sending_ || ends_output_ || stage_ == Stage::lost || write_error_ != 0) return;
  try {
    auto written = records_->seal_switch(output_.room(secure::RecordLayer::kLeastRoomBytes),
                                         *std::move(next_sending_));
    next_sending_.reset();
    if (!written) return lose(std::move(written).error());
    output_.add(*written);
    flush();
  } catch (const std::bad_alloc&) {
    lose(ENOMEM);
  }
}

// --- ends

void SecureStream::lose(int error) {
  if (stage_ == Stage::lost) return;
  stage_ = Stage::lost;
  lost_error_ = error;
}

void SecureStream::lose(Error why) {
  if (stage_ == Stage::lost) return;
  lose(EPROTO);
  why_lost_ = std::move(why);
  if (!records_) return;
  say_end();
  (void)output_.flush(*below_);  // as far as there is room
}

bool SecureStream::has_room() const noexcept {
  const Lock lock(mutex_);
  if (stage_ == Stage::lost || write_error_ != 0) return true;  // the next write reports it
  return stage_ != Stage::handshake && output_.is_sent() && below_->has_room();
}

bool SecureStream::wants_room() const noexcept {
  const Lock lock(mutex_);
  return stage_ != Stage::lost && write_error_ == 0 && !output_.is_sent();
}

std::optional<Error> SecureStream::why_lost() const {
  if (is_of_parent()) {
    return Error{ErrorCode::forked, "secure.stream",
                 "the link is of the process from which this one was forked: connect again here"};
  }
  const Lock lock(mutex_);
  return why_lost_;
}

bool SecureStream::has_answered() const noexcept {
  const Lock lock(mutex_);
  return !handshake_ || handshake_->state() != secure::TlsHandshake::State::hello;
}

bool SecureStream::has_heard() const noexcept {
  const Lock lock(mutex_);
  return input_.has_fetched();
}

const secure::TlsSession* SecureStream::session() const noexcept {
  const Lock lock(mutex_);
  return stage_ == Stage::handshake || !records_ ? nullptr : &*session_;
}

}  // namespace tendon::v0::detail
