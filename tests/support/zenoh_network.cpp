// SPDX-License-Identifier: Apache-2.0
#include "support/zenoh_network.hpp"

#include <algorithm>

namespace tendon::test {

using namespace tendon::detail;

// The handle that a session returns to its user.
class ZenohNetwork::Record final : public ZenohPort::Declared {
 public:
  Record(ZenohNetwork& network, Number number) : network_(network), number_(number) {}
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record() override {
    const Locked locked(network_.mutex_);
    network_.withdraw(number_);
  }

 private:
  ZenohNetwork& network_;
  const Number number_;
};

class ZenohNetwork::Question final : public ZenohQuestion {
 public:
  Question(ZenohNetwork& network, Number here, Number asker, Number request, ZenohMessage asked)
      : network_(network),
        here_(here),
        asker_(asker),
        request_(request),
        asked_(std::move(asked)) {}
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  ~Question() override {
    const Locked locked(network_.mutex_);
    network_.send(here_, asker_, Order::of_sender,
                  [&network = network_, request = request_] { network.finish_one(request); });
  }
  [[nodiscard]] const ZenohMessage& asked() const noexcept override { return asked_; }
  void answer(ZenohMessage message) override {
    const Locked locked(network_.mutex_);
    network_.send(here_, asker_, Order::of_sender,
                  [&network = network_, request = request_, message] {
                    network.call(request, [&](Entry& entry) { entry.on_message(message); });
                  });
  }

 private:
  ZenohNetwork& network_;
  const Number here_;
  const Number asker_;
  const Number request_;
  const ZenohMessage asked_;
};

class ZenohNetwork::Session final : public ZenohPort {
 public:
  Session(ZenohNetwork& network, Number number) : network_(network), number_(number) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override {
    const Locked locked(network_.mutex_);
    network_.close(number_);
  }
  [[nodiscard]] Number number() const { return number_; }

  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::token, key);
    const Number token = network_.add(std::move(entry));
    network_.tell_watches(token, *network_.find(token), TokenChange::came);
    return handle(token);
  }

  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::watch, pattern);
    entry.on_token = std::move(on_token);
    // Existing tokens are not reported, but their end will be.
    for (const Number token : network_.tokens_.near(pattern)) {
      const Entry& there = *network_.find(token);
      if (network_.reach(there.session, number_) && there.key->intersects(pattern)) {
        entry.seen[there.key->text()].emplace(token, there.session);
      }
    }
    return handle(network_.add(std::move(entry)));
  }

  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, std::chrono::milliseconds timeout,
                                   OnKey on_key, OnEnd on_end) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::request, pattern);
    entry.on_key = std::move(on_key);
    entry.on_end = std::move(on_end);
    entry.awaited = 1;
    const Number request = network_.add(std::move(entry));
    network_.send(number_, number_, Order::of_sender,
                  [&network = network_, request, asked_in = network_.groupings_.size() - 1] {
                    network.look_up_tokens(request, asked_in);
                  });
    return handle_until(request, timeout);
  }

  [[nodiscard]] Result<void> put(ZenohMessage message) override {
    const Locked locked(network_.mutex_);
    TENDON_TRY(key, KeyExpression::parse(message.key));
    network_.put(number_, Audience::all_sessions, key, message);
    return {};
  }

  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override {
    return put({.key = key.text(), .payload = std::move(payload), .attachment = {}});
  }

  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  Audience audience,
                                                                  OnMatching on_matching) override;

  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                         OnDropped on_dropped) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::subscriber, pattern);
    entry.on_message = std::move(on_message);
    entry.on_dropped = std::move(on_dropped);
    const Number subscriber = network_.add(std::move(entry));
    network_.tell_publishers();
    return handle(subscriber);
  }

  [[nodiscard]] Result<Handle> query(ZenohMessage question, std::chrono::milliseconds timeout,
                                     OnMessage on_answer, OnEnd on_end) override {
    const Locked locked(network_.mutex_);
    TENDON_TRY(key, KeyExpression::parse(question.key));
    Entry entry = make(Sort::request, key);
    entry.on_message = std::move(on_answer);
    entry.on_end = std::move(on_end);
    // The word of this session that it has asked all others.
    entry.awaited = 1;
    const Number request = network_.add(std::move(entry));
    network_.send(number_, number_, Order::of_sender,
                  [&network = network_, request] { network.finish_one(request); });
    for (const Number answerer : network_.numbers_of_[Sort::answerer]) {
      const Entry& there = *network_.find(answerer);
      if (!network_.reach(number_, there.session) || !there.key->intersects(key)) continue;
      ++network_.find(request)->awaited;
      network_.send(number_, there.session, Order::of_sender,
                    [&network = network_, request, answerer, here = there.session, asker = number_,
                     question] {
                      auto came =
                          std::make_unique<Question>(network, here, asker, request, question);
                      network.call(answerer, [&](Entry& its) { its.on_question(std::move(came)); });
                    });
    }
    return handle_until(request, timeout);
  }

  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::answerer, key);
    entry.on_question = std::move(on_question);
    return handle(network_.add(std::move(entry)));
  }

  [[nodiscard]] Result<Handle> on_state(OnState on_state) override {
    const Locked locked(network_.mutex_);
    Entry entry = make(Sort::state, std::nullopt);
    entry.on_state = std::move(on_state);
    return handle(network_.add(std::move(entry)));
  }
  [[nodiscard]] SessionState state() const override {
    const Locked locked(network_.mutex_);
    return network_.router_;
  }

 private:
  [[nodiscard]] Entry make(Sort sort, std::optional<KeyExpression> key) const {
    Entry entry;
    entry.sort = sort;
    entry.session = number_;
    entry.key = std::move(key);
    return entry;
  }
  [[nodiscard]] Handle handle(Number number) { return std::make_unique<Record>(network_, number); }
  [[nodiscard]] Handle handle_until(Number request, std::chrono::milliseconds timeout) {
    network_.schedule(network_.now_ + timeout, Waits::no,
                      [&network = network_, request] { network.end(request, Ending::timed_out); });
    return handle(request);
  }

  ZenohNetwork& network_;
  const Number number_;
};

