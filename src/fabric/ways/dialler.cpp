// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/dialler.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tendon/observe/log.hpp>
#include <utility>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

struct Dialler::Target {
  enum class State : std::uint8_t { waiting, running, settled, dropped };
  std::string key;
  std::shared_ptr<Peer> peer;
  Attempt attempt;
  std::optional<Backoff> backoff{};  // none: the next pause is the first
  Turn turn{};                       // while it waits
  Clock::time_point settled_at{};
  std::optional<Clock::time_point> again_at{};  // again() was called while it ran
  State state = State::settled;
};

struct Dialler::Peer {
  enum class State : std::uint8_t { idle, queued, knocking, running };
  std::string name;
  Whence whence = Whence::announcement;  // for its first try
  std::vector<std::string> addresses{};
  std::map<Turn, std::shared_ptr<Target>> waiting{};
  std::size_t target_count = 0;
  State state = State::idle;
  Queue queue = Queue::first;  // while it is queued or runs
  Turn turn{};                 // while it is queued
  Whence next_by = Whence::announcement;
  bool has_failed = false;   // since it was added, or was reached
  bool has_knocked = false;  // since it ran: no connection stood
  bool stands = false;       // since it ran
  std::optional<Backoff> backoff{};
  Clock::time_point rests_until{};

  [[nodiscard]] Queue own_queue() const {
    if (next_by != Whence::announcement) return Queue::known;
    if (stands) return Queue::standing;
    if (addresses.empty() || has_knocked) return Queue::unproven;
    return has_failed ? Queue::retry : Queue::first;
  }
};

namespace {

constexpr std::string_view kWhere = "node.dial";

// Without random numbers all peers pause alike, which is no reason not to dial.
std::uint64_t random_seed() {
  std::uint64_t seed = 1;
  if (const auto random = random_nonce()) std::memcpy(&seed, random->data(), sizeof seed);
  return seed;
}

}  // namespace

Dialler::Dialler(std::unique_ptr<Knocks> knocks)
    : knocks_(std::move(knocks)), seed_(random_seed()) {
  knocks_->start(
      [this](Knocks::Number number, Knocks::Answer answer) { on_answer(number, answer); });
}

Result<void> Dialler::start() {
  const Lock lock(mutex_);
  return add_thread();
}

void Dialler::stop() {
  std::vector<Thread> threads;
  decltype(targets_) targets;  // destroyed without the lock
  decltype(peers_) peers;
  {
    const Lock lock(mutex_);
    ending_ = true;
    for (auto& [key, target] : targets_) target->state = Target::State::dropped;
    for (auto& [name, peer] : peers_) peer->waiting.clear();
    targets.swap(targets_);
    peers.swap(peers_);
    for (Turns& turns : queues_) turns.clear();
    knocking_.forget_peers();
    threads.swap(threads_);
  }
  changed_.notify_all();
  knocks_->stop();
  for (Thread& thread : threads) thread.join();
}

// ---- targets

std::shared_ptr<Dialler::Peer> Dialler::peer_of(const Wanted& wanted) {
  std::shared_ptr<Peer>& peer = peers_[wanted.peer];
  if (peer == nullptr) {
    peer = std::make_shared<Peer>(Peer{.name = wanted.peer, .whence = wanted.whence});
    peer->next_by = wanted.whence;
  }
  if (!wanted.addresses.empty()) peer->addresses = wanted.addresses;
  return peer;
}

void Dialler::want(Wanted wanted) {
  const Lock lock(mutex_);
  if (ending_) return;
  if (const auto known = targets_.find(wanted.key); known != targets_.end()) {
    known->second->peer->addresses = std::move(wanted.addresses);
    return;
  }
  const auto peer = peer_of(wanted);
  if (wanted.haste == Haste::called) peer->rests_until = {};
  const auto target = std::make_shared<Target>(
      Target{.key = wanted.key, .peer = peer, .attempt = std::move(wanted.attempt)});
  targets_.emplace(std::move(wanted.key), target);
  ++peer->target_count;
  // A call does not wait for other targets of its peer.
  line_up(target, wanted.haste == Haste::called ? Clock::time_point{} : Clock::now());
  rouse();
}

