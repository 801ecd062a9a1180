// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/formerly.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

struct ServerOptions {
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  /// Handlers running at once; the next client gets `server_busy`. 1 to 1024.
  std::uint32_t max_clients = 64;
};

/// Serves many clients: runs a handler of its own for each.
///
/// Example:
///   const auto answer = [](Pipe client) {
///     for (Result<TensorDict>& request : client.each(60s)) {
///       if (!request) return;  // timeout, peer_lost: the client hears of it by its own calls
///       client.send(*request, 5s).value();
///     }
///   };
///   Server server = Server::serve(context, "127.0.0.1:7000", answer).value();
///   std::cout << server.client_count() << " clients" << std::endl;
///   server.close(10s).value();
///
/// Owns:    the listener and one thread per connected client.
/// Threads: safe everywhere; each handler runs on a thread of the server.
/// Errors:  serve(): those of Listener::bind.
/// Blocks:  close() until its deadline; the destructor cancels the clients' pipes and joins. In a
///          handler of this server both return at once: it still answers its own client, and the
///          last handler that returns frees the rest.
/// Cost:    a thread per client: for many quiet clients use a Listener and `_async` calls.
///
/// A handler that throws ends its pipe: the client gets `handler_failed` with its text.
class TENDON_API Server {
 public:
  using Handler = std::function<void(Pipe)>;
  [[nodiscard]] static Result<Server> serve(Context& context, std::string_view address,
                                            Handler handler, ServerOptions options = {});

  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  [[nodiscard]] std::string address() const;
  /// The number of clients that are served now.
  [[nodiscard]] std::uint32_t client_count() const;
  /// Accepts no more clients, waits for the handlers to return.
  [[nodiscard]] Result<void> close(Deadline deadline);

 private:
  class State;
  explicit Server(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace v0
}  // namespace tendon