class ZenohNetwork::Publisher final : public ZenohPublisher {
 public:
  Publisher(ZenohNetwork& network, Number number, Number session, KeyExpression key,
            Audience audience)
      : network_(network),
        record_(network, number),
        number_(number),
        session_(session),
        key_(std::move(key)),
        audience_(audience) {}
  [[nodiscard]] Result<void> put(Storage payload, Storage attachment,
                                 std::string_view encoding) override {
    const Locked locked(network_.mutex_);
    network_.put(session_, audience_, key_,
                 {key_.text(), std::move(payload), std::move(attachment), std::string(encoding)});
    return {};
  }
  [[nodiscard]] Matching matching() const override {
    const Locked locked(network_.mutex_);
    const Entry* const entry = network_.find(number_);
    return entry == nullptr ? Matching::nobody : network_.matching_of(*entry);
  }

 private:
  ZenohNetwork& network_;
  const Record record_;
  const Number number_;
  const Number session_;
  const KeyExpression key_;
  const Audience audience_;
};

Result<std::unique_ptr<ZenohPublisher>> ZenohNetwork::Session::publisher(const KeyExpression& key,
                                                                         Audience audience,
                                                                         OnMatching on_matching) {
  const Locked locked(network_.mutex_);
  Entry entry = make(Sort::publisher, key);
  entry.on_matching = std::move(on_matching);
  entry.audience = audience;
  const Number number = network_.add(std::move(entry));
  network_.tell_publishers();
  return std::unique_ptr<ZenohPublisher>(
      std::make_unique<Publisher>(network_, number, number_, key, audience));
}

// ---- declarations of sessions

std::unique_ptr<ZenohPort> ZenohNetwork::open() {
  const Locked locked(mutex_);
  const Number number = ++last_number_;
  sessions_.insert(number);
  if (router_ == SessionState::down) groupings_.back()[number] = number;
  return std::make_unique<Session>(*this, number);
}

ZenohNetwork::Number ZenohNetwork::add(Entry entry) {
  const Number number = ++last_number_;
  numbers_of_[entry.sort].insert(number);
  if (entry.sort == Sort::token) tokens_.add(*entry.key, number);
  if (entry.sort == Sort::watch) watches_.add(*entry.key, number);
  entries_.emplace(number, std::make_shared<Entry>(std::move(entry)));
  return number;
}

ZenohNetwork::Entry* ZenohNetwork::find(Number number) {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.get();
}

template <class F>
void ZenohNetwork::call(Number number, F&& what) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const std::shared_ptr<Entry> kept = found->second;
  outside([&] { what(*kept); });
}

template <class F>
void ZenohNetwork::outside(F&& what) {
  mutex_.unlock();
  what();
  mutex_.lock();
}

void ZenohNetwork::withdraw(Number number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;  // it ended with its session, or by itself
  const std::shared_ptr<Entry> entry = found->second;
  entries_.erase(found);
  numbers_of_[entry->sort].erase(number);
  if (entry->sort == Sort::token) tokens_.remove(*entry->key, number);
  if (entry->sort == Sort::watch) watches_.remove(*entry->key, number);
  if (entry->sort == Sort::token) tell_watches(number, *entry, TokenChange::went);
  if (entry->sort == Sort::subscriber) tell_publishers();
}

