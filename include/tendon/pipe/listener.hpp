// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/formerly.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

namespace detail {
class ListenerCore;
}

struct ListenOptions {
  /// An address that is neither loopback nor a unix socket needs Security::load(), or
  /// Profile::plaintext by name.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
};

/// A place where peers connect.
///
/// Example:
///   Listener listener = Listener::bind(context, "127.0.0.1:0").value();
///   std::cout << "listening at " << listener.address() << std::endl;
///   for (;;) {
///     Result<Pipe> pipe = listener.accept(60s);
///     if (!pipe) break;  // timeout: nobody connected for a minute
///     pipe->send(batch, 5s).value();
///     pipe->close(5s).value();
///   }
///
/// Owns:    the listening socket and pipes not accepted yet (64; the next peer gets `server_busy`).
/// Threads: safe everywhere.
/// Errors:  address_in_use, permission_denied (a routable address with Profile::local),
///          unreachable, ...
/// Blocks:  accept() until its deadline; bind() only while a name is looked up, 5 s at most.
/// Cost:    one descriptor.
class TENDON_API Listener {
 public:
  /// "127.0.0.1:0" lets the system choose the port: see address().
  [[nodiscard]] static Result<Listener> bind(Context& context, std::string_view address,
                                             ListenOptions options = {});

  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  [[nodiscard]] Result<Pipe> accept(Deadline deadline);
  [[nodiscard]] Completion<Pipe> accept_async();
  /// Makes the next accept() return this pipe, which was accepted here: see Pipe::give_back().
  void give_back(Pipe pipe);
  /// The address at which it listens, with the port that was chosen.
  [[nodiscard]] std::string address() const;
  /// Stops listening; pipes not accepted yet are closed. Idempotent.
  void close();

 private:
  friend class detail::ListenerCore;
  explicit Listener(std::shared_ptr<detail::ListenerCore> core);
  std::shared_ptr<detail::ListenerCore> core_;
};

}  // namespace v0
}  // namespace tendon
