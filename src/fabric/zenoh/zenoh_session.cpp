// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/zenoh_session.hpp"

#include <tendon_zenoh.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/environment.hpp"
#include "core/fork_guard.hpp"
#include "core/thread_room.hpp"
#include "fabric/zenoh/zenoh_callbacks.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {

namespace {

using Number = ZenohCallbacks::Number;
using std::chrono::milliseconds;

constexpr std::uint64_t kCloseMs = 2000;
constexpr std::int64_t kFirstRetryMs = 100;
/// Zenoh ends a get() after this time as if all had answered: longer than any of our waits.
constexpr std::int64_t kZenohGivesUpMs = 3'600'000;
constexpr milliseconds kLongestRequest{kZenohGivesUpMs / 2};
/// The number of threads that the first session of a process starts. If one of them cannot start,
/// Zenoh panics midway.
constexpr std::size_t kThreadsOfZenoh = 16;

tendon_zenoh_text text_of(std::string_view text) { return {text.data(), text.size()}; }
std::string_view text_of(tendon_zenoh_text text) { return {text.data, text.size}; }

/// The process that has Zenoh's threads, or has tried to; 0: none has.
constinit std::atomic<std::uint32_t> process_of_zenoh{0};

/// Zenoh's own words name lines of its sources: they are for the log.
Error failed(ErrorCode code, std::string_view what, const tendon_zenoh_failure& failure) {
  const std::string whole(what);
  log(LogLevel::info, "fabric.zenoh", whole + ": " + std::string(failure.text, failure.size));
  return Error{code, "fabric.zenoh",
               whole + " failed inside of Zenoh, whose words are logged with TENDON_LOG=info"};
}

// ---- memory

/// Zenoh reads the storage's own bytes, and keeps a share of it meanwhile.
tendon_zenoh_lent lend(Storage storage) {
  if (storage.size_bytes() == 0) return {};
  const auto* const data = reinterpret_cast<const std::uint8_t*>(storage.data());
  const std::uint64_t size_bytes = storage.size_bytes();
  return {data, size_bytes, new Storage(std::move(storage)),
          [](void* owner) { delete static_cast<Storage*>(owner); }};
}

Storage storage_of(tendon_zenoh_received received) {
  if (received.held == nullptr) return {};
  std::shared_ptr<const void> owner(
      received.held, [held = received.held](const void*) { tendon_zenoh_held_drop(held); });
  // Read-only, as the storage says: other subscribers may read the same memory.
  auto* const data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(received.data));
  return {std::move(owner), data, received.size, Access::read_only};
}

// ---- functions that Zenoh calls: they only queue

/// The context of a callback.
struct Told {
  std::shared_ptr<ZenohCallbacks> callbacks;
  Number number = 0;

  void post(ZenohCallbacks::Event event) const noexcept {
    callbacks->post(number, std::move(event));
  }
};

const Told& told(void* context) noexcept { return *static_cast<const Told*>(context); }

tendon_zenoh_context context_of(std::shared_ptr<ZenohCallbacks> callbacks, Number number) {
  return {new Told{std::move(callbacks), number},
          [](void* context) { delete static_cast<Told*>(context); }};
}

class Question final : public ZenohQuestion {
 public:
  Question(tendon_zenoh_question* question, ZenohMessage asked)
      : question_(question), asked_(std::move(asked)) {}
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  ~Question() override {
    if (process_ == process_number()) tendon_zenoh_question_drop(question_);
  }
  [[nodiscard]] const ZenohMessage& asked() const noexcept override { return asked_; }
  void answer(ZenohMessage message) override {
    if (process_ != process_number()) return;
    // An asker that left, or has timed out, is no error of the answering side.
    static_cast<void>(tendon_zenoh_reply(question_, text_of(message.key),
                                         lend(std::move(message.payload)),
                                         lend(std::move(message.attachment)), nullptr));
  }

 private:
  tendon_zenoh_question* const question_;
  const ZenohMessage asked_;
  const std::uint32_t process_ = process_number();
};