void ZenohNetwork::close(Number session) {
  std::vector<Number> its;
  for (const auto& [number, entry] : entries_) {
    if (entry->session == session) its.push_back(number);
  }
  for (const Number number : its) withdraw(number);
  sessions_.erase(session);
}

// ---- reach

ZenohNetwork::Number ZenohNetwork::group_of(Number session, std::size_t grouping) const {
  const auto found = groupings_[grouping].find(session);
  return found == groupings_[grouping].end() ? 0 : found->second;
}

bool ZenohNetwork::reach(Number a, Number b, std::size_t grouping) const {
  return a == b || group_of(a, grouping) == group_of(b, grouping);
}

bool ZenohNetwork::reach_since(Number a, Number b, std::size_t grouping) const {
  while (grouping < groupings_.size() && reach(a, b, grouping)) ++grouping;
  return grouping == groupings_.size();
}

void ZenohNetwork::part(std::span<const ZenohPort* const> sessions) {
  const Locked locked(mutex_);
  std::map<Number, Number> groups = groupings_.back();
  const Number group = ++last_number_;
  for (const ZenohPort* one : sessions) groups[dynamic_cast<const Session&>(*one).number()] = group;
  regroup(std::move(groups));
}

void ZenohNetwork::stop_router() {
  const Locked locked(mutex_);
  std::map<Number, Number> groups;
  for (const Number session : sessions_) groups[session] = session;
  regroup(std::move(groups));
  set_state(SessionState::down);
}

void ZenohNetwork::heal() {
  const Locked locked(mutex_);
  regroup({});
  set_state(SessionState::up);
}

void ZenohNetwork::set_state(SessionState state) {
  if (std::exchange(router_, state) == state) return;
  for (const Number number : numbers_of_[Sort::state]) {
    const Number session = find(number)->session;
    send(session, session, Order::of_sender,
         [this, number, state] { call(number, [&](Entry& entry) { entry.on_state(state); }); });
  }
}

// Tells watches which tokens are cut off from them, and which they reach again.
void ZenohNetwork::regroup(std::map<Number, Number> groups) {
  const std::size_t before = groupings_.size() - 1;
  groupings_.push_back(std::move(groups));
  tell_publishers();
  for (const Number watch : numbers_of_[Sort::watch]) {
    tell_what_is_cut_off(watch);
    const Entry& watcher = *find(watch);
    for (const Number token : numbers_of_[Sort::token]) {
      const Entry& there = *find(token);
      if (!reach(there.session, watcher.session, before) && reach(there.session, watcher.session) &&
          there.key->intersects(*watcher.key)) {
        tell(watch, token, there, TokenChange::came);
      }
    }
  }
}

// The near side of a cut reports it, even if the cut heals at once: returning tokens are reported
// after it.
void ZenohNetwork::tell_what_is_cut_off(Number watch) {
  const Entry& watcher = *find(watch);
  for (const auto& [key, tokens] : watcher.seen) {
    for (const auto& [token, far] : tokens) {
      if (reach(far, watcher.session)) continue;
      send(watcher.session, watcher.session, Order::of_router,
           [this, watch, token = token, far = far, key = key] {
             believe(watch, token, far, key, TokenChange::went);
           });
    }
  }
}

// ---- time

void ZenohNetwork::schedule(Time when, Waits waits, std::function<void()> what) {
  awaited_events_ += waits == Waits::yes ? 1 : 0;
  events_.emplace(std::pair(when, ++last_number_), Event{waits, std::move(what)});
}

void ZenohNetwork::after(Time delay, std::function<void()> what) {
  const Locked locked(mutex_);
  schedule(now_ + delay, Waits::yes, [this, what = std::move(what)] { outside(what); });
}

void ZenohNetwork::run_for(Time duration) {
  const Locked locked(mutex_);
  const Time end = now_ + duration;
  while (!events_.empty() && events_.begin()->first.first <= end) step();
  now_ = end;
}

void ZenohNetwork::run_until_quiet() {
  const Locked locked(mutex_);
  while (awaited_events_ > 0) step();
}

void ZenohNetwork::step() {
  const auto next = events_.extract(events_.begin());
  awaited_events_ -= next.mapped().waits == Waits::yes ? 1 : 0;
  now_ = next.key().first;
  next.mapped().what();
}

void ZenohNetwork::send(Number from, Number to, Order order, std::function<void()> what) {
  const auto range = static_cast<std::uint64_t>((manner_.most_delay - manner_.least_delay).count());
  const Time delay = manner_.least_delay + Time(random_() % (range + 1));
  Time& last = last_arrival_[{order == Order::of_router ? 0 : from, to}];
  last = std::max(now_ + delay, last);
  schedule(last, Waits::yes,
           [this, from, to, sent_in = groupings_.size() - 1, what = std::move(what)] {
             if (reach_since(from, to, sent_in)) what();
           });
}

