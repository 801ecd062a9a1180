// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/late_zenoh.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <utility>
#include <variant>

#include "core/fork_guard.hpp"
#include "core/thread.hpp"
#include "fabric/zenoh/zenoh_callbacks.hpp"

namespace tendon::v0::detail {

using std::chrono::milliseconds;

namespace {

milliseconds left_of(Deadline deadline) {
  // As a session counts it, which ends a request long before.
  constexpr std::chrono::hours kMost{24};
  return std::chrono::ceil<milliseconds>(
      std::min<std::chrono::nanoseconds>(deadline.remaining(), kMost));
}

}  // namespace

/// The place of a declaration of the session, once it is made: a Handle, or a publisher.
template <class Made>
struct LateZenoh::Place {
  Mutex mutex;
  Made declared TENDON_GUARDED_BY(mutex);
  bool withdrawn TENDON_GUARDED_BY(mutex) = false;

  /// Under the lock, which the session's callbacks never take.
  template <class F>
  [[nodiscard]] Result<void> fill(F declare) TENDON_EXCLUDES(mutex) {
    const Lock lock(mutex);
    if (withdrawn) return {};
    TENDON_TRY(made, declare());
    declared = std::move(made);
    return {};
  }
  void withdraw() TENDON_EXCLUDES(mutex) {
    Made gone;  // dropped without the lock
    const Lock lock(mutex);
    withdrawn = true;
    gone = std::move(declared);
  }
};

/// The part that outlives the object: its handles have shares of it. The session's callbacks only
/// post here, so that one thread makes all calls.
class LateZenoh::Core {
 public:
  struct Entry {
    /// Makes the declaration or the request, once.
    std::function<Result<void>(ZenohPort&)> declare;
    ZenohCallbacks::Number number = 0;  ///< of the callback for the end of a request
    Deadline ends = Deadline::never();
  };

  Core(Open open, std::shared_ptr<ZenohCallbacks> told)
      : callbacks(std::move(told)), open_(std::move(open)) {}
  [[nodiscard]] Result<void> start() {
    TENDON_TRY(thread,
               Thread::start({.name = "tendon-late",
                              .where = "fabric.zenoh",
                              .task = "that opens a session of Zenoh when a router answers"},
                             [this] { run(); }));
    thread_ = std::move(thread);
    return {};
  }

