// SPDX-License-Identifier: Apache-2.0
// Rosters of a controller: how one is formed, and how it ends.
#include <algorithm>
#include <array>
#include <tendon/observe/log.hpp>
#include <utility>

#include "control/controller_core.hpp"
#include "control/relay/host_relay.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::milliseconds kProbeInterval{10};
constexpr std::size_t kProbesInQueue = 16;
constexpr std::size_t kSubscriptionsPerWorker = 4;
// Workers that a roster waits for are asked whether they live.
constexpr std::chrono::milliseconds kAskInterval{1000};

}  // namespace

Result<void> ControllerCore::wait_for_workers(Deadline deadline) {
  const Lock lock(mutex_);
  if (runs()) return {};
  // A loss is not passed over: rebuild() says that its caller knows of it.
  if (roster_.state == RosterState::closed) return roster_error("control.form");
  return form(deadline);
}

Result<void> ControllerCore::rebuild(Deadline deadline) {
  const Lock lock(mutex_);
  if (runs()) return {};
  if (roster_.state == RosterState::closed) roster_.state = RosterState::gathering;
  return form(deadline);
}

Result<void> ControllerCore::form(Deadline deadline) {
  Error last;
  for (std::uint32_t attempt = 0; attempt < kMaxRosterAttempts; ++attempt) {
    if (roster_.state == RosterState::stopped || roster_.state == RosterState::failed) {
      return roster_error("control.form");
    }
    if (roster_.state !=
        RosterState::forming) {  // else an earlier call's deadline passed in the midst
      roster_.state = RosterState::gathering;
      TENDON_CHECK(fill_seats(deadline));
      TENDON_CHECK(open_roster());
    }
    Result<void> probed = probe(deadline);
    if (probed.has_value()) return {};
    if (probed.error().code == ErrorCode::timeout || roster_.state == RosterState::stopped)
      return probed;
    last = probed.error();
  }
  end_as_failed({ErrorCode::worker_lost, "control.form",
                 std::to_string(kMaxRosterAttempts) +
                     " attempts to form a roster failed; the last: " + last.detail});
  return roster_.why_closed;
}

void ControllerCore::end_as_failed(Error why) {
  roster_.state = RosterState::failed;
  roster_.why_closed = std::move(why);
  // No worker waits until its own deadline for a roster that nobody forms.
  std::vector<std::shared_ptr<WorkerPipe>> pipes;
  for (const GlobalRank rank : seats_.taken()) {
    pipes.push_back(seats_.at(rank).pipe);
    seats_.vacate(rank);
  }
  const Error said = roster_.why_closed;
  changed();
  mutex_.unlock();
  for (const auto& pipe : pipes) pipe->cancel(said);
  mutex_.lock();
}

Result<void> ControllerCore::start_missing(std::map<GlobalRank, Started>& started) {
  for (const GlobalRank rank : seats_.in(SeatState::empty)) {
    const WorkerSeat& seat = seats_.at(rank);
    if (seat.state != SeatState::empty) continue;  // it came while another one was started
    Started& its = started[rank];
    // That one is on its way; the last that was here is the same as before.
    if (its.times > 0 && its.after == seat.heard.identity) continue;
    if (its.times >= kMaxRosterAttempts) {
      return Error{ErrorCode::worker_lost, "control.form",
                   name_of(rank) + " has ended, as did " + std::to_string(its.times - 1) +
                       " before it that were started for the same roster"};
    }
    its = {seat.heard.identity, its.times + 1};
    mutex_.unlock();
    Result<void> done = options_.start_worker(rank);
    mutex_.lock();
    if (!done.has_value()) return done;
  }
  return {};
}

Result<void> ControllerCore::fill_seats(Deadline deadline) {
  std::map<GlobalRank, Started> started;
  while (!seats_.all(SeatState::waiting)) {
    if (roster_.state == RosterState::stopped) return roster_error("control.form");
    if (options_.start_worker) {
      look_for_hung();
      TENDON_CHECK(start_missing(started));
      if (seats_.all(SeatState::waiting)) break;
    }
    if (deadline.has_passed()) {
      std::string text;
      if (const auto empty = seats_.in(SeatState::empty); !empty.empty()) {
        text = text_of(empty) + " of " + std::to_string(seats_.size()) + " did not come";
      }
      if (const auto failing = seats_.in(SeatState::failing); !failing.empty()) {
        text += (text.empty() ? "" : "; ") + text_of(failing) +
                " did not say that they are done with the roster before";
      }
      return Error{ErrorCode::timeout, "control.form", std::move(text)};
    }
    (void)changed_.wait_until(mutex_, next_look(deadline));
  }
  return {};
}

