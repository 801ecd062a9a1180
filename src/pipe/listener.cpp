// SPDX-License-Identifier: Apache-2.0
#include <tendon/pipe/listener.hpp>
#include <tendon/session/limits.hpp>

#include "channel/open.hpp"
#include "core/left_to_parent.hpp"
#include "pipe/listener_core.hpp"
#include "runtime/awaited.hpp"
#include "session/proofs.hpp"

namespace tendon::v0 {
namespace detail {
namespace {

Error never_accepted() {
  return Error{ErrorCode::unreachable, "listener",
               "the listener was closed before the pipe was accepted"};
}

}  // namespace

class ListenerCore::AcceptCompletion final : public Awaited<Pipe> {
 public:
  explicit AcceptCompletion(std::shared_ptr<ListenerCore> core)
      : Awaited(*core->context_), core_(std::move(core)) {}
  void drive(Deadline deadline) override {
    core_->context_->wait(nullptr, deadline,
                          [this] { return finished() || core_->context_->unusable(); });
  }
  void cancel() override { core_->cancel_accept(this); }
  void abandon() override {
    if (!finished()) core_->cancel_accept(this);
    hand_back();
  }
  void left_over(Result<Pipe> pipe) override {
    if (pipe) core_->put_back(*std::move(pipe));
  }