void Dialler::again(const std::string& key) {
  const Lock lock(mutex_);
  const auto found = targets_.find(key);
  if (found == targets_.end() || found->second->state == Target::State::waiting) return;
  Target& target = *found->second;
  const bool lasted = target.state == Target::State::settled &&
                      Clock::now() - target.settled_at > Backoff::kPeer.longest;
  if (lasted) target.backoff.reset();
  const auto due = Clock::now() + next_pause(target.backoff);
  // A running attempt may have succeeded before this call: the next one begins after its end.
  if (target.state == Target::State::running) {
    target.again_at = due;
  } else {
    line_up(found->second, due);
    rouse();
  }
}

void Dialler::drop(const std::string& key) {
  std::shared_ptr<Target> dropped;  // destroyed without the lock
  const Lock lock(mutex_);
  const auto found = targets_.find(key);
  if (found == targets_.end()) return;
  dropped = found->second;
  targets_.erase(found);
  drop(dropped);
}

void Dialler::drop_all(std::string_view prefix) {
  std::vector<std::shared_ptr<Target>> dropped;  // destroyed without the lock
  Lock lock(mutex_);
  auto one = targets_.lower_bound(prefix);
  while (one != targets_.end() && one->first.starts_with(prefix)) {
    dropped.push_back(one->second);
    one = targets_.erase(one);
  }
  for (const auto& target : dropped) drop(target);
  // Waits also for attempts that were dropped before.
  while (std::ranges::any_of(running_,
                             [&](const auto& target) { return target->key.starts_with(prefix); }))
    ended_.wait(mutex_);
  lock.unlock();
}

void Dialler::drop(const std::shared_ptr<Target>& target) {
  const auto peer = target->peer;
  --peer->target_count;
  const bool waits = target->state == Target::State::waiting;
  target->state = Target::State::dropped;
  if (waits) peer->waiting.erase(target->turn);
  if (peer->state == Peer::State::queued || peer->state == Peer::State::idle) place(peer);
}

// ---- turns

void Dialler::line_up(const std::shared_ptr<Target>& target, Clock::time_point due) {
  target->state = Target::State::waiting;
  target->turn = {due, ++number_};
  target->peer->waiting.emplace(target->turn, target);
  if (target->peer->state == Peer::State::queued || target->peer->state == Peer::State::idle)
    place(target->peer);
}

void Dialler::take_out(Peer& peer) {
  if (peer.state != Peer::State::queued) return;
  turns(peer.queue).erase(peer.turn);
  peer.state = Peer::State::idle;
}

void Dialler::place(const std::shared_ptr<Peer>& peer) {
  const bool was_queued = peer->state == Peer::State::queued;
  const std::uint64_t came = peer->turn.second;
  take_out(*peer);
  if (peer->target_count == 0 && !ending_) {
    const auto known = peers_.find(peer->name);
    if (known != peers_.end() && known->second == peer) peers_.erase(known);
  }
  if (peer->waiting.empty()) return;
  peer->state = Peer::State::queued;
  peer->queue = peer->own_queue();
  const Turn& first = peer->waiting.begin()->first;
  // A peer that waits keeps its turn when another target is added.
  peer->turn = {std::max(first.first, peer->rests_until), was_queued ? came : ++number_};
  turns(peer->queue).emplace(peer->turn, peer);
}

std::shared_ptr<Dialler::Peer> Dialler::due_in(const Turns& turns, Clock::time_point now) {
  return turns.empty() || turns.begin()->first.first > now ? nullptr : turns.begin()->second;
}

std::shared_ptr<Dialler::Peer> Dialler::newest_in(const Turns& turns, Clock::time_point now) {
  const auto behind = turns.upper_bound({now, std::numeric_limits<std::uint64_t>::max()});
  return behind == turns.begin() ? nullptr : std::prev(behind)->second;
}

