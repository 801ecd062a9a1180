// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_dials.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/context_core.hpp"
#include "runtime/dial_errors.hpp"

namespace tendon::v0::detail {
namespace {

// A stop request wakes nobody, so it is polled.
constexpr std::chrono::milliseconds kLooksForStopEvery{500};

}  // namespace

LaneDials::LaneDials(ContextCore& context, LaneDialOptions options)
    : context_(context), options_(std::move(options)), lanes_(options_.count) {}

Result<std::vector<std::unique_ptr<ByteStream>>> LaneDials::run() {
  for (;;) {
    for (std::uint32_t index = 0; index < options_.count; ++index) TENDON_CHECK(advance(index));
    if (are_all_joined()) break;
    const bool goes_on = context_.wait(nullptr, next_due(), [this] {
      return note_ready() || why_over() || context_.unusable() || options_.stop.stop_requested();
    });
    TENDON_CHECK(context_.usable(kConnect));
    if (auto over = why_over()) return at_address(options_.address, *std::move(over));
    if (options_.stop.stop_requested())
      return at_address(options_.address,
                        {ErrorCode::cancelled, kConnect, "its caller stopped the dialling"});
    if (!goes_on && options_.deadline.has_passed()) return timed_out();
  }
  std::vector<std::unique_ptr<ByteStream>> joined;
  joined.reserve(lanes_.size());
  for (Lane& lane : lanes_) joined.push_back(std::move(lane.joined));
  return joined;
}

Result<void> LaneDials::advance(std::uint32_t index) {
  Lane& lane = lanes_[index];
  if (lane.joined != nullptr) return {};
  if (!lane.talk) return may_begin(index) ? begin(index) : Result<void>();
  if (!std::exchange(lane.is_ready, false)) return {};
  return take(lane, lane.talk->stream.advance());
}

bool LaneDials::may_begin(std::uint32_t index) const {
  if (!lanes_[index].next_try.has_passed()) return false;
  return options_.pace == LanePace::all_at_once || index == 0 ||
         lanes_[index - 1].joined != nullptr;
}

Result<void> LaneDials::begin(std::uint32_t index) {
  Lane& lane = lanes_[index];
  auto opened = options_.open();
  if (!opened) return take_failure(lane, std::move(opened).error(), Heard::nothing);
  TENDON_TRY(talk, Talk::over(context_, *std::move(opened)));
  lane.talk.emplace(std::move(talk));
  HelloMessage message;
  message.kind = HelloKind::lane;
  message.context_id = context_.id();
  message.ticket = options_.ticket;
  message.lane_index = index;
  return take(lane, lane.talk->stream.reply(message));
}

Result<void> LaneDials::take(Lane& lane, HandshakeStep step) {
  HandshakeStream& stream = lane.talk->stream;
  if (step.next == Next::failed) {
    const Heard heard = stream.heard();
    lane.talk.reset();
    return take_failure(lane, at_address(options_.address, *std::move(step.error)), heard);
  }
  if (!step.message) return {};
  if (!is_none(step.message->ticket)) options_.ticket = step.message->ticket;
  lane.talk->watch.stop();
  lane.joined = stream.release();
  lane.talk.reset();
  return {};
}

Result<void> LaneDials::take_failure(Lane& lane, Error error, Heard heard) {
  // The listener keeps the session only while the link lives, so the next try would not find it.
  if (error.code == ErrorCode::authentication_failed)
    return at_address(options_.address,
                      {ErrorCode::server_busy, kConnect,
                       "the link ended there while its lanes were opened: connect again"});
  if (error.code == ErrorCode::peer_lost && heard == Heard::nothing)
    error = no_place_at(options_.address);
  if (!lane.redial) {
    TENDON_TRY(redial, Redial::make(context_, options_.address, Absent::fail, options_.deadline));
    lane.redial.emplace(std::move(redial));
  }
  TENDON_TRY(pause, lane.redial->after(std::move(error), heard));
  lane.next_try = Deadline(pause);
  return {};
}

bool LaneDials::are_all_joined() const {
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.joined != nullptr; });
}

bool LaneDials::note_ready() {
  bool is_any_ready = false;
  for (Lane& lane : lanes_) {
    if (lane.talk && lane.talk->watch.take_ready()) lane.is_ready = true;
    is_any_ready |= lane.is_ready;
  }
  return is_any_ready;
}

Deadline LaneDials::next_due() const {
  Deadline due = options_.deadline;
  if (options_.stop.stop_possible()) due = earlier(due, kLooksForStopEvery);
  for (std::uint32_t index = 0; index < options_.count; ++index) {
    const Lane& lane = lanes_[index];
    // A lane that waits for the previous one begins when that one has joined.
    if (lane.joined == nullptr && !lane.talk && !lane.next_try.is_poll())
      due = earlier(due, lane.next_try);
  }
  return due;
}

// A connection that was closed earlier explains more than the timeout does.
Error LaneDials::timed_out() {
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (lane.joined != nullptr) continue;
    const std::string which = " of lane " + std::to_string(index);
    Error error = lane.talk
                      ? dial_timed_out(options_.address, lane.talk->stream)
                      : dial_timed_out(options_.address, "waiting for a place of its listener");
    error.detail += which;
    if (!lane.redial) return error;
    auto last = lane.redial->after(std::move(error), Heard::nothing);
    if (!last) return std::move(last).error();
  }
  return dial_timed_out(options_.address, "opening its lanes");
}

}  // namespace tendon::v0::detail
