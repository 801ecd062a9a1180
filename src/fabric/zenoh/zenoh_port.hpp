// SPDX-License-Identifier: Apache-2.0
// The interface of the fabric to Zenoh, and its only one: a session.
//
// Keys and payloads from it were written by strangers: keys are unchecked texts.
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

/// Whether anybody takes a publisher's messages, as far as Zenoh knows.
enum class Matching : std::uint8_t { nobody, somebody };
/// The subscribers that get a publisher's messages, and match it: with or without those of its own
/// session.
enum class Audience : std::uint8_t { other_sessions, all_sessions };
/// A put, or a word that a key has no value any more.
enum class ZenohKind : std::uint8_t { put, deleted };
/// `missed`: some tokens appeared or disappeared that there was no room to report. The words of
/// this watch no longer show which tokens exist: it is declared again.
enum class TokenChange : std::uint8_t { came, went, missed };
enum class SessionState : std::uint8_t { up, down };
/// How a get() or query() ended. Only after `complete` unreported keys are absent.
enum class Ending : std::uint8_t { complete, timed_out };

/// A message, question or answer. Payload and attachment keep their memory.
struct ZenohMessage {
  std::string key;
  Storage payload;
  Storage attachment;
  std::string encoding = {};  ///< in Zenoh's form, "application/json"; only of put messages
  ZenohKind kind = ZenohKind::put;
};

/// A question that arrived. It may be answered any number of times, from any thread; its destructor
/// says that there is no further answer.
class ZenohQuestion {
 public:
  virtual ~ZenohQuestion() = default;
  [[nodiscard]] virtual const ZenohMessage& asked() const noexcept = 0;
  virtual void answer(ZenohMessage message) = 0;
};

/// Puts on one key; its destructor ends that as ZenohPort::Declared does.
///
/// Threads: any.
/// Blocks:  put(): a moment, if a connection has no room; then Zenoh drops the message.
class ZenohPublisher {
 public:
  virtual ~ZenohPublisher() = default;
  /// `encoding` is in Zenoh's form: "zenoh/bytes". Success as for ZenohPort::put().
  [[nodiscard]] virtual Result<void> put(Storage payload, Storage attachment,
                                         std::string_view encoding) = 0;
  [[nodiscard]] virtual Matching matching() const = 0;
};

/// A session of Zenoh.
///
/// Owns:    the session. Its declarations are withdrawn with it.
/// Threads: calls from any. A thread of the session makes the callbacks, one at a time: they must
///          only queue their arguments.
/// Errors:  those of the session, as `unreachable`. A session that is down is no error; its
///          declarations are repeated when it is up.
/// Blocks:  never, except put_patiently(). The destructor of a returned object waits for its
///          callback to return, unless it runs in that callback. None is called after it.
/// Cost:    one allocation or more a call: this is the way of announcements, not of samples.
class ZenohPort {
 public:
  /// Withdraws a declaration, or cancels a request, by its destructor.
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
  /// Reports tokens that appear and disappear from now on, those of this session too. A key that is
  /// withdrawn and announced again at once may change nothing visible. The key of `missed` is
  /// empty.
  [[nodiscard]] virtual Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) = 0;
  /// Reports the existing tokens, then the end: at `timeout` the latest. A token of this session
  /// may be reported twice, by the session and by its router. Reports of this session's watches
  /// arrive in order with it: after a found token, its withdrawal is reported.
  [[nodiscard]] virtual Result<Handle> get(const KeyExpression& pattern,
                                           std::chrono::milliseconds timeout, OnKey on_key,
                                           OnEnd on_end) = 0;

  /// Puts a message. Success says that Zenoh took it, never that anybody gets it.
  [[nodiscard]] virtual Result<void> put(ZenohMessage message) = 0;
  /// Waits for room where put() drops, after all other traffic: five seconds without room cost the
  /// connection. Successive messages on one key keep their order.
  [[nodiscard]] virtual Result<void> put_patiently(const KeyExpression& key, Storage payload) = 0;
  /// The same for many puts on one key. Reports each change, beginning with "nobody".
  [[nodiscard]] virtual Result<std::unique_ptr<ZenohPublisher>> publisher(
      const KeyExpression& key, Audience audience, OnMatching on_matching) = 0;
  /// `on_dropped`: so many messages arrived on a key for which there was no room.
  [[nodiscard]] virtual Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                                 OnDropped on_dropped) = 0;
  /// For messages that themselves tell when one is missing.
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message) {
    return subscribe(pattern, std::move(on_message), [](std::string_view, std::uint64_t) {});
  }

  /// Asks all that answer on a key that `question.key` matches; the end as that of get().
  [[nodiscard]] virtual Result<Handle> query(ZenohMessage question,
                                             std::chrono::milliseconds timeout, OnMessage on_answer,
                                             OnEnd on_end) = 0;
  [[nodiscard]] virtual Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) = 0;

  /// Reports whether a router, or another session, is connected: changes from now on.
  [[nodiscard]] virtual Result<Handle> on_state(OnState on_state) = 0;
  [[nodiscard]] virtual SessionState state() const = 0;
  /// The text for a session that is down: who does not answer, and where.
  [[nodiscard]] virtual std::string absence() const { return "no router answers"; }
};

}  // namespace tendon::v0::detail