std::shared_ptr<Dialler::Peer> Dialler::alternate(Queue queue, Clock::time_point now) {
  bool& newest = newest_is_next_[static_cast<std::size_t>(queue)];
  newest = !newest;
  return newest ? newest_in(turns(queue), now) : due_in(turns(queue), now);
}

bool Dialler::has_place(Queue queue) const {
  const auto count = [this](Queue of) TENDON_REQUIRES(mutex_) {
    return running_count_[static_cast<std::size_t>(of)];
  };
  if (queue == Queue::known) return count(queue) < kMostKnown;
  const std::size_t unproven = count(Queue::first) + count(Queue::retry) + count(Queue::unproven);
  if (unproven + count(Queue::standing) >= kMostPlaces) return false;
  return queue == Queue::standing || unproven < kMostUnproven;
}

std::shared_ptr<Dialler::Peer> Dialler::next(Clock::time_point now) {
  if (has_place(Queue::known))
    if (auto peer = due_in(turns(Queue::known), now)) return peer;
  if (has_place(Queue::standing) && due_in(turns(Queue::standing), now) != nullptr)
    return alternate(Queue::standing, now);
  if (!has_place(Queue::first)) return nullptr;
  bool& newest = newest_is_next_[static_cast<std::size_t>(Queue::unproven)];
  newest = !newest;
  if (newest)
    if (auto peer = newest_in(turns(Queue::first), now)) return peer;
  std::shared_ptr<Peer> first;
  for (const Queue queue : {Queue::first, Queue::retry, Queue::unproven}) {
    auto peer = due_in(turns(queue), now);
    if (peer != nullptr && (first == nullptr || peer->turn < first->turn)) first = std::move(peer);
  }
  return first;
}

// Returns the next time at which a thread or a knock has something to do, and room for it.
Deadline Dialler::next_due() {
  auto due = Clock::time_point::max();
  for (const Queue queue :
       {Queue::known, Queue::first, Queue::retry, Queue::unproven, Queue::standing}) {
    if (turns(queue).empty() || !(has_place(queue) || may_knock(queue))) continue;
    due = std::min(due, turns(queue).begin()->first.first);
  }
  return due == Clock::time_point::max() ? Deadline::never() : Deadline::at(due);
}

// ---- knocks

// Knocks at peers that are due and have no place.
void Dialler::knock(Clock::time_point now) {
  if (has_place(Queue::first)) return;
  while (may_knock(Queue::first) && due_in(turns(Queue::first), now) != nullptr)
    knock_at(alternate(Queue::first, now));
  while (may_knock(Queue::retry)) {
    const auto peer = due_in(turns(Queue::retry), now);
    if (peer == nullptr) return;
    knock_at(peer);
  }
}

bool Dialler::may_knock(Queue queue) const {
  if (knocking_.count() >= kMostKnocks) return false;
  return queue == Queue::first ||
         (queue == Queue::retry && knocking_.count(KnockKind::again) < kMostKnocksAgain);
}

// A first try knocks at the first address alone: a stranger that announces four gets no more.
void Dialler::knock_at(const std::shared_ptr<Peer>& peer) {
  take_out(*peer);
  peer->state = Peer::State::knocking;
  std::vector<std::string> addresses = peer->addresses;
  addresses.resize(std::min(addresses.size(), peer->has_failed ? kMostKnocksOfPeer : 1));
  knocking_.add(++number_, peer, peer->has_failed ? KnockKind::again : KnockKind::first,
                addresses.size());
  const auto begun =
      knocks_->begin(number_, addresses, peer->has_failed ? kPatience : kFirstPatience);
  if (begun) return;
  // Waits for a place, like a peer without addresses to knock at.
  note_shortage(begun.error());
  (void)knocked(number_);
  peer->has_knocked = true;
  place(peer);
}