Deadline ControllerCore::next_look(Deadline deadline) const {
  if (!options_.start_worker) return deadline;
  return earlier(deadline, Deadline(std::min(kAskInterval, options_.hang_timeout)));
}

std::string ControllerCore::why_hung(const WorkerSeat& seat, Clock::time_point now) const {
  const std::string roster = std::to_string(roster_.id.roster);
  const std::string within =
      " within " + std::to_string(options_.hang_timeout.count()) + " ms (hang_timeout)";
  if (seat.asked_at && now - *seat.asked_at >= options_.hang_timeout)
    return " did not reply" + within + " while a roster was formed";
  if (now - roster_.since < options_.hang_timeout) return {};
  if (seat.state == SeatState::failing)
    return " did not say that it is done with roster " + roster + within + " of its end";
  // It lives and says so, but its program is not in rebuild().
  if (seat.state == SeatState::forming && seat.in_roster < roster_.id.roster &&
      seat.heard_at - roster_.since >= options_.hang_timeout)
    return " did not enter roster " + roster + within;
  return {};
}

void ControllerCore::look_for_hung() {
  const auto now = Clock::now();
  const bool asks = now - roster_.asked_at >= std::min(kAskInterval, options_.hang_timeout);
  if (asks) roster_.asked_at = now;
  for (const GlobalRank rank : seats_.taken()) {
    WorkerSeat& seat = seats_.at(rank);
    if (seat.state == SeatState::empty || seat.state == SeatState::ready) continue;
    if (const std::string why = why_hung(seat, now); !why.empty()) {
      give_up(rank, why);
    } else if (asks && !seat.asked_at) {
      v1::Word ping = word();
      ping.mutable_ping()->set_nonce(++nonce_);
      seat.pipe->send(ping);
      seat.asked_at = now;
    }
  }
}

void ControllerCore::give_up(GlobalRank rank, const std::string& why) {
  const Error lost{ErrorCode::worker_lost, "control.roster", name_of(rank) + why};
  log(LogLevel::warn, "control.roster", lost.detail + ": another worker takes its place");
  const std::shared_ptr<WorkerPipe> pipe = seats_.at(rank).pipe;
  seats_.vacate(rank);
  if (roster_.state == RosterState::forming) close_roster(lost);
  changed();
  mutex_.unlock();
  pipe->cancel(lost);
  mutex_.lock();
}

Result<void> ControllerCore::open_roster() {
  StepPlace place;
  if (options_.profile == Profile::plaintext) {
    place = {.host = host_of(address()), .worker_keys = seats_.public_keys()};
  }
  // A worker has taken all but the steps in flight; a stranger that never reads keeps no more.
  place.queued_inputs = steps_.limit() + kProbesInQueue;
  place.most_subscriptions = kSubscriptionsPerWorker * seats_.size();
  TENDON_TRY(sockets, network_->bind(place));
  // What was published in an earlier roster goes with its sockets.
  sockets_ = std::move(sockets);
  ++roster_.id.roster;
  inputs_ = FlowSender();
  store_.forget_all_of(HostRelay::kStoreKeys);
  roster_.state = RosterState::forming;
  roster_.since = Clock::now();
  roster_.why_closed = {};
  const StepEndpoints endpoints = sockets_->endpoints();
  v1::Word rebuild = word();
  rebuild.mutable_rebuild()->set_inputs_endpoint(endpoints.inputs);
  rebuild.mutable_rebuild()->set_outputs_endpoint(endpoints.outputs);
  rebuild.mutable_rebuild()->set_microbatch_endpoint(endpoints.microbatches);
  rebuild.mutable_rebuild()->set_server_key(endpoints.server_key);
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    WorkerSeat& seat = seats_.at({rank});
    seat.state = SeatState::forming;
    seat.forget_steps(Clock::now());
    seat.end_tensors();
  }
  seats_.tell_all(rebuild);
  return {};
}