extern "C" {

static void state_changed(void* context, std::int32_t is_up) noexcept {
  told(context).callbacks->set_state(is_up != 0 ? SessionState::up : SessionState::down);
}

static void token_changed(void* context, std::int32_t came, tendon_zenoh_text key) noexcept {
  told(context).post(ZenohCallbacks::Token{came != 0 ? TokenChange::came : TokenChange::went,
                                           std::string(text_of(key))});
}

static void token_found(void* context, tendon_zenoh_text key) noexcept {
  told(context).post(ZenohCallbacks::Token{TokenChange::came, std::string(text_of(key))});
}

static void message_came(void* context, std::int32_t deleted, tendon_zenoh_text key,
                         tendon_zenoh_text encoding, tendon_zenoh_received payload,
                         tendon_zenoh_received attachment) noexcept {
  told(context).post(ZenohMessage{std::string(text_of(key)), storage_of(payload),
                                  storage_of(attachment), std::string(text_of(encoding)),
                                  deleted != 0 ? ZenohKind::deleted : ZenohKind::put});
}

static void question_came(void* context, tendon_zenoh_question* question, tendon_zenoh_text key,
                          tendon_zenoh_received payload,
                          tendon_zenoh_received attachment) noexcept {
  ZenohMessage asked{std::string(text_of(key)), storage_of(payload), storage_of(attachment)};
  told(context).post(std::make_unique<Question>(question, std::move(asked)));
}

static void matching_changed(void* context, std::int32_t somebody) noexcept {
  told(context).post(somebody != 0 ? Matching::somebody : Matching::nobody);
}

static void request_ended(void* context, std::int32_t failed) noexcept {
  told(context).post(failed != 0 ? Ending::timed_out : Ending::complete);
}

}  // extern "C"

// ---- the session

/// Keys of tokens that a session announces.
class OwnTokens {
 public:
  void add(const std::string& key) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    keys_.insert(key);
  }
  void remove(const std::string& key) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    keys_.erase(keys_.find(key));
  }
  [[nodiscard]] bool has(const std::string& key) const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return keys_.contains(key);
  }

 private:
  mutable Mutex mutex_;
  std::multiset<std::string> keys_ TENDON_GUARDED_BY(mutex_);
};

/// The reports of a watch. When its connection is lost, Zenoh reports a session's own tokens as
/// withdrawn and announced again, though they were there all the time.
class SeenTokens {
 public:
  explicit SeenTokens(std::shared_ptr<const OwnTokens> own) : own_(std::move(own)) {}
  /// Beyond kMostBytes of keys, forgotten ones may be reported twice.
  [[nodiscard]] bool is_news(const ZenohCallbacks::Token& token) {
    const std::uint64_t size_bytes = kTokenBytes + token.key.size();
    if (token.change == TokenChange::came) {
      if (there_.contains(token.key)) return false;
      if (bytes_ + size_bytes > kMostBytes) return true;
      there_.insert(token.key);
      bytes_ += size_bytes;
      return true;
    }
    if (own_->has(token.key)) return false;
    if (there_.erase(token.key) != 0) bytes_ -= size_bytes;
    return true;
  }

 private:
  static constexpr std::uint64_t kTokenBytes = 64;  // of a place in the set
  static constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;

  const std::shared_ptr<const OwnTokens> own_;
  std::set<std::string> there_;
  std::uint64_t bytes_ = 0;
};

/// A declaration of a session: waits for its callback, then withdraws at Zenoh.
class Standing final : public ZenohPort::Declared {
 public:
  Standing(std::shared_ptr<ZenohCallbacks> callbacks, Number number)
      : callbacks_(std::move(callbacks)), number_(number) {}
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;
  ~Standing() override {
    if (process_ != process_number()) return;
    callbacks_->remove(number_);
    if (on_withdrawal) on_withdrawal();
    if (declared != nullptr) tendon_zenoh_undeclare(declared);
  }

  // Set by the session when it has declared.
  tendon_zenoh_declared* declared = nullptr;
  std::function<void()> on_withdrawal;

 private:
  const std::shared_ptr<ZenohCallbacks> callbacks_;
  const Number number_;
  const std::uint32_t process_ = process_number();
};

/// A declared publisher.
class StandingPublisher final : public ZenohPublisher {
 public:
  StandingPublisher(std::shared_ptr<ZenohCallbacks> callbacks, Number number)
      : standing_(std::move(callbacks), number) {}
  [[nodiscard]] tendon_zenoh_declared** declared() noexcept { return &standing_.declared; }

  [[nodiscard]] Result<void> put(Storage payload, Storage attachment,
                                 std::string_view encoding) override {
    tendon_zenoh_failure failure{};
    if (process_ == process_number() &&
        tendon_zenoh_publisher_put(standing_.declared, text_of(encoding), lend(std::move(payload)),
                                   lend(std::move(attachment)), &failure) == TENDON_ZENOH_OK) {
      return {};
    }
    return failed(ErrorCode::unreachable, "put", failure);
  }
  [[nodiscard]] Matching matching() const override {
    const bool somebody =
        process_ == process_number() && tendon_zenoh_publisher_matches(standing_.declared) != 0;
    return somebody ? Matching::somebody : Matching::nobody;
  }

