// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>

namespace tendon {
inline namespace v0 {

class Node;

namespace detail {
class ResponderCore;
}

/// A request, as a handler gets it.
///
/// Owns:    a share of the memory of its tensors, which is read-only where the caller is on this
///          host. Kept after the answer, they hold memory of the caller.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing is copied on one host.
class TENDON_API Request {
 public:
  [[nodiscard]] const TensorDict& tensors() const& noexcept { return tensors_; }
  const TensorDict& tensors() const&& = delete;
  /// "motor (host b, pid 4711)".
  [[nodiscard]] const std::string& caller() const& noexcept { return caller_; }
  const std::string& caller() const&& = delete;
  /// The time at which the caller stops waiting.
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  /// True when nobody waits for the answer. The caller stopped waiting, was answered by another
  /// responder, or is lost; or the responder is being destroyed. A long handler looks now and then.
  [[nodiscard]] bool cancelled() const noexcept { return stop_.stop_requested(); }
  /// The same as a token, to wait with. Its callbacks run on a thread of the Context: they must
  /// only signal.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_; }

 private:
  friend class detail::ResponderCore;
  Request(TensorDict tensors, std::string caller, Deadline deadline, std::stop_token stop)
      : tensors_(std::move(tensors)),
        caller_(std::move(caller)),
        deadline_(deadline),
        stop_(std::move(stop)) {}

  TensorDict tensors_;
  std::string caller_;
  Deadline deadline_;
  std::stop_token stop_;
};

struct ResponderOptions {
  /// Handlers that run at once, each on a thread that is made at its first use: 1 to kMaxHandlers.
  std::uint32_t handlers = 8;
  /// Requests that wait for a handler; a further one gets `server_busy`.
  std::uint32_t waiting = 64;
};

struct ResponderStats {
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;     ///< the handler returned an error, or its answer could not be sent
  std::uint64_t refused = 0;    ///< `server_busy`
  std::uint64_t cancelled = 0;  ///< by their callers before there was an answer
  std::uint64_t waiting = 0;    ///< now
  std::uint64_t running = 0;    ///< now
};

/// Answers the calls of other nodes on one key: see Node::call(). Several nodes may answer one key.
///
/// Example:
///   const auto plan = [](const Request& request) -> Result<TensorDict> {
///     if (request.cancelled()) return Error{ErrorCode::cancelled, "plan", "nobody waits for it"};
///     TensorDict answer;
///     answer.set("path", request.tensors().find("goal").value());
///     return answer;
///   };
///   Responder responder = Responder::declare(node, "arm/plan", plan).value();
///   responder.close(10s).value();  // answers earlier requests first
///
/// Owns:    threads, and a channel for each caller.
/// Threads: safe everywhere. Handlers run on threads of the responder, several at once.
/// Errors:  declare(): invalid_argument, pipe_closed for a node that was closed. An error that a
///          handler returns or throws fails its own request alone.
/// Blocks:  close() until its deadline. The destructor requests handlers to stop, and waits until
///          they have returned. In a handler of this responder both return at once: it still
///          answers its own caller, and the last handler that returns frees the rest.
/// Cost:    on one host an answer is copied once, into memory that its caller reads.
class TENDON_API Responder {
 public:
  using Handler = std::function<Result<TensorDict>(const Request&)>;
  /// Makes a responder on one key, not on a set of keys: "arm/plan".
  [[nodiscard]] static Result<Responder> declare(Node& node, std::string_view key, Handler handler,
                                                 const ResponderOptions& options = {});
  Responder(Responder&&) noexcept;
  Responder& operator=(Responder&&) noexcept;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  ~Responder();

  [[nodiscard]] const std::string& key() const& noexcept;
  const std::string& key() const&& = delete;
  [[nodiscard]] ResponderStats stats() const;
  /// Withdraws the announcement, refuses further requests, and waits until earlier ones are
  /// answered and their answers sent. `timeout` says how many are left: these are cancelled. In a
  /// handler it waits for none. Idempotent.
  [[nodiscard]] Result<void> close(Deadline deadline);

 private:
  explicit Responder(std::shared_ptr<detail::ResponderCore> core);
  std::shared_ptr<detail::ResponderCore> core_;
};

}  // namespace v0
}  // namespace tendon