// ---- puts

void ZenohNetwork::put(Number from, Audience audience, const KeyExpression& key,
                       ZenohMessage message) {
  ++put_count_;
  if (message.encoding.empty()) message.encoding = "zenoh/bytes";
  for (const Number subscriber : numbers_of_[Sort::subscriber]) {
    const Entry& there = *find(subscriber);
    if (audience == Audience::other_sessions && there.session == from) continue;
    if (!reach(from, there.session) || !there.key->intersects(key)) continue;
    if (loses(manner_.loses_put_in)) continue;
    send(from, there.session, Order::of_sender, [this, subscriber, message] {
      call(subscriber, [&](Entry& entry) {
        has_room_ ? entry.on_message(message) : entry.on_dropped(message.key, 1);
      });
    });
  }
}

Matching ZenohNetwork::matching_of(const Entry& publisher) {
  const auto& subscribers = numbers_of_[Sort::subscriber];
  const bool somebody = std::any_of(subscribers.begin(), subscribers.end(), [&](Number number) {
    const Entry& there = *find(number);
    if (publisher.audience == Audience::other_sessions && there.session == publisher.session)
      return false;
    return reach(there.session, publisher.session) && there.key->intersects(*publisher.key);
  });
  return somebody ? Matching::somebody : Matching::nobody;
}

// Tells each publisher whose matching has changed.
void ZenohNetwork::tell_publishers() {
  for (const Number number : numbers_of_[Sort::publisher]) {
    Entry& publisher = *find(number);
    const Matching now = matching_of(publisher);
    if (std::exchange(publisher.matching, now) == now) continue;
    // The session itself reports the death of a router.
    schedule(now_ + manner_.most_delay, Waits::yes,
             [this, number, now] { call(number, [&](Entry& entry) { entry.on_matching(now); }); });
  }
}

// ---- tokens

void ZenohNetwork::tell(Number watch, Number token, const Entry& entry, TokenChange change) {
  if (loses(manner_.loses_token_in)) return;
  send(entry.session, find(watch)->session, Order::of_router,
       [this, watch, token, session = entry.session, key = entry.key->text(), change] {
         believe(watch, token, session, key, change);
       });
}

void ZenohNetwork::tell_watches(Number token, const Entry& entry, TokenChange change) {
  for (const Number watch : watches_.near(*entry.key)) {
    const Entry& watcher = *find(watch);
    if (reach(entry.session, watcher.session) && watcher.key->intersects(*entry.key)) {
      tell(watch, token, entry, change);
    }
  }
}

void ZenohNetwork::believe(Number watch, Number token, Number session, const std::string& key,
                           TokenChange change) {
  Entry* const watcher = find(watch);
  if (watcher == nullptr) return;
  auto& tokens = watcher->seen[key];
  const bool was = !tokens.empty();
  if (change == TokenChange::came) {
    tokens.emplace(token, session);
  } else {
    tokens.erase(token);
  }
  const bool is = !tokens.empty();
  if (!is) watcher->seen.erase(key);
  if (was != is) call(watch, [&](Entry& entry) { entry.on_token(change, key); });
}

// ---- requests

// The session's router knows all tokens. It answers if the session stays in its group until then,
// and leaves out tokens that were cut off meanwhile.
void ZenohNetwork::look_up_tokens(Number request, std::size_t asked_in) {
  const Entry* const asked = find(request);
  if (asked == nullptr) return;
  std::map<std::string, std::set<Number>> found;  // sessions by key
  for (const Number token : tokens_.near(*asked->key)) {
    const Entry& there = *find(token);
    if (reach(there.session, asked->session) && there.key->intersects(*asked->key)) {
      found[there.key->text()].insert(there.session);
    }
  }
  send(asked->session, asked->session, Order::of_router,
       [this, request, asked_in, asker = asked->session, found = std::move(found),
        found_in = groupings_.size() - 1] {
         for (std::size_t i = asked_in; i < groupings_.size(); ++i) {
           if (group_of(asker, i) != group_of(asker, asked_in)) return;
         }
         for (const auto& [key, sessions] : found) {
           const bool there = std::any_of(sessions.begin(), sessions.end(), [&](Number session) {
             return reach_since(session, asker, found_in);
           });
           if (there) call(request, [&](Entry& entry) { entry.on_key(key); });
         }
         finish_one(request);
       });
}

void ZenohNetwork::finish_one(Number request) {
  Entry* const entry = find(request);
  if (entry != nullptr && --entry->awaited == 0) end(request, Ending::complete);
}

void ZenohNetwork::end(Number request, Ending ending) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) return;
  const std::shared_ptr<Entry> kept = found->second;
  withdraw(request);  // no answer follows the end
  outside([&] { kept->on_end(ending); });
}

}  // namespace tendon::test