 private:
  Standing standing_;
  const std::uint32_t process_ = process_number();
};

class ZenohSession final : public ZenohPort {
 public:
  ZenohSession(std::shared_ptr<ZenohCallbacks> callbacks, tendon_zenoh_session* session,
               std::string absence)
      : callbacks_(std::move(callbacks)), session_(session), absence_(std::move(absence)) {}
  ZenohSession(const ZenohSession&) = delete;
  ZenohSession& operator=(const ZenohSession&) = delete;
  ~ZenohSession() override {
    if (is_child()) return;
    callbacks_->close();
    static_cast<void>(tendon_zenoh_close(session_, kCloseMs));
  }

  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override {
    if (is_child()) return forked();
    auto standing = std::make_unique<Standing>(callbacks_, 0);
    own_tokens_->add(key.text());
    standing->on_withdrawal = [own = own_tokens_, key = key.text()] { own->remove(key); };
    tendon_zenoh_failure failure{};
    if (tendon_zenoh_token(session_, text_of(key.text()), &standing->declared, &failure) !=
        TENDON_ZENOH_OK) {
      return failed(ErrorCode::unreachable, "token of '" + key.text() + "'", failure);
    }
    return Handle(std::move(standing));
  }

  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    if (is_child()) return forked();
    const Number number =
        callbacks_->add([on_token = std::move(on_token),
                         seen = SeenTokens(own_tokens_)](ZenohCallbacks::Event event) mutable {
          const auto* const token = std::get_if<ZenohCallbacks::Token>(&event);
          if (token == nullptr) return on_token(TokenChange::missed, {});
          if (seen.is_news(*token)) on_token(token->change, token->key);
        });
    return declare(number, "watch", pattern.text(), [&](auto** declared, auto* failure) {
      return tendon_zenoh_watch(session_, text_of(pattern.text()), context_of(callbacks_, number),
                                token_changed, declared, failure);
    });
  }

  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, milliseconds timeout, OnKey on_key,
                                   OnEnd on_end) override {
    if (is_child()) return forked();
    const Number number = add_request(
        [on_key = std::move(on_key)](ZenohCallbacks::Event& event) {
          on_key(std::get<ZenohCallbacks::Token>(event).key);
        },
        std::move(on_end));
    return declare(number, "get", pattern.text(), [&](auto** declared, auto* failure) {
      return tendon_zenoh_get(session_, text_of(pattern.text()), whole_ms(timeout),
                              context_of(callbacks_, number), token_found, request_ended, declared,
                              failure);
    });
  }

  [[nodiscard]] Result<void> put(ZenohMessage message) override {
    if (is_child()) return forked();
    TENDON_TRY(key, KeyExpression::parse(message.key));
    tendon_zenoh_failure failure{};
    const std::int32_t outcome =
        message.kind == ZenohKind::deleted
            ? tendon_zenoh_delete(session_, text_of(key.text()),
                                  lend(std::move(message.attachment)), &failure)
            : tendon_zenoh_put(session_, text_of(key.text()), text_of(message.encoding),
                               lend(std::move(message.payload)),
                               lend(std::move(message.attachment)), &failure);
    if (outcome != TENDON_ZENOH_OK)
      return failed(ErrorCode::unreachable, "put on '" + key.text() + "'", failure);
    return {};
  }

  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override {
    if (is_child()) return forked();
    tendon_zenoh_failure failure{};
    if (tendon_zenoh_put_patiently(session_, text_of(key.text()), lend(std::move(payload)),
                                   &failure) != TENDON_ZENOH_OK) {
      return failed(ErrorCode::unreachable, "put on '" + key.text() + "'", failure);
    }
    return {};
  }

  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  Audience audience,
                                                                  OnMatching on_matching) override {
    if (is_child()) return forked();
    const Number number =
        callbacks_->add([on_matching = std::move(on_matching)](ZenohCallbacks::Event event) {
          on_matching(std::get<Matching>(event));
        });
    auto publisher = std::make_unique<StandingPublisher>(callbacks_, number);
    tendon_zenoh_failure failure{};
    if (tendon_zenoh_publisher(session_, text_of(key.text()),
                               audience == Audience::all_sessions ? 1 : 0,
                               context_of(callbacks_, number), matching_changed,
                               publisher->declared(), &failure) != TENDON_ZENOH_OK) {
      return failed(ErrorCode::unreachable, "publisher of '" + key.text() + "'", failure);
    }
    return std::unique_ptr<ZenohPublisher>(std::move(publisher));
  }

  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                         OnDropped on_dropped) override {
    if (is_child()) return forked();
    const Number number = callbacks_->add_subscriber(std::move(on_message), std::move(on_dropped));
    return declare(number, "subscribe", pattern.text(), [&](auto** declared, auto* failure) {
      return tendon_zenoh_subscribe(session_, text_of(pattern.text()),
                                    context_of(callbacks_, number), message_came, declared,
                                    failure);
    });
  }

  [[nodiscard]] Result<Handle> query(ZenohMessage question, milliseconds timeout,
                                     OnMessage on_answer, OnEnd on_end) override {
    if (is_child()) return forked();
    TENDON_TRY(key, KeyExpression::parse(question.key));
    const Number number =
        add_request([on_answer = std::move(on_answer)](
                        ZenohCallbacks::Event& event) { on_answer(std::get<ZenohMessage>(event)); },
                    std::move(on_end));
    return declare(number, "query", key.text(), [&](auto** declared, auto* failure) {
      return tendon_zenoh_query(session_, text_of(key.text()), lend(std::move(question.payload)),
                                lend(std::move(question.attachment)), whole_ms(timeout),
                                context_of(callbacks_, number), message_came, request_ended,
                                declared, failure);
    });
  }

  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) override {
    if (is_child()) return forked();
    const Number number =
        callbacks_->add([on_question = std::move(on_question)](ZenohCallbacks::Event event) {
          on_question(std::get<std::unique_ptr<ZenohQuestion>>(std::move(event)));
        });
    return declare(number, "answer", key.text(), [&](auto** declared, auto* failure) {
      return tendon_zenoh_answer(session_, text_of(key.text()), context_of(callbacks_, number),
                                 question_came, declared, failure);
    });
  }

  [[nodiscard]] Result<Handle> on_state(OnState on_state) override {
    if (is_child()) return forked();
    const Number number =
        callbacks_->add_listener([on_state = std::move(on_state)](ZenohCallbacks::Event event) {
          on_state(std::get<SessionState>(event));
        });
    return Handle(std::make_unique<Standing>(callbacks_, number));
  }
  [[nodiscard]] SessionState state() const override {
    return is_child() ? SessionState::down : callbacks_->state();
  }
  [[nodiscard]] std::string absence() const override { return absence_; }

 private:
  /// A forked child has none of the threads, and its parent's sockets: it touches nothing.
  [[nodiscard]] bool is_child() const { return process_ != process_number(); }
  static Error forked() {
    return Error{ErrorCode::forked, "fabric.zenoh",
                 "the session belongs to the process before fork"};
  }
  static std::uint64_t whole_ms(milliseconds timeout) {
    return static_cast<std::uint64_t>(
        std::clamp(timeout, milliseconds::zero(), kLongestRequest).count());
  }

  /// Zenoh ends requests to a lost peer as if all had answered: the end is complete only if no
  /// connection was lost since.
  template <class F>
  [[nodiscard]] Number add_request(F on_found, OnEnd on_end) {
    return callbacks_->add([on_found = std::move(on_found), on_end = std::move(on_end),
                            session = session_,
                            losses = tendon_zenoh_losses(session_)](ZenohCallbacks::Event event) {
      const auto* const ending = std::get_if<Ending>(&event);
      if (std::holds_alternative<ZenohCallbacks::Missed>(event)) return;  // its end says so
      if (ending == nullptr) {
        on_found(event);
      } else {
        const bool whole = tendon_zenoh_losses(session) == losses;
        on_end(whole ? *ending : Ending::timed_out);
      }
    });
  }

  template <class F>
  [[nodiscard]] Result<Handle> declare(Number number, std::string_view what, const std::string& key,
                                       F call) {
    auto standing = std::make_unique<Standing>(callbacks_, number);
    tendon_zenoh_failure failure{};
    if (call(&standing->declared, &failure) != TENDON_ZENOH_OK) {
      return failed(ErrorCode::unreachable, std::string(what) + " of '" + key + "'", failure);
    }
    return Handle(std::move(standing));
  }

  const std::shared_ptr<ZenohCallbacks> callbacks_;
  tendon_zenoh_session* const session_;
  const std::string absence_;
  const std::shared_ptr<OwnTokens> own_tokens_ = std::make_shared<OwnTokens>();
  const std::uint32_t process_ = process_number();
};

