// SPDX-License-Identifier: Apache-2.0
// What the fabric asks of Zenoh, and all that it knows of it: one session.
//
// Keys and payloads that come out of it were written by strangers: keys are texts that nobody has
// checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/memory/storage.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Does anybody take what a publisher puts, as far as Zenoh knows?
enum class Matching : std::uint8_t { nobody, somebody };
/// Whose subscribers get what a publisher puts, and match it: those of the session that puts, too?
enum class Audience : std::uint8_t { other_sessions, all_sessions };
/// A put, or a word that a key has no value any more.
enum class ZenohKind : std::uint8_t { put, deleted };
/// `missed`: some came and went that there was no room to tell of. The words of this watch no
/// longer show which tokens are there: it is declared again.
enum class TokenChange : std::uint8_t { came, went, missed };
enum class SessionState : std::uint8_t { up, down };
/// How a get() or query() ended. Only after `complete` what was not told of is not there.
enum class Ending : std::uint8_t { complete, timed_out };

/// What is put, asked and answered. Payload and attachment keep the memory that they lie in.
struct ZenohMessage {
  std::string key;
  Storage payload;
  Storage attachment;
  std::string encoding = {};  ///< as Zenoh writes it, "application/json"; of what is put alone
  ZenohKind kind = ZenohKind::put;
};

/// A question that came. It may be answered any number of times, from any thread; its destructor
/// says that there is no further answer.
class ZenohQuestion {
 public:
  virtual ~ZenohQuestion() = default;
  [[nodiscard]] virtual const ZenohMessage& asked() const noexcept = 0;
  virtual void answer(ZenohMessage message) = 0;
};

/// Puts on one key, which its destructor ends as ZenohPort::Declared does.
///
/// Threads: any.
/// Blocks:  put(): a moment, where a connection has no room; then Zenoh drops the message.
class ZenohPublisher {
 public:
  virtual ~ZenohPublisher() = default;
  /// `encoding` as Zenoh writes it: "zenoh/bytes". Success as that of ZenohPort::put().
  [[nodiscard]] virtual Result<void> put(Storage payload, Storage attachment,
                                         std::string_view encoding) = 0;
  [[nodiscard]] virtual Matching matching() const = 0;
};

/// A session of Zenoh.
///
/// Owns:    the session. What it declared is withdrawn with it.
/// Threads: calls from any. Callbacks come from a thread of the session, one at a time: they only
///          queue what they are told.
/// Errors:  of the session, as `unreachable`; a session that is down is none, and what was declared
///          is declared again when it is up.
/// Blocks:  never, put_patiently() apart; but the destructor of what a call returns waits for its
///          callback to return, unless it runs in that callback. None is called after it.
/// Cost:    one allocation or more a call: this is the way of announcements, not of samples.
class ZenohPort {
 public:
  /// Withdraws, by its destructor, what was declared, or gives up what was asked.
  class Declared {
   public:
    virtual ~Declared() = default;
  };
  using Handle = std::unique_ptr<Declared>;
  using OnToken = std::function<void(TokenChange, std::string_view key)>;
  using OnKey = std::function<void(std::string_view key)>;
  using OnMessage = std::function<void(const ZenohMessage&)>;
  using OnDropped = std::function<void(std::string_view key, std::uint64_t count)>;
  using OnQuestion = std::function<void(std::unique_ptr<ZenohQuestion>)>;
  using OnState = std::function<void(SessionState)>;
  using OnEnd = std::function<void(Ending)>;
  using OnMatching = std::function<void(Matching)>;

  virtual ~ZenohPort() = default;

  /// Announces the key for as long as the session lives and can be reached.
  [[nodiscard]] virtual Result<Handle> token(const KeyExpression& key) = 0;
  /// Tells of tokens that come and go from now on, those of this session too. A key that is
  /// withdrawn and announced again at once may change nothing that is seen. With
  /// `missed` comes an empty key.
  [[nodiscard]] virtual Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) = 0;
  /// Tells of the tokens that are there, then of the end: at `timeout` the latest. What a watch of
  /// this session is told comes in order with it: after a token that was found it hears when that
  /// one goes.
  [[nodiscard]] virtual Result<Handle> get(const KeyExpression& pattern,
                                           std::chrono::milliseconds timeout, OnKey on_key,
                                           OnEnd on_end) = 0;

  /// Success says that Zenoh took it, never that anybody gets it.
  [[nodiscard]] virtual Result<void> put(ZenohMessage message) = 0;
  /// Waits for room where put() drops, and goes behind all other traffic: five seconds without room
  /// cost the connection. What is put so on one key, one after the other, keeps its order.
  [[nodiscard]] virtual Result<void> put_patiently(const KeyExpression& key, Storage payload) = 0;
  /// The same for many puts on one key. Tells of each change, beginning with "nobody".
  [[nodiscard]] virtual Result<std::unique_ptr<ZenohPublisher>> publisher(
      const KeyExpression& key, Audience audience, OnMatching on_matching) = 0;
  /// `on_dropped`: so many messages came on a key that there was no room for.
  [[nodiscard]] virtual Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                                 OnDropped on_dropped) = 0;
  /// For those whose messages say themselves when one is missing.
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message) {
    return subscribe(pattern, std::move(on_message), [](std::string_view, std::uint64_t) {});
  }

  /// Asks all that answer on a key that `question.key` matches; the end as that of get().
  [[nodiscard]] virtual Result<Handle> query(ZenohMessage question,
                                             std::chrono::milliseconds timeout, OnMessage on_answer,
                                             OnEnd on_end) = 0;
  [[nodiscard]] virtual Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) = 0;

  /// Is a router, or another session, connected? Tells of changes from now on.
  [[nodiscard]] virtual Result<Handle> on_state(OnState on_state) = 0;
  [[nodiscard]] virtual SessionState state() const = 0;
  /// The text for a session that is down: who does not answer, and where.
  [[nodiscard]] virtual std::string absence() const { return "no router answers"; }
};

}  // namespace tendon::v0::detail