std::shared_ptr<Dialler::Peer> Dialler::knocked(Knocks::Number number) {
  std::shared_ptr<Peer> peer = knocking_.take(number);
  if (peer != nullptr) peer->state = Peer::State::idle;
  return peer;
}

void Dialler::on_answer(Knocks::Number number, Knocks::Answer answer) {
  const Lock lock(mutex_);
  const auto peer = knocked(number);
  if (peer == nullptr) return;
  peer->stands = answer == Knocks::Answer::stands;
  if (!peer->stands) {
    if (peer->has_failed)
      peer->has_knocked = true;
    else
      pause(*peer);
  }
  place(peer);
  rouse();
}

// ---- threads

void Dialler::rouse() {
  const auto now = Clock::now();
  knock(now);
  if (idle_count_ != 0) return changed_.notify_one();
  if (threads_.size() >= kMostPlaces + kMostKnown) return;
  // Peers that become due later need a thread that waits for them.
  if (next_due().is_never()) return;
  // The next call tries again.
  if (const auto added = add_thread(); !added) note_shortage(added.error());
}

void Dialler::note_shortage(const Error& shortage) {
  if (pace_.next(shortage.detail, Clock::now())) log(LogLevel::warn, kWhere, shortage.detail);
}

Result<void> Dialler::add_thread() {
  TENDON_TRY(thread,
             Thread::start({.name = "tendon-dial", .where = kWhere, .task = "that dials peers"},
                           [this] { work(); }));
  threads_.push_back(std::move(thread));
  return {};
}

void Dialler::work() {
  const Lock lock(mutex_);
  while (!ending_) {
    const auto now = Clock::now();
    knock(now);
    if (const auto peer = next(now)) {
      run(peer);
      continue;
    }
    ++idle_count_;
    changed_.wait_until(mutex_, next_due());
    --idle_count_;
  }
}

void Dialler::run(const std::shared_ptr<Peer>& peer) {
  take_out(*peer);
  peer->state = Peer::State::running;
  peer->has_knocked = peer->stands = false;
  auto target = peer->waiting.begin()->second;
  peer->waiting.erase(peer->waiting.begin());
  target->state = Target::State::running;
  running_.push_back(target);
  const auto place_taken = static_cast<std::size_t>(peer->queue);
  ++running_count_[place_taken];
  const Dial dial{.deadline = kPatience, .whence = peer->next_by};
  rouse();  // other peers may be due as well
  mutex_.unlock();
  const Outcome outcome = target->attempt(dial);
  mutex_.lock();
  --running_count_[place_taken];
  std::erase(running_, target);
  peer->state = Peer::State::idle;
  const auto now = Clock::now();
  if (outcome == Outcome::unreached) {
    if (dial.whence == Whence::this_host) {
      peer->next_by = Whence::announcement;  // its addresses are another way
    } else {
      pause(*peer);
      peer->next_by = peer->whence;
    }
  } else {
    peer->has_failed = false;
    peer->backoff.reset();
    peer->next_by = peer->whence;
  }
  if (target->state == Target::State::running) {
    if (outcome == Outcome::done && !target->again_at) {
      target->state = Target::State::settled;
      target->settled_at = now;
    } else {
      const auto due = target->again_at.value_or(
          outcome == Outcome::again ? now + next_pause(target->backoff) : now);
      target->again_at.reset();
      line_up(target, due);
    }
  }
  if (peer->state == Peer::State::idle) place(peer);
  ended_.notify_all();
  if (target->state != Target::State::dropped) return;
  // The last share of an attempt is destroyed without the lock.
  mutex_.unlock();
  target.reset();
  mutex_.lock();
}

void Dialler::pause(Peer& peer) {
  peer.has_failed = true;
  peer.rests_until = Clock::now() + next_pause(peer.backoff);
}

Dialler::Clock::duration Dialler::next_pause(std::optional<Backoff>& backoff) {
  if (!backoff) backoff.emplace(++number_ ^ seed_, Backoff::kPeer);
  return backoff->next();
}

}  // namespace tendon::v0::detail
