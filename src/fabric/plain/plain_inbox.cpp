// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_inbox.hpp"

#include <tendon/fabric/limits.hpp>
#include <vector>

#include "core/text.hpp"
#include "fabric/plain/plain_codec.hpp"
#include "runtime/peer_clock.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.plain";

std::uint64_t bytes_of(const ZenohMessage& message) {
  return message.payload.size_bytes() + message.attachment.size_bytes();
}

}  // namespace

Result<void> PlainInbox::listen(ZenohPort& zenoh) {
  TENDON_TRY(declared, zenoh.subscribe(
                           wanted_.keys,
                           [weak = weak_from_this()](const ZenohMessage& message) {
                             if (const auto self = weak.lock()) self->on_message(message);
                           },
                           [weak = weak_from_this()](std::string_view key, std::uint64_t count) {
                             if (const auto self = weak.lock()) self->drop(key, count);
                           }));
  const Lock lock(mutex_);
  if (!closed_) declared_ = std::move(declared);
  return {};
}

// False: a publisher of Tendon put it.
Result<bool> PlainInbox::may_wait(const ZenohMessage& message) const {
  TENDON_TRY(origin, read_plain_origin(message.attachment.bytes()));
  if (origin) return false;
  if (bytes_of(message) > kMaxPlainBytes) {
    return Error{ErrorCode::limit_exceeded, kWhere,
                 "a sample of " + std::to_string(bytes_of(message)) + " bytes; at most " +
                     std::to_string(kMaxPlainBytes) + " are taken"};
  }
  if (message.encoding.size() > kMaxEncodingBytes || !is_utf8(message.encoding)) {
    return Error{ErrorCode::limit_exceeded, kWhere,
                 "a sample with an encoding of " + std::to_string(message.encoding.size()) +
                     " bytes; at most " + std::to_string(kMaxEncodingBytes) +
                     " of UTF-8 are taken"};
  }
  TENDON_TRY(key, KeyExpression::parse(message.key));
  if (key.is_key() && key.intersects(wanted_.keys)) return true;
  return Error{ErrorCode::protocol_violation, kWhere, "a sample on a key that was not asked for"};
}

void PlainInbox::on_message(const ZenohMessage& message) {
  const auto may = may_wait(message);
  if (!may) return refuse(message.key, may.error());
  if (!*may) return;
  if (message.kind == ZenohKind::deleted) return note_deleted(message.key);
  std::vector<Waiting> oldest;  // outlives the lock
  {
    const Lock lock(mutex_);
    if (closed_) return;
    deleted_.erase(message.key);
    waiting_.push_back({message, static_cast<std::uint64_t>(boot_time_ns())});
    waiting_bytes_ += bytes_of(message);
    while (waiting_.size() > wanted_.most_samples || waiting_bytes_ > kMaxPlainWaitingBytes) {
      waiting_bytes_ -= bytes_of(waiting_.front().message);
      oldest.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }
  told_.on_came();
  for (const Waiting& one : oldest) drop(one.message.key, 1);
}

std::optional<PlainInbox::Waiting> PlainInbox::next() {
  const Lock lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  Waiting first = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= bytes_of(first.message);
  return first;
}

std::optional<Sample> PlainInbox::take() {
  std::size_t count = 0;
  {
    const Lock lock(mutex_);
    count = waiting_.size();
  }
  for (; count > 0; --count) {
    auto first = next();
    if (!first) return std::nullopt;
    auto parts = from_plain(first->message.payload, wanted_.schema, wanted_.content);
    if (!parts) {
      refuse(first->message.key, parts.error());
      continue;
    }
    const Lock lock(mutex_);
    ++counts_.taken;
    return Sample{.key = std::move(first->message.key),
                  .publisher = {},
                  .stamp = first->stamp,
                  .tensors = std::move(parts->tensors),
                  .bytes = std::move(parts->bytes),
                  .encoding = std::move(first->message.encoding),
                  .plain = true};
  }
  return std::nullopt;
}

// A key that is deleted already is no news: a flood of deletes thus takes no place from other
// events.
void PlainInbox::note_deleted(const std::string& key) {
  {
    const Lock lock(mutex_);
    if (closed_) return;
    ++counts_.deleted;
    if (deleted_.size() >= kMaxAnnouncements || !deleted_.insert(key).second) return;
  }
  told_.on_event(
      {.kind = FabricEventKind::plain_deleted,
       .key = key,
       .node = "a plain Zenoh peer",
       .reason = "deleted it: it has no value any more; what was put before still comes"});
}

bool PlainInbox::is_first(FabricEventKind kind, std::string_view key) {
  return told_keys_.size() < kMaxAnnouncements &&
         told_keys_.emplace(kind, key.substr(0, kMaxKeyBytes)).second;
}

void PlainInbox::drop(std::string_view key, std::uint64_t count) {
  {
    const Lock lock(mutex_);
    if (closed_) return;
    counts_.dropped += count;
    if (!is_first(FabricEventKind::plain_dropped, key)) return;
  }
  told_.on_event({.kind = FabricEventKind::plain_dropped,
                  .key = std::string(key.substr(0, kMaxKeyBytes)),
                  .node = "a plain Zenoh peer",
                  .reason = "put more than the window of the subscriber and " +
                            std::to_string(kMaxPlainWaitingBytes >> 20) +
                            " MiB: the oldest gave way, or what came last; more of that on this "
                            "key is only counted"});
}

void PlainInbox::refuse(const std::string& key, const Error& why) {
  const FabricEventKind kind = why.code == ErrorCode::schema_mismatch
                                   ? FabricEventKind::schema_mismatch
                                   : FabricEventKind::plain_refused;
  {
    const Lock lock(mutex_);
    ++(kind == FabricEventKind::schema_mismatch ? counts_.mismatches : counts_.refused);
    if (!is_first(kind, key)) return;
  }
  told_.on_event({.kind = kind,
                  .key = key.substr(0, kMaxKeyBytes),
                  .node = "a plain Zenoh peer",
                  .reason = "put what is dropped: " + why.detail +
                            "; more of that on this key is only counted"});
}

PlainInbox::Counts PlainInbox::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

void PlainInbox::close() {
  ZenohPort::Handle declared;  // outlive the lock
  std::deque<Waiting> waiting;
  const Lock lock(mutex_);
  closed_ = true;
  declared = std::move(declared_);
  waiting.swap(waiting_);
  waiting_bytes_ = 0;
}

}  // namespace tendon::v0::detail
