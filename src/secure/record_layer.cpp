// SPDX-License-Identifier: Apache-2.0
#include "secure/record_layer.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "secure/certificate_check.hpp"

namespace tendon::v0::detail::secure {
namespace {

constexpr std::string_view kWhere = "secure.record";
// Levels of alerts, which receivers ignore (RFC 8446, section 6).
constexpr std::byte kWarning{1};
constexpr std::byte kFatal{2};

// Empty records are legal, to hide traffic, but an endless row of them keeps a reader busy.
constexpr std::uint32_t kMaxEmptyRecords = 32;

Error violation(std::string why) {
  return Error{ErrorCode::protocol_violation, kWhere, std::move(why)};
}

// The pieces that were not sealed yet.
class Content {
 public:
  explicit Content(std::span<const Bytes> pieces) : pieces_(pieces) {
    for (const Bytes piece : pieces) left_bytes_ += piece.size();
  }
  [[nodiscard]] std::size_t left_bytes() const { return left_bytes_; }

  // The next pieces for one record, none of them empty.
  std::span<const Bytes> take(std::size_t max_bytes) {
    std::size_t count = 0;
    while (count < taken_.size() && max_bytes != 0 && !pieces_.empty()) {
      const Bytes left = pieces_.front().subspan(offset_);
      const Bytes taken = left.first(std::min(left.size(), max_bytes));
      if (!taken.empty()) taken_[count++] = taken;
      max_bytes -= taken.size();
      left_bytes_ -= taken.size();
      offset_ += taken.size();
      if (taken.size() == left.size()) {
        pieces_ = pieces_.subspan(1);
        offset_ = 0;
      }
    }
    return std::span(taken_).first(count);
  }