  void close() TENDON_EXCLUDES(mutex_) {
    {
      const Lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
    callbacks->close();
    std::map<std::uint64_t, Entry> awaited;
    std::unique_ptr<ZenohPort> session;
    Handle state;  // dropped before the session, and both without the lock
    const Lock lock(mutex_);
    awaited.swap(awaited_);
    session = std::move(session_);
    state = std::move(session_state_);
  }

  /// Declares at once if the session is there, else when it arrives. Returns a number for forget().
  [[nodiscard]] Result<std::uint64_t> add(Entry entry) TENDON_EXCLUDES(mutex_) {
    ZenohPort* there = nullptr;
    {
      const Lock lock(mutex_);
      there = session_.get();
      if (there == nullptr) {
        awaited_.emplace(++last_number_, std::move(entry));
        changed_.notify_all();
        return last_number_;
      }
    }
    TENDON_CHECK(entry.declare(*there));
    return std::uint64_t{0};
  }
  void forget(std::uint64_t number) TENDON_EXCLUDES(mutex_) {
    Entry gone;  // dropped without the lock
    const Lock lock(mutex_);
    const auto found = awaited_.find(number);
    if (found == awaited_.end()) return;
    gone = std::move(found->second);
    awaited_.erase(found);
  }

  /// Null while it is awaited; else it lives until close().
  [[nodiscard]] ZenohPort* session() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return session_.get();
  }
  [[nodiscard]] std::string last_failure() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return last_error_ ? last_error_->detail : std::string();
  }
  [[nodiscard]] Result<void> wait(Deadline deadline) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    while (!is_there_)
      if (!came_.wait_until(mutex_, deadline)) break;
    if (is_there_) return {};
    if (last_error_) return *last_error_;
    return Error{ErrorCode::unreachable, "fabric.zenoh",
                 "no router answered until the deadline: the first try to reach one still runs"};
  }

  const std::shared_ptr<ZenohCallbacks> callbacks;

 private:
  void run() TENDON_EXCLUDES(mutex_) {
    for (;;) {
      const Deadline next = kPause;
      auto opened = open_();
      if (opened) return begin(*std::move(opened));
      const Lock lock(mutex_);
      last_error_ = std::move(opened).error();
      while (!ending_ && !next.has_passed()) {
        end_requests();
        Deadline until = next;
        for (const auto& [number, entry] : awaited_) until = earlier(until, entry.ends);
        (void)changed_.wait_until(mutex_, until);
      }
      if (ending_) return;
    }
  }

  void end_requests() TENDON_REQUIRES(mutex_) {
    std::erase_if(awaited_, [&](const auto& awaited) {
      if (!awaited.second.ends.has_passed()) return false;
      callbacks->post(awaited.second.number, Ending::timed_out);
      return true;
    });
  }

  void begin(std::unique_ptr<ZenohPort> session) TENDON_EXCLUDES(mutex_) {
    ZenohPort& port = *session;
    auto state = port.on_state([told = callbacks](SessionState now) { told->set_state(now); });
    if (!state) log(LogLevel::error, "node.discovery", state.error().message());
    {
      const Lock lock(mutex_);
      session_ = std::move(session);
      if (state) session_state_ = *std::move(state);
    }
    // From now on add() declares by itself.
    for (;;) {
      Entry entry;
      {
        const Lock lock(mutex_);
        if (awaited_.empty()) break;
        entry = std::move(awaited_.begin()->second);
        awaited_.erase(awaited_.begin());
      }
      if (const auto declared = entry.declare(port); !declared)
        log(LogLevel::error, "node.discovery", declared.error().message());
    }
    // It may have changed before its listener was there.
    SessionState now = SessionState::down;
    do {
      now = port.state();
      callbacks->set_state(now);
    } while (port.state() != now);
    const Lock lock(mutex_);
    is_there_ = true;
    came_.notify_all();
  }

  const Open open_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar came_;
  std::map<std::uint64_t, Entry> awaited_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t last_number_ TENDON_GUARDED_BY(mutex_) = 0;
  std::optional<Error> last_error_ TENDON_GUARDED_BY(mutex_);
  std::unique_ptr<ZenohPort> session_ TENDON_GUARDED_BY(mutex_);
  Handle session_state_ TENDON_GUARDED_BY(mutex_);
  bool is_there_ TENDON_GUARDED_BY(mutex_) = false;  // and all is declared
  bool ending_ TENDON_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

/// A handle: waits for its callback, then withdraws at the session.
class LateZenoh::Standing final : public Declared {
 public:
  using HandlePlace = Place<Handle>;
  Standing(std::shared_ptr<Core> core, ZenohCallbacks::Number number)
      : core_(std::move(core)), number_(number) {}
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  ~Standing() override {
    if (process_ != process_number()) return;
    if (number_ != 0) core_->callbacks->remove(number_);
    core_->forget(awaited_);
    place_->withdraw();
  }

  /// `what` makes the Handle at the session.
  template <class F>
  [[nodiscard]] static Result<Handle> make(const std::shared_ptr<Core>& core,
                                           ZenohCallbacks::Number number, Deadline ends, F what) {
    auto standing = std::make_unique<Standing>(core, number);
    TENDON_TRY(awaited, core->add({.declare =
                                       [place = standing->place_, what](ZenohPort& port) {
                                         return place->fill([&] { return what(port); });
                                       },
                                   .number = number,
                                   .ends = ends}));
    standing->awaited_ = awaited;
    return Handle(std::move(standing));
  }

 private:
  const std::shared_ptr<Core> core_;
  const ZenohCallbacks::Number number_;
  const std::uint32_t process_ = process_number();
  const std::shared_ptr<HandlePlace> place_ = std::make_shared<HandlePlace>();
  std::uint64_t awaited_ = 0;
};

class LateZenoh::Publisher final : public ZenohPublisher {
 public:
  using PublisherPlace = Place<std::unique_ptr<ZenohPublisher>>;
  Publisher(std::shared_ptr<Core> core, ZenohCallbacks::Number number)
      : core_(std::move(core)), number_(number) {}
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  ~Publisher() override {
    if (process_ != process_number()) return;
    core_->callbacks->remove(number_);
    core_->forget(awaited);
    place->withdraw();
  }

