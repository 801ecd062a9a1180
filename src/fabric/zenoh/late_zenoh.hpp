// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

#include "core/fork_guard.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A session that may be used before there is a router: it is down then, like one that has lost its
/// router.
///
///   awaited -> there     a try to open it has succeeded: earlier declarations and requests are
///                        declared and asked at it, then it is up
///
/// While it is awaited, put messages are dropped, and a request ends as `timed_out` at its timeout.
///
/// Owns:    the session, once it is there; a thread until then.
/// Threads: as ZenohPort. One thread of this object makes all callbacks, those of the session too.
/// Errors:  begin(): resource_exhausted without its threads. Others as ZenohPort; a declaration
///          that fails when the session arrives is logged.
/// Blocks:  the destructor, while a try runs and as that of the session.
/// Cost:    one try in kPause, while it is awaited.
class LateZenoh final : public ZenohPort {
 public:
  /// Tries once to open the session; it returns soon.
  using Open = std::function<Result<std::unique_ptr<ZenohPort>>()>;
  /// The thread makes the first try at once.
  [[nodiscard]] static Result<std::unique_ptr<LateZenoh>> begin(Open open);
  LateZenoh(const LateZenoh&) = delete;
  LateZenoh& operator=(const LateZenoh&) = delete;
  ~LateZenoh() override;

  /// Waits until the session is there. Errors: those of the last try.
  [[nodiscard]] Result<void> wait(Deadline deadline) const;

  // ZenohPort
  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override;
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override;
  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, std::chrono::milliseconds timeout,
                                   OnKey on_key, OnEnd on_end) override;
  [[nodiscard]] Result<void> put(ZenohMessage message) override;
  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override;
  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  Audience audience,
                                                                  OnMatching on_matching) override;
  using ZenohPort::subscribe;
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                         OnDropped on_dropped) override;
  [[nodiscard]] Result<Handle> query(ZenohMessage question, std::chrono::milliseconds timeout,
                                     OnMessage on_answer, OnEnd on_end) override;
  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion on_question) override;
  [[nodiscard]] Result<Handle> on_state(OnState on_state) override;
  [[nodiscard]] SessionState state() const override;
  [[nodiscard]] std::string absence() const override;

  /// The time from the beginning of one try to that of the next.
  static constexpr std::chrono::milliseconds kPause{1000};

 private:
  class Core;

 public:
  explicit LateZenoh(std::shared_ptr<Core> core) : core_(std::move(core)) {}

 private:
  template <class Made>
  struct Place;
  class Standing;
  class Publisher;
  const std::shared_ptr<Core> core_;
  const std::uint32_t process_ = process_number();
};

}  // namespace tendon::v0::detail