Result<void> ControllerCore::probe(Deadline deadline) {
  v1::StepMessage probe = message_of(roster_.id, v1::FLOW_PROBE);
  probe.set_nonce(++nonce_);
  const auto encoded = encode(probe);
  while (roster_.state == RosterState::forming) {
    if (seats_.all(SeatState::ready)) {
      if (auto same = compare_ready(); !same.has_value()) {
        close_roster(same.error());
        return same;
      }
      roster_.state = RosterState::running;
      changed();
      return {};
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.form",
                   text_of(seats_.in(SeatState::forming)) + " did not become ready in roster " +
                       std::to_string(roster_.id.roster)};
    }
    TENDON_CHECK(sockets_->publish(as_bytes(*encoded)));
    if (options_.start_worker) look_for_hung();
    (void)changed_.wait_until(mutex_, earlier(deadline, Deadline(kProbeInterval)));
  }
  return roster_error("control.form");
}

Result<void> ControllerCore::compare_ready() const {
  const v1::Ready& first = seats_.at({0}).ready;
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const v1::Ready& ready = seats_.at({rank}).ready;
    if (ready.group_epoch() == first.group_epoch() && ready.members() == seats_.size()) continue;
    return Error{ErrorCode::mismatch, "control.form",
                 name_of({rank}) + " is in epoch " + std::to_string(ready.group_epoch()) +
                     " of the world group with " + std::to_string(ready.members()) + " members, " +
                     name_of({0}) + " in epoch " + std::to_string(first.group_epoch()) + " with " +
                     std::to_string(first.members())};
  }
  return {};
}

void ControllerCore::close_roster(Error why) {
  roster_.state = RosterState::closed;
  roster_.since = Clock::now();
  stats_.void_outputs += steps_.clear();
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    WorkerSeat& seat = seats_.at({rank});
    seat.asked_at.reset();
    if (seat.state == SeatState::ready || seat.state == SeatState::forming) {
      seat.state = SeatState::failing;
    }
  }
  v1::Word closed = word();
  closed.mutable_roster_closed()->set_code(static_cast<std::uint32_t>(why.code));
  closed.mutable_roster_closed()->set_reason(escaped(why.detail, kMaxControlTextBytes));
  seats_.tell_all(closed);
  roster_.why_closed = std::move(why);
  roster_.cause_may_come_until.reset();
  changed();
}

Error ControllerCore::await_cause(std::string_view where, Deadline deadline) {
  while (roster_.state == RosterState::closed && roster_.cause_may_come_until) {
    const Deadline until = earlier(deadline, Deadline::at(*roster_.cause_may_come_until));
    if (until.has_passed()) break;
    (void)changed_.wait_until(mutex_, until);
  }
  return roster_error(where);
}

Error ControllerCore::roster_error(std::string_view where) const {
  switch (roster_.state) {
    case RosterState::stopped:
      return {ErrorCode::roster_closed, where, "the controller has stopped"};
    case RosterState::draining:
      return {ErrorCode::roster_closed, where, "the controller drains: it accepts no further step"};
    case RosterState::closed:
    case RosterState::failed:
      return {roster_.why_closed.code, where, roster_.why_closed.detail};
    default:
      return {ErrorCode::roster_closed, where,
              "no roster runs: call wait_for_workers() or rebuild()"};
  }
}

Result<void> ControllerCore::stop(std::string_view reason, Deadline deadline) {
  reception_.close();
  {
    const Lock lock(mutex_);
    roster_.state = RosterState::stopped;
    v1::Word stop = word();
    stop.mutable_stop()->set_reason(escaped(reason, kMaxControlTextBytes));
    stop.mutable_stop()->set_last_inputs(inputs_.sent());
    seats_.tell_all(stop);
    changed();
  }
  const Lock lock(mutex_);
  while (!seats_.all(SeatState::empty)) {
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.stop", text_of(seats_.taken()) + " did not end"};
    }
    // Outputs of the last steps are read, so that no worker waits for room.
    service(deadline);
  }
  return {};
}

void ControllerCore::abandon() {
  reception_.close();
  std::vector<std::shared_ptr<WorkerPipe>> pipes;
  {
    const Lock lock(mutex_);
    if (roster_.state != RosterState::stopped) {
      roster_.state = RosterState::stopped;
      v1::Word stop = word();
      stop.mutable_stop()->set_reason("the controller is gone");
      // It sends nothing again: what has not come is not waited for.
      seats_.tell_all(stop);
    }
    for (const GlobalRank rank : seats_.taken()) {
      pipes.push_back(seats_.at(rank).pipe);
      if (const auto& tensors = seats_.at(rank).tensors) pipes.push_back(tensors);
    }
    changed();
  }
  for (const auto& pipe : pipes) (void)pipe->close(Deadline::now());
  for (const auto& pipe : reception_.take_silent()) (void)pipe->close(Deadline::now());
}

}  // namespace tendon::v0::detail