 private:
  std::shared_ptr<ListenerCore> core_;
};

Result<std::shared_ptr<ListenerCore>> ListenerCore::bind(
    const std::shared_ptr<ContextCore>& context, std::string_view address, Security security) {
  auto core = std::make_shared<ListenerCore>(context);
  TENDON_TRY(acceptor, Acceptor::bind(context, address, std::move(security), core));
  core->acceptor_ = std::move(acceptor);
  context->add_handler(core);
  return core;
}

Error ListenerCore::closed_error() const {
  if (auto usable = context_->usable("listener.accept"); !usable) return std::move(usable).error();
  return Error{ErrorCode::context_closed, "listener.accept",
               "the listener on " + acceptor_->address() + " was closed"};
}

Result<Pipe> ListenerCore::accept(Deadline deadline) {
  TENDON_CHECK(context_->usable("listener.accept"));
  std::shared_ptr<PipeCore> taken;
  bool over = false;
  const bool done = context_->wait(nullptr, deadline, [&] {
    const Lock lock(mutex_);
    over = closed_ || context_->unusable();
    if (over) return true;
    if (backlog_.empty() || !waiting_.empty()) return false;
    taken = std::move(backlog_.front());
    backlog_.pop_front();
    return true;
  });
  if (over) return closed_error();
  if (!done) {
    return Error{ErrorCode::timeout, "listener.accept",
                 "nobody connected to " + acceptor_->address() + " before the deadline"};
  }
  return PipeCore::make_pipe(std::move(taken));
}

Completion<Pipe> ListenerCore::accept_async() {
  auto completion = std::make_shared<AcceptCompletion>(shared_from_this());
  if (context_->forked()) {
    (void)completion->finish(closed_error());
    return Completion<Pipe>(std::move(completion));
  }
  const Lock lock(mutex_);
  if (closed_ || context_->unusable()) {
    (void)completion->finish(closed_error());
  } else if (!backlog_.empty() && waiting_.empty()) {
    (void)completion->finish(PipeCore::make_pipe(std::move(backlog_.front())));
    backlog_.pop_front();
  } else {
    waiting_.push_back(completion);
  }
  return Completion<Pipe>(std::move(completion));
}

Result<void> ListenerCore::has_room() const {
  if (closed_) return Error{ErrorCode::unreachable, "listener", "the listener was closed"};
  if (!waiting_.empty()) return {};
  if (backlog_.size() >= static_cast<std::size_t>(kBacklog)) {
    return Error{
        ErrorCode::server_busy, "listener",
        "its backlog of " + std::to_string(kBacklog) + " pipes that were not accepted is full"};
  }
  const std::uint64_t left_bytes = this->left_bytes();
  if (left_bytes < context_->options().link_cap_bytes) return {};
  return Error{ErrorCode::server_busy, "listener",
               "its backlog holds " + std::to_string(left_bytes) +
                   " bytes of peers that have left, which nobody accepted; the limit is " +
                   std::to_string(context_->options().link_cap_bytes)};
}

Result<void> ListenerCore::may_open() {
  const Lock lock(mutex_);
  return has_room();
}

Result<std::shared_ptr<MessageSink>> ListenerCore::on_open(std::shared_ptr<Link> link,
                                                           const Descriptor& open, Bytes) {
  link->receive_mutex().assert_held();
  TENDON_TRY(window, window_of(open));
  auto core = std::make_shared<PipeCore>(context_, std::move(link), open.pipe,
                                         PipeWindows{.send = window, .receive = {}});
  std::shared_ptr<AcceptCompletion> completion;
  {
    const Lock lock(mutex_);
    TENDON_CHECK(has_room());
    if (waiting_.empty()) {
      backlog_.push_back(core);
    } else {
      completion = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
  if (completion != nullptr) hand_over(*completion, core);
  return core->sink();
}

std::uint64_t ListenerCore::left_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& core : backlog_) bytes += core->left_bytes();
  return bytes;
}

// Each link has its own window. Peers that send, leave and return, or that connect together and
// leave one by one, would fill one window after another. Messages that do not fit beside those of
// others are therefore dropped, though they were acknowledged.
void ListenerCore::bound_what_is_left(const Link& link) {
  const std::uint64_t cap_bytes = context_->options().link_cap_bytes;
  const std::uint64_t limit_bytes = cap_bytes + cap_bytes / 4;
  std::uint64_t here_bytes = 0;
  for (const auto& core : backlog_)
    if (&core->link() == &link) here_bytes += core->left_bytes();
  if (left_bytes() == here_bytes) return;  // its link has bounded it
  for (std::size_t i = backlog_.size(); i-- > 0 && left_bytes() > limit_bytes;) {
    const PipeCore& core = *backlog_[i];
    if (&core.link() != &link || core.left_bytes() == 0) continue;
    context_->log(LogLevel::warn, "listener",
                  "dropped a pipe that nobody accepted, with " + std::to_string(core.left_bytes()) +
                      " bytes from " + link.peer_name() + ", which has left: at most " +
                      std::to_string(limit_bytes) + " bytes of such peers are kept");
    context_->recorder().record("pipe dropped", link.peer_name(), core.left_bytes());
    backlog_.erase(backlog_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Nobody knows the pipes of a lost peer yet, so nobody misses them; their messages would stay as
// long as nobody accepts. A pipe that its peer closed in order is kept: its messages were
// acknowledged.
void ListenerCore::on_link_ended(const Link& link, const Error* error) {
  const Lock lock(mutex_);
  if (error != nullptr) {
    std::erase_if(backlog_, [&](const auto& core) {
      return &core->link() == &link && !core->ended_by_peer();
    });
  }
  bound_what_is_left(link);
}

void ListenerCore::hand_over(AcceptCompletion& completion, std::shared_ptr<PipeCore> core) {
  completion.conclude(PipeCore::make_pipe(std::move(core)));
}

void ListenerCore::cancel_accept(const AcceptCompletion* completion) {
  if (context_->forked()) return;
  std::shared_ptr<AcceptCompletion> found;
  {
    const Lock lock(mutex_);
    for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
      if (waiting->get() != completion) continue;
      found = *waiting;
      waiting_.erase(waiting);
      break;
    }
  }
  if (found == nullptr) return;
  found->conclude(Error{ErrorCode::cancelled, "completion.cancel", "the accept was cancelled"});
}

// A completion that is dropped while on_open() fills it calls this under the link's receive lock,
// which the end of a pipe takes as well: no pipe may end in here.
void ListenerCore::put_back(Pipe pipe) {
  auto core = PipeCore::take_core(std::move(pipe));
  std::shared_ptr<AcceptCompletion> next;
  {
    const Lock lock(mutex_);
    if (!closed_ && waiting_.empty()) {
      const Link& link = core->link();
      backlog_.push_front(std::move(core));
      bound_what_is_left(link);
    } else if (!closed_) {
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
  if (core == nullptr) return context_->wake_others();  // an accept() may wait for it
  if (next != nullptr) return hand_over(*next, std::move(core));
  if (context_->unusable()) return;
  context_->schedule([core = std::move(core)] { core->cancel(never_accepted()); });
}

void ListenerCore::close() {
  if (context_->forked()) return;
  std::deque<std::shared_ptr<PipeCore>> backlog;
  std::deque<std::shared_ptr<AcceptCompletion>> waiting;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    backlog.swap(backlog_);
    waiting.swap(waiting_);
  }
  acceptor_->close();
  for (const auto& core : backlog) core->cancel(never_accepted());
  for (const auto& completion : waiting) completion->conclude(closed_error());
  if (!context_->unusable()) context_->wake_others();
}

}  // namespace detail

Listener::Listener(std::shared_ptr<detail::ListenerCore> core) : core_(std::move(core)) {}
Listener::Listener(Listener&&) noexcept = default;

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    const Listener old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Listener::~Listener() {
  if (core_ == nullptr) return;
  if (core_->forked())
    detail::leave_to_parent(core_);
  else
    core_->close();
}

Result<Listener> Listener::bind(Context& context, std::string_view address, ListenOptions options) {
  TENDON_TRY(core, detail::ListenerCore::bind(detail::ContextCore::of(context), address,
                                              detail::security_of(std::move(options))));
  return Listener(std::move(core));
}

Result<Pipe> Listener::accept(Deadline deadline) { return core_->accept(deadline); }
Completion<Pipe> Listener::accept_async() { return core_->accept_async(); }
void Listener::give_back(Pipe pipe) { core_->put_back(std::move(pipe)); }
std::string Listener::address() const { return core_->address(); }
void Listener::close() { core_->close(); }

}  // namespace tendon::v0