// ---- its configuration

constexpr int kMostBatches = 16;  // of 64 KiB; Zenoh takes no more

nlohmann::json retry(std::int64_t first_ms, std::int64_t last_ms) {
  return {
      {"period_init_ms", first_ms}, {"period_max_ms", last_ms}, {"period_increase_factor", 2.0}};
}

std::string configuration(const ZenohOptions& options) {
  // With 0 a client tries each endpoint once, in turn, and takes the first that answers; with any
  // other time it tries the first one for ever. The others connect in the background.
  const int connect_ms = options.mode == ZenohMode::client ? 0 : -1;
  const nlohmann::json whole = {
      {"mode", to_string(options.mode)},
      {"connect",
       {{"endpoints", options.connect},
        {"timeout_ms", connect_ms},
        {"exit_on_failure", false},
        {"retry", retry(kFirstRetryMs, options.last_retry.count())}}},
      {"listen", {{"endpoints", options.listen}, {"timeout_ms", 0}, {"exit_on_failure", true}}},
      // It would make a router, and a peer that connects, wait that long in open().
      {"scouting",
       {{"delay", 0}, {"multicast", {{"enabled", false}}}, {"gossip", {{"enabled", false}}}}},
      {"routing", {{"interests", {{"timeout", kZenohGivesUpMs}}}}},
      // A router waits in the thread that serves all for a reader that takes nothing: there must be
      // room for the windows of cables, which have this priority.
      {"transport",
       {{"unicast", {{"open_timeout", options.patience.count()}}},
        {"link",
         {{"tx",
           {{"lease", options.lease.count()}, {"queue", {{"size", {{"data_low", kMostBatches}}}}}}},
          {"rx", {{"max_message_size", options.most_bytes}}}}}}},
  };
  return whole.dump();
}