  // Only this publisher takes the lock of a place, once that is declared.
  [[nodiscard]] Result<void> put(Storage payload, Storage attachment,
                                 std::string_view encoding) override {
    const Lock lock(place->mutex);
    if (place->declared == nullptr) return {};
    return place->declared->put(std::move(payload), std::move(attachment), encoding);
  }
  [[nodiscard]] Matching matching() const override {
    const Lock lock(place->mutex);
    return place->declared == nullptr ? Matching::nobody : place->declared->matching();
  }

  const std::shared_ptr<PublisherPlace> place = std::make_shared<PublisherPlace>();
  std::uint64_t awaited = 0;  ///< set by the caller that declares it

 private:
  const std::shared_ptr<Core> core_;
  const ZenohCallbacks::Number number_;
  const std::uint32_t process_ = process_number();
};

Result<std::unique_ptr<LateZenoh>> LateZenoh::begin(Open open) {
  TENDON_TRY(callbacks, ZenohCallbacks::start());
  const auto core = std::make_shared<Core>(std::move(open), callbacks);
  if (auto started = core->start(); !started) {
    callbacks->close();
    return std::move(started).error();
  }
  return std::make_unique<LateZenoh>(core);
}

LateZenoh::~LateZenoh() {
  if (process_ == process_number()) {
    core_->close();
  } else {
    // In a forked child its threads are not there, and their locks may be held.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Core>(core_));
  }
}

Result<void> LateZenoh::wait(Deadline deadline) const { return core_->wait(deadline); }

Result<ZenohPort::Handle> LateZenoh::token(const KeyExpression& key) {
  return Standing::make(core_, 0, Deadline::never(),
                        [key](ZenohPort& port) { return port.token(key); });
}

Result<ZenohPort::Handle> LateZenoh::watch(const KeyExpression& pattern, OnToken on_token) {
  const auto& callbacks = core_->callbacks;
  const auto number = callbacks->add([on_token = std::move(on_token)](ZenohCallbacks::Event event) {
    const auto* const token = std::get_if<ZenohCallbacks::Token>(&event);
    if (token == nullptr) return on_token(TokenChange::missed, {});
    on_token(token->change, token->key);
  });
  return Standing::make(
      core_, number, Deadline::never(), [pattern, callbacks, number](ZenohPort& port) {
        return port.watch(pattern, [callbacks, number](TokenChange change, std::string_view key) {
          callbacks->post(number, ZenohCallbacks::Token{change, std::string(key)});
        });
      });
}

Result<ZenohPort::Handle> LateZenoh::get(const KeyExpression& pattern, milliseconds timeout,
                                         OnKey on_key, OnEnd on_end) {
  const auto& callbacks = core_->callbacks;
  const auto number = callbacks->add(
      [on_key = std::move(on_key), on_end = std::move(on_end)](ZenohCallbacks::Event event) {
        if (const auto* const ending = std::get_if<Ending>(&event)) return on_end(*ending);
        if (std::holds_alternative<ZenohCallbacks::Missed>(event)) return;  // its end says so
        on_key(std::get<ZenohCallbacks::Token>(event).key);
      });
  const Deadline ends = timeout;
  return Standing::make(core_, number, ends, [pattern, ends, callbacks, number](ZenohPort& port) {
    return port.get(
        pattern, left_of(ends),
        [callbacks, number](std::string_view key) {
          callbacks->post(number, ZenohCallbacks::Token{TokenChange::came, std::string(key)});
        },
        [callbacks, number](Ending ending) { callbacks->post(number, ending); });
  });
}

Result<void> LateZenoh::put(ZenohMessage message) {
  TENDON_CHECK(KeyExpression::parse(message.key));
  ZenohPort* const session = core_->session();
  return session == nullptr ? Result<void>() : session->put(std::move(message));
}

Result<void> LateZenoh::put_patiently(const KeyExpression& key, Storage payload) {
  ZenohPort* const session = core_->session();
  return session == nullptr ? Result<void>() : session->put_patiently(key, std::move(payload));
}