 private:
  std::span<const Bytes> pieces_;
  std::size_t offset_ = 0;  // in the first piece
  std::size_t left_bytes_ = 0;
  std::array<Bytes, RecordProtection::kMaxPieces> taken_;
};

}  // namespace

RecordLayer::RecordLayer(const RecordLimits& limits, RecordProtection sending,
                         RecordProtection receiving)
    : limits_(limits), sending_(std::move(sending)), receiving_(std::move(receiving)) {}

Result<RecordLayer> RecordLayer::make(RecordSecrets secrets, SealerKind kind,
                                      const RecordLimits& limits) {
  TENDON_TRY(sending, RecordProtection::make(std::move(secrets.sending), kind));
  TENDON_TRY(receiving, RecordProtection::make(std::move(secrets.receiving), kind));
  return RecordLayer(limits, std::move(sending), std::move(receiving));
}

// --- sending

// A key that has sealed nothing is new, so even a limit of one record does not update forever.
bool RecordLayer::is_update_due(TimePoint now) const {
  if (answer_update_) return true;
  return sending_->sequence() != 0 &&
         (sending_->sequence() + 1 >= limits_.records || sealed_bytes_ >= limits_.bytes ||
          now - first_sealed_ >= limits_.age);
}

// Writes the last record of a key. It requests no update, because the peer counts its own records.
Result<std::size_t> RecordLayer::seal_update(MutableBytes room) {
  constexpr std::array<std::byte, kKeyUpdateBytes> kUpdate{kKeyUpdateType, std::byte{0},
                                                           std::byte{0}, std::byte{1}};
  const Bytes update(kUpdate);
  TENDON_TRY(written, sending_->seal(ContentType::handshake, std::span(&update, 1), room));
  TENDON_CHECK(sending_->advance());
  answer_update_ = false;
  sealed_bytes_ = 0;
  return written;
}

Result<RecordLayer::Sealed> RecordLayer::seal(std::span<const Bytes> pieces, MutableBytes room,
                                              TimePoint now) {
  if (error_) return *error_;
  if (!sending_) {
    return Error{ErrorCode::pipe_closed, kWhere, "this end has said that it sends nothing more"};
  }
  Content content(pieces);
  const std::size_t all_bytes = content.left_bytes();
  Sealed done;
  while (room.size() >= kLeastRoomBytes) {
    const bool updates = is_update_due(now);
    if (!updates && content.left_bytes() == 0) break;
    if (sending_->sequence() == 0) first_sealed_ = now;
    const std::size_t most = std::min(room.size() - kRecordOverheadBytes, kMaxContentBytes);
    auto written = updates
                       ? seal_update(room)
                       : sending_->seal(ContentType::application_data, content.take(most), room);
    if (!written) return fail(Alert::internal_error, std::move(written).error());
    if (!updates) sealed_bytes_ += *written;
    done.written_bytes += *written;
    room = room.subspan(*written);
  }
  done.taken_bytes = all_bytes - content.left_bytes();
  return done;
}

Result<std::size_t> RecordLayer::seal_end(MutableBytes room) {
  if (!sending_ || room.size() < kLeastRoomBytes) return 0;
  TENDON_TRY(written, seal_alert(end_, room));
  sending_.reset();
  return written;
}

Result<std::size_t> RecordLayer::seal_alert(Alert alert, MutableBytes room) {
  const std::array<std::byte, 2> words{alert == Alert::close_notify ? kWarning : kFatal,
                                       static_cast<std::byte>(alert)};
  const Bytes content(words);
  return sending_->seal(ContentType::alert, std::span(&content, 1), room);
}

Result<std::size_t> RecordLayer::seal_switch(MutableBytes room, TrafficSecret secret) {
  if (error_ || !sending_ || room.size() < kLeastRoomBytes) return 0;
  auto written = seal_alert(Alert::close_notify, room);
  if (!written) return fail(Alert::internal_error, std::move(written).error());
  if (auto replaced = sending_->replace(std::move(secret)); !replaced)
    return fail(Alert::internal_error, std::move(replaced).error());
  answer_update_ = false;
  sealed_bytes_ = 0;
  return written;
}

// --- receiving

void RecordLayer::end_receiving() {
  receiving_.reset();
  next_receiving_.reset();
}

// Records the final error; only seal_end() may follow.
Error RecordLayer::fail(Alert alert, Error why) {
  end_receiving();
  end_ = alert;
  error_ = std::move(why);
  return *error_;
}

Result<RecordLayer::Opened> RecordLayer::open(MutableBytes received, MutableBytes destination,
                                              TimePoint now) {
  if (error_) return *error_;
  if (!receiving_) return Opened{.state = Opened::State::ended};
  const auto said_bytes = sealed_bytes_in(received);
  if (!said_bytes) return Opened{};
  const Bytes header = received.first(kRecordHeaderBytes);
  if (header[0] != static_cast<std::byte>(ContentType::application_data)) {
    return fail(Alert::unexpected_message,
                violation("a record of type " + std::to_string(std::to_integer<int>(header[0])) +
                          " is not protected"));
  }
  // The tag covers the version, which is ignored (RFC 8446, section 5.1).
  const std::size_t sealed_bytes = *said_bytes;
  if (sealed_bytes > kMaxRecordBytes - kRecordHeaderBytes) {
    return fail(Alert::record_overflow,
                violation("a record has " + std::to_string(sealed_bytes) +
                          " bytes behind its header, and may have " +
                          std::to_string(kMaxRecordBytes - kRecordHeaderBytes)));
  }
  if (sealed_bytes < kTypeBytes + kTagBytes) {
    return fail(Alert::decode_error,
                violation("a record of " + std::to_string(sealed_bytes) +
                          " bytes behind its header has no room for a type and a tag"));
  }
  if (received.size() - kRecordHeaderBytes < sealed_bytes) return Opened{};

  const MutableBytes sealed = received.subspan(kRecordHeaderBytes, sealed_bytes);
  auto inside = receiving_->open(header, sealed, destination);
  if (!inside) return fail(Alert::bad_record_mac, std::move(inside).error());

  const std::size_t bytes = inside->content_bytes;
  Opened opened{.state = Opened::State::opened,
                .taken_bytes = kRecordHeaderBytes + sealed_bytes,
                .written_bytes = std::min(bytes, destination.size())};
  opened.rest = sealed.subspan(opened.written_bytes, bytes - opened.written_bytes);
  if (inside->type == ContentType::application_data) {
    empty_records_ = bytes == 0 ? empty_records_ + 1 : 0;
    if (empty_records_ <= kMaxEmptyRecords) return opened;
    return fail(Alert::unexpected_message,
                violation("more than " + std::to_string(kMaxEmptyRecords) +
                          " records in a row have no content"));
  }

  // Joins a message of a few bytes. One byte more detects a longer one.
  std::array<std::byte, kKeyUpdateBytes + 1> words{};
  const auto front = destination.first(std::min(opened.written_bytes, words.size()));
  const auto back = opened.rest.first(std::min(opened.rest.size(), words.size() - front.size()));
  std::copy(back.begin(), back.end(), std::copy(front.begin(), front.end(), words.begin()));
  const Bytes content = Bytes(words).first(front.size() + back.size());
  opened.written_bytes = 0;
  opened.rest = {};
  switch (inside->type) {
    case ContentType::alert: {
      TENDON_TRY(state, hear_alert(content));
      opened.state = state;
      return opened;
    }
    case ContentType::handshake:
      TENDON_CHECK(hear_handshake(content, now));
      return opened;
    default:
      return fail(Alert::unexpected_message,
                  violation("a record has content of type " +
                            std::to_string(static_cast<int>(inside->type))));
  }
}

// Succeeds for a close_notify.
Result<RecordLayer::Opened::State> RecordLayer::hear_alert(Bytes content) {
  if (content.size() != 2)
    return fail(Alert::decode_error, violation("a record of alerts has not just one"));
  const bool is_close_notify = content[1] == static_cast<std::byte>(Alert::close_notify);
  if (is_close_notify && next_receiving_) {
    auto replaced = receiving_->replace(*std::move(next_receiving_));
    next_receiving_.reset();
    if (!replaced) return fail(Alert::internal_error, std::move(replaced).error());
    empty_records_ = 0;
    return Opened::State::opened;
  }
  end_receiving();
  if (is_close_notify) return Opened::State::ended;
  sending_.reset();  // nothing may follow to a peer that sent an alert
  const auto alert = static_cast<Alert>(content[1]);
  // A client finishes its handshake before the server has checked its certificate.
  if (alert == Alert::bad_certificate || alert == Alert::certificate_required) {
    error_ = Error{ErrorCode::authentication_failed, kWhere, std::string(kCertificateRefused)};
  } else {
    error_ = violation("the peer ended the link with alert " +
                       std::to_string(std::to_integer<int>(content[1])) + " of TLS");
  }
  return *error_;
}

Result<void> RecordLayer::hear_handshake(Bytes content, TimePoint now) {
  if (content.empty() || content[0] != kKeyUpdateType) {
    return fail(Alert::unexpected_message,
                violation("a handshake message is no KeyUpdate, or is in several records"));
  }
  // The next record has the next key, so the message must be alone (RFC 8446, section 5.1).
  if (content.size() != kKeyUpdateBytes || content[1] != std::byte{0} ||
      content[2] != std::byte{0} || content[3] != std::byte{1}) {
    return fail(Alert::decode_error, violation("a KeyUpdate is not alone in its record"));
  }
  const std::byte requested = content[4];
  if (requested > std::byte{1})
    return fail(Alert::illegal_parameter, violation("a KeyUpdate asks for what there is not"));
  if (updates_ == 0 || now - updates_since_ >= limits_.updates_within) {
    updates_since_ = now;
    updates_ = 0;
  }
  if (++updates_ > limits_.updates) {
    return fail(Alert::unexpected_message,
                violation("more than " + std::to_string(limits_.updates) +
                          " KeyUpdates in a time that has room for as many"));
  }
  auto advanced = receiving_->advance();
  if (!advanced) return fail(Alert::internal_error, std::move(advanced).error());
  // One answer serves all that arrive before this end sends again.
  if (requested == std::byte{1}) answer_update_ = true;
  return {};
}

Result<void> RecordLayer::end_of_stream() const {
  if (error_) return *error_;
  if (!receiving_) return {};
  return Error{ErrorCode::peer_lost, kWhere,
               "the connection ended without the peer's close_notify: the end of what it sent may "
               "be missing"};
}

}  // namespace tendon::v0::detail::secure
