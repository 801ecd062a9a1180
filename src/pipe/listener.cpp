// SPDX-License-Identifier: Apache-2.0
#include <tendon/pipe/listener.hpp>
#include <tendon/session/limits.hpp>

#include "pipe/listener_core.hpp"

namespace tendon::v0 {
namespace detail {
namespace {

Error never_accepted() {
  return Error{ErrorCode::unreachable, "listener",
               "the listener was closed before the pipe was accepted"};
}

}  // namespace

class ListenerCore::AcceptCompletion final : public CompletionState<Pipe> {
 public:
  explicit AcceptCompletion(std::shared_ptr<ListenerCore> core) : core_(std::move(core)) {}
  void drive(Deadline deadline) override {
    core_->engine_->wait(nullptr, deadline,
                         [this] { return finished() || core_->engine_->unusable(); });
  }
  void cancel() override { core_->cancel_accept(this); }
  void abandon() override {
    if (core_->engine_->forked()) return;
    if (!finished()) core_->cancel_accept(this);
    hand_back();
  }
  void left_over(Result<Pipe> pipe) override {
    if (pipe) core_->put_back(*std::move(pipe));
  }
  void schedule(std::function<void()> run) override { core_->engine_->schedule(std::move(run)); }

 private:
  std::shared_ptr<ListenerCore> core_;
};

Result<std::shared_ptr<ListenerCore>> ListenerCore::bind(const std::shared_ptr<Engine>& engine,
                                                         std::string_view address,
                                                         Profile profile) {
  auto core = std::make_shared<ListenerCore>(engine);
  TENDON_TRY(acceptor, Acceptor::bind(engine, address, profile, core));
  core->acceptor_ = std::move(acceptor);
  engine->add_handler(core);
  return core;
}

Error ListenerCore::closed_error() const {
  if (auto usable = engine_->usable("listener.accept"); !usable) return std::move(usable).error();
  return Error{ErrorCode::context_closed, "listener.accept",
               "the listener on " + acceptor_->address() + " was closed"};
}

Result<Pipe> ListenerCore::accept(Deadline deadline) {
  TENDON_CHECK(engine_->usable("listener.accept"));
  std::shared_ptr<PipeCore> taken;
  bool over = false;
  const bool done = engine_->wait(nullptr, deadline, [&] {
    const Lock lock(mutex_);
    over = closed_ || engine_->unusable();
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
  if (engine_->forked()) {
    (void)completion->finish(closed_error());
    return Completion<Pipe>(std::move(completion));
  }
  const Lock lock(mutex_);
  if (closed_ || engine_->unusable()) {
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
  // Each link has a window of its own, so peers that send, leave and come again would fill one
  // window after another.
  std::uint64_t left_bytes = 0;
  for (const auto& core : backlog_)
    if (core->link().ended()) left_bytes += core->waiting_bytes();
  if (left_bytes < engine_->options().link_cap_bytes) return {};
  return Error{ErrorCode::server_busy, "listener",
               "its backlog holds " + std::to_string(left_bytes) +
                   " bytes of peers that have left, which nobody accepted; the limit is " +
                   std::to_string(engine_->options().link_cap_bytes)};
}

Result<void> ListenerCore::may_open() {
  const Lock lock(mutex_);
  return has_room();
}

Result<std::shared_ptr<MessageSink>> ListenerCore::on_open(std::shared_ptr<Link> link,
                                                           std::uint32_t pipe) {
  link->receive_mutex().assert_held();
  auto core = std::make_shared<PipeCore>(engine_, std::move(link), pipe);
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
  return std::shared_ptr<MessageSink>(std::move(core));
}

// Nobody knows of these pipes yet, so nobody misses them; what they hold would stay for as long as
// nobody accepts. A pipe that its peer closed in order is kept: its messages were acknowledged.
void ListenerCore::on_link_lost(const Link& link) {
  const Lock lock(mutex_);
  std::erase_if(backlog_,
                [&](const auto& core) { return &core->link() == &link && !core->ended_by_peer(); });
}

void ListenerCore::hand_over(AcceptCompletion& completion, std::shared_ptr<PipeCore> core) {
  if (auto run = completion.finish(PipeCore::make_pipe(std::move(core))))
    engine_->schedule(std::move(run));
  engine_->note_completed();
}

void ListenerCore::cancel_accept(const AcceptCompletion* completion) {
  if (engine_->forked()) return;
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
  auto run =
      found->finish(Error{ErrorCode::cancelled, "completion.cancel", "the accept was cancelled"});
  if (run) engine_->schedule(std::move(run));
}

// A completion that is dropped while on_open() fills it gets here under the link's receive lock,
// which the end of a pipe takes as well: no pipe may end in here.
void ListenerCore::put_back(Pipe pipe) {
  auto core = PipeCore::take_core(std::move(pipe));
  std::shared_ptr<AcceptCompletion> next;
  {
    const Lock lock(mutex_);
    if (!closed_ && waiting_.empty()) {
      backlog_.push_front(std::move(core));
    } else if (!closed_) {
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
  if (core == nullptr) return engine_->wake_others();  // an accept() may wait for it
  if (next != nullptr) return hand_over(*next, std::move(core));
  if (engine_->unusable()) return;
  engine_->schedule([core = std::move(core)] { core->cancel(never_accepted()); });
}

void ListenerCore::close() {
  if (engine_->forked()) return;
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
  for (const auto& completion : waiting)
    if (auto run = completion->finish(closed_error())) engine_->schedule(std::move(run));
  if (!engine_->unusable()) engine_->wake_others();
}

}  // namespace detail

Listener::Listener(std::shared_ptr<detail::ListenerCore> core) : core_(std::move(core)) {}
Listener::Listener(Listener&&) noexcept = default;

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    if (core_ != nullptr) core_->close();
    core_ = std::move(other.core_);
  }
  return *this;
}

Listener::~Listener() {
  if (core_ != nullptr) core_->close();
}

Result<Listener> Listener::bind(Context& context, std::string_view address, ListenOptions options) {
  TENDON_TRY(core,
             detail::ListenerCore::bind(detail::Engine::of(context), address, options.profile));
  return Listener(std::move(core));
}

Result<Pipe> Listener::accept(Deadline deadline) { return core_->accept(deadline); }
Completion<Pipe> Listener::accept_async() { return core_->accept_async(); }
std::string Listener::address() const { return core_->address(); }
void Listener::close() { core_->close(); }

}  // namespace tendon::v0