Result<std::unique_ptr<ZenohPublisher>> LateZenoh::publisher(const KeyExpression& key,
                                                             Audience audience,
                                                             OnMatching on_matching) {
  const auto& callbacks = core_->callbacks;
  const auto number =
      callbacks->add([on_matching = std::move(on_matching)](ZenohCallbacks::Event event) {
        on_matching(std::get<Matching>(event));
      });
  auto publisher = std::make_unique<Publisher>(core_, number);
  callbacks->post(number, Matching::nobody);
  TENDON_TRY(awaited, core_->add({.declare = [place = publisher->place, key, audience, callbacks,
                                              number](ZenohPort& port) {
    return place->fill([&] {
      return port.publisher(key, audience, [callbacks, number](Matching matching) {
        callbacks->post(number, matching);
      });
    });
  }}));
  publisher->awaited = awaited;
  return std::unique_ptr<ZenohPublisher>(std::move(publisher));
}

Result<ZenohPort::Handle> LateZenoh::subscribe(const KeyExpression& pattern, OnMessage on_message,
                                               OnDropped on_dropped) {
  const auto& callbacks = core_->callbacks;
  const auto number = callbacks->add_subscriber(std::move(on_message), std::move(on_dropped));
  return Standing::make(
      core_, number, Deadline::never(), [pattern, callbacks, number](ZenohPort& port) {
        return port.subscribe(
            pattern,
            [callbacks, number](const ZenohMessage& message) { callbacks->post(number, message); },
            [callbacks, number](std::string_view key, std::uint64_t count) {
              callbacks->post_missed(number, std::string(key), count);
            });
      });
}

Result<ZenohPort::Handle> LateZenoh::query(ZenohMessage question, milliseconds timeout,
                                           OnMessage on_answer, OnEnd on_end) {
  TENDON_CHECK(KeyExpression::parse(question.key));
  const auto& callbacks = core_->callbacks;
  const auto number = callbacks->add(
      [on_answer = std::move(on_answer), on_end = std::move(on_end)](ZenohCallbacks::Event event) {
        if (const auto* const ending = std::get_if<Ending>(&event)) return on_end(*ending);
        if (std::holds_alternative<ZenohCallbacks::Missed>(event)) return;  // its end says so
        on_answer(std::get<ZenohMessage>(event));
      });
  const Deadline ends = timeout;
  return Standing::make(core_, number, ends, [question, ends, callbacks, number](ZenohPort& port) {
    return port.query(
        question, left_of(ends),
        [callbacks, number](const ZenohMessage& message) { callbacks->post(number, message); },
        [callbacks, number](Ending ending) { callbacks->post(number, ending); });
  });
}

Result<ZenohPort::Handle> LateZenoh::answer(const KeyExpression& key, OnQuestion on_question) {
  const auto& callbacks = core_->callbacks;
  const auto number =
      callbacks->add([on_question = std::move(on_question)](ZenohCallbacks::Event event) {
        on_question(std::get<std::unique_ptr<ZenohQuestion>>(std::move(event)));
      });
  return Standing::make(
      core_, number, Deadline::never(), [key, callbacks, number](ZenohPort& port) {
        return port.answer(key, [callbacks, number](std::unique_ptr<ZenohQuestion> question) {
          callbacks->post(number, std::move(question));
        });
      });
}

Result<ZenohPort::Handle> LateZenoh::on_state(OnState on_state) {
  const auto number =
      core_->callbacks->add_listener([on_state = std::move(on_state)](ZenohCallbacks::Event event) {
        on_state(std::get<SessionState>(event));
      });
  auto standing = std::make_unique<Standing>(core_, number);
  return Handle(std::move(standing));
}

SessionState LateZenoh::state() const {
  if (process_ != process_number()) return SessionState::down;
  return core_->callbacks->state();
}

std::string LateZenoh::absence() const {
  if (process_ != process_number()) return {};
  if (const ZenohPort* const session = core_->session()) return session->absence();
  const std::string failure = core_->last_failure();
  return failure.empty() ? "no router answered yet" : failure;
}

}  // namespace tendon::v0::detail
