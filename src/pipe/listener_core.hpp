// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/listener.hpp>

#include "pipe/pipe_core.hpp"
#include "runtime/acceptor.hpp"

namespace tendon::v0::detail {

/// Pipes that peers opened and the program has not accepted yet, and the calls that wait for one.
class ListenerCore final : public OpenHandler, public std::enable_shared_from_this<ListenerCore> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ListenerCore>> bind(
      const std::shared_ptr<ContextCore>& context, std::string_view address, Security security);
  explicit ListenerCore(std::shared_ptr<ContextCore> context) : context_(std::move(context)) {}
  [[nodiscard]] static Listener make_listener(std::shared_ptr<ListenerCore> core) {
    return Listener(std::move(core));
  }

  [[nodiscard]] Result<Pipe> accept(Deadline deadline);
  [[nodiscard]] Completion<Pipe> accept_async();
  /// Makes an accepted pipe the next one again.
  void put_back(Pipe pipe);
  [[nodiscard]] const std::string& address() const noexcept { return acceptor_->address(); }
  void close();
  [[nodiscard]] bool forked() const noexcept { return context_->forked(); }

  Result<void> may_open() override;
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link> link, const Descriptor& open,
                                               Bytes said) override;
  void on_link_ended(const Link& link, const Error* error) override;
  void on_context_closed() override { close(); }

 private:
  class AcceptCompletion;
  [[nodiscard]] Error closed_error() const;
  [[nodiscard]] Result<void> has_room() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t left_bytes() const TENDON_REQUIRES(mutex_);
  void bound_what_is_left(const Link& link) TENDON_REQUIRES(mutex_);
  /// The completion may be dropped, which leads to put_back().
  void hand_over(AcceptCompletion& completion, std::shared_ptr<PipeCore> core)
      TENDON_EXCLUDES(mutex_);
  void cancel_accept(const AcceptCompletion* completion);

  const std::shared_ptr<ContextCore> context_;
  std::shared_ptr<Acceptor> acceptor_;
  Mutex mutex_;
  std::deque<std::shared_ptr<PipeCore>> backlog_ TENDON_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<AcceptCompletion>> waiting_ TENDON_GUARDED_BY(mutex_);
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
