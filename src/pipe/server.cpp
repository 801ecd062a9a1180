// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/server.hpp>

#include "core/fork_guard.hpp"
#include "core/left_to_parent.hpp"
#include "core/thread.hpp"
#include "pipe/pipe_core.hpp"
#include "session/proofs.hpp"

namespace tendon::v0 {
namespace {
constexpr std::uint32_t kMostClients = 1024;
}

// Shared by the handle, the thread that accepts and those of the handlers. A handle that is dropped
// in a handler cannot join: then the last owner does, whose own thread is detached.
class Server::State : public std::enable_shared_from_this<State> {
 public:
  State(Listener listener, Handler handler, ServerOptions options)
      : listener_(std::move(listener)),
        handler_(std::move(handler)),
        options_(std::move(options)) {}

  Result<void> start() {
    TENDON_TRY(acceptor, detail::Thread::start({.name = "tendon-accept",
                                                .where = "server.serve",
                                                .task = "that accepts clients"},
                                               [self = shared_from_this()] { self->accept(); }));
    acceptor_ = std::move(acceptor);
    return {};
  }

  ~State() {
    acceptor_.join();
    reap(Reap::all);
  }

  /// Ends the other handlers' pipes, and waits for them unless this is a handler itself.
  void end() {
    listener_.close();
    {
      const detail::Lock lock(mutex_);
      for (const Client& client : clients_)
        if (client.core.get() != serving_) client.core->cancel();
    }
    if (is_handler()) return;
    acceptor_.join();
    reap(Reap::all);
  }

  [[nodiscard]] const Listener& listener() const { return listener_; }
  [[nodiscard]] bool forked() const noexcept { return process_ != detail::process_number(); }

  [[nodiscard]] std::uint32_t client_count() {
    if (forked()) return 0;
    const detail::Lock lock(mutex_);
    return busy_count_;
  }

  Result<void> close(Deadline deadline) {
    if (forked()) {
      return Error{ErrorCode::forked, "server.close",
                   "the server belongs to the process before fork; serve() with a Context of its "
                   "own here"};
    }
    listener_.close();
    if (is_handler()) return {};
    const detail::Lock lock(mutex_);
    while (busy_count_ != 0 && !deadline.is_poll())
      if (!changed_.wait_until(mutex_, deadline)) break;
    if (busy_count_ == 0) return {};
    return Error{ErrorCode::timeout, "server.close",
                 std::to_string(busy_count_) + " handlers of the server on " + listener_.address() +
                     " had not returned before the deadline"};
  }

 private:
  enum class Reap : std::uint8_t { finished, all };
  struct Client {
    std::shared_ptr<detail::PipeCore> core;
    detail::Thread thread;
    bool finished = false;
  };

  void accept() {
    for (;;) {
      auto pipe = listener_.accept(Deadline::never());
      if (!pipe) return;  // closed
      reap(Reap::finished);
      const detail::Lock lock(mutex_);
      const auto core = detail::PipeCore::core_of(*pipe);
      if (busy_count_ >= options_.max_clients) {
        core->cancel(Error{ErrorCode::server_busy, "server",
                           "all " + std::to_string(options_.max_clients) + " handlers are taken"});
        continue;
      }
      ++busy_count_;
      Client& client = clients_.emplace_back();
      client.core = core;
      // Supervised from here, so that a thread that does not start leaves a reason.
      auto held = std::make_shared<Pipe>(*std::move(pipe));
      core->supervise();
      auto started = detail::Thread::start(
          {.name = "tendon-client", .where = "server.handler", .task = "for a further client"},
          [self = shared_from_this(), &client, held] {
            self->run(client.core, std::move(*held));
            const detail::Lock done(self->mutex_);
            client.finished = true;
            --self->busy_count_;
            self->changed_.notify_all();
          });
      if (started) {
        client.thread = *std::move(started);
      } else {
        core->context()->log(LogLevel::error, "server.handler", started.error().detail);
        clients_.pop_back();
        --busy_count_;
        changed_.notify_all();
        core->cancel(Error{ErrorCode::server_busy, "server",
                           "the server's process can start no further thread"});
      }
    }
  }

  void run(const std::shared_ptr<detail::PipeCore>& core, Pipe pipe) {
    const auto failed = [&](std::string_view what) {
      core->context()->log(LogLevel::error, "server.handler", what);
      core->cancel(Error{ErrorCode::handler_failed, "server.handler", std::string(what)});
    };
    serving_ = core.get();
    serves_ = this;
    try {
      handler_(std::move(pipe));
      core->release();
    } catch (const std::exception& failure) {
      failed(failure.what());
    } catch (...) {
      failed("an exception that is no std::exception");
    }
    serving_ = nullptr;
    serves_ = nullptr;
  }

  /// True if this thread is one of its handlers.
  [[nodiscard]] bool is_handler() const noexcept { return serves_ == this; }

  void reap(Reap which) {
    std::list<Client> done;
    {
      const detail::Lock lock(mutex_);
      for (auto client = clients_.begin(); client != clients_.end();) {
        const auto next = std::next(client);
        if (which == Reap::all || client->finished) done.splice(done.end(), clients_, client);
        client = next;
      }
    }
    for (Client& client : done) client.thread.join();
  }

  Listener listener_;
  const Handler handler_;
  const ServerOptions options_;
  const std::uint32_t process_ = detail::process_number();
  detail::Mutex mutex_;
  detail::CondVar changed_;
  std::list<Client> clients_ TENDON_GUARDED_BY(mutex_);
  std::uint32_t busy_count_ TENDON_GUARDED_BY(mutex_) = 0;
  detail::Thread acceptor_;
  // The server whose handler runs on this thread, and the pipe that it serves.
  static thread_local const State* serves_;
  static thread_local const detail::PipeCore* serving_;
};

thread_local const Server::State* Server::State::serves_ = nullptr;
thread_local const detail::PipeCore* Server::State::serving_ = nullptr;

Server::Server(std::shared_ptr<State> state) : state_(std::move(state)) {}
Server::Server(Server&&) noexcept = default;

Server& Server::operator=(Server&& other) noexcept {
  Server old(std::move(other));
  state_.swap(old.state_);
  return *this;
}

Server::~Server() {
  if (state_ == nullptr) return;
  // Its threads are in the parent: here nobody ends them, nor releases the locks that they hold.
  if (state_->forked())
    detail::leave_to_parent(state_);
  else
    state_->end();
}

Result<Server> Server::serve(Context& context, std::string_view address, Handler handler,
                             ServerOptions options) {
  if (options.max_clients < 1 || options.max_clients > kMostClients) {
    return Error{ErrorCode::invalid_argument, "server.serve",
                 "ServerOptions::max_clients is " + std::to_string(options.max_clients) +
                     "; legal are 1 to " + std::to_string(kMostClients)};
  }
  if (!handler) return Error{ErrorCode::invalid_argument, "server.serve", "the handler is empty"};
  TENDON_TRY(listener,
             Listener::bind(context, address, {.security = detail::security_of(options)}));
  auto state = std::make_shared<State>(std::move(listener), std::move(handler), std::move(options));
  TENDON_CHECK(state->start());
  return Server(std::move(state));
}

std::string Server::address() const { return state_->listener().address(); }
std::uint32_t Server::client_count() const { return state_->client_count(); }
Result<void> Server::close(Deadline deadline) { return state_->close(deadline); }

}  // namespace tendon::v0