/// The entries of the environment: "key=value;key=value".
Result<std::vector<tendon_zenoh_change>> changes_of(std::string_view text) {
  std::vector<tendon_zenoh_change> changes;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    if (entry.empty()) continue;
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return Error{
          ErrorCode::invalid_argument, "fabric.zenoh",
          "ZENOH_CONFIG_OVERRIDE has '" + std::string(entry) + "' where 'key=value' is expected"};
    }
    changes.push_back({text_of(entry.substr(0, equals)), text_of(entry.substr(equals + 1))});
  }
  return changes;
}

}  // namespace

Result<std::unique_ptr<ZenohPort>> try_zenoh(const ZenohOptions& options) {
  const std::string environment(environment_variable("ZENOH_CONFIG_OVERRIDE"));
  TENDON_TRY(changes, changes_of(environment));
  const std::string config = configuration(options);
  TENDON_CHECK(check_zenoh_can_run());
  process_of_zenoh.store(process_number());
  TENDON_CHECK(check_room_for_threads(
      kThreadsOfZenoh, {.name = "tendon-room", .where = "fabric.zenoh", .task = "for Zenoh"}));
  TENDON_TRY(callbacks, ZenohCallbacks::start());
  tendon_zenoh_session* session = nullptr;
  tendon_zenoh_failure failure{};
  const std::int32_t outcome =
      tendon_zenoh_open(text_of(config), changes.data(), changes.size(), context_of(callbacks, 0),
                        state_changed, &session, &failure);
  if (outcome == TENDON_ZENOH_OK) {
    std::string absence = options.nobody;
    for (const std::string& place : options.connect_names()) absence += ' ' + place;
    return std::unique_ptr<ZenohPort>(
        std::make_unique<ZenohSession>(callbacks, session, std::move(absence)));
  }
  callbacks->close();
  const std::string what = "opening a " + std::string(to_string(options.mode)) + " of Zenoh";
  Error error = failed(ErrorCode::unreachable, what, failure);
  if (outcome != TENDON_ZENOH_BAD_CONFIG) return error;
  error.code = ErrorCode::invalid_argument;
  error.detail = environment.empty() ? "an endpoint that Zenoh does not take:"
                                     : "ZENOH_CONFIG_OVERRIDE or an endpoint is not of Zenoh: " +
                                           quote_text(environment) + ';';
  for (const auto* list : {&options.connect, &options.listen})
    for (const std::string& endpoint : *list) error.detail += ' ' + quote_text(endpoint);
  return error;
}

Result<void> check_zenoh_can_run() {
  const std::uint32_t process = process_of_zenoh.load();
  if (process == 0 || process == process_number()) return {};
  return Error{ErrorCode::forked, "fabric.zenoh",
               "the process from which this one was forked uses Zenoh, whose threads cannot be "
               "forked: start this process by spawn or exec, or name NodeOptions::peers"};
}

Result<std::string> zenoh_version() { return std::string(TENDON_ZENOH_VERSION); }

std::uint64_t zenoh_puts() { return tendon_zenoh_puts(); }

}  // namespace tendon::v0::detail
