// SPDX-License-Identifier: Apache-2.0
#include "fabric/calls/responder_core.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "channel/open.hpp"
#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "tensor/on_cpu.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "responder.answer";

Deadline deadline_of(const CallWord& word) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (word.left_ns > kMost) return Deadline::never();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(word.left_ns));
}

Result<void> check(const ResponderOptions& options) {
  const auto refuse = [](std::string_view name, std::uint32_t value, std::uint32_t least,
                         std::uint32_t most) {
    return Error{ErrorCode::invalid_argument, "responder.declare",
                 "ResponderOptions::" + std::string(name) + " is " + std::to_string(value) +
                     "; legal are " + std::to_string(least) + " to " + std::to_string(most)};
  };
  if (options.handlers < 1 || options.handlers > kMaxHandlers)
    return refuse("handlers", options.handlers, 1, kMaxHandlers);
  if (options.waiting > kMaxWaitingRequests)
    return refuse("waiting", options.waiting, 0, kMaxWaitingRequests);
  return {};
}

}  // namespace

thread_local const ResponderCore* ResponderCore::serves_ = nullptr;
thread_local const ResponderCore::Job* ResponderCore::answers_ = nullptr;

Result<std::shared_ptr<ResponderCore>> ResponderCore::create(std::shared_ptr<NodePort> node,
                                                             KeyExpression key,
                                                             Responder::Handler handler,
                                                             const ResponderOptions& options) {
  TENDON_CHECK(check(options));
  if (!handler)
    return Error{ErrorCode::invalid_argument, "responder.declare", "the handler is empty"};
  auto core =
      std::make_shared<ResponderCore>(std::move(node), std::move(key), std::move(handler), options);
  core->entities_->add(Purpose::call, core->entity_, core);
  if (auto added = core->node_->announce(core->announcement(), "responder.declare"); !added) {
    core->entities_->remove(core->entity_);
    return std::move(added).error();
  }
  return core;
}

ResponderCore::ResponderCore(std::shared_ptr<NodePort> node, KeyExpression key,
                             Responder::Handler handler, const ResponderOptions& options)
    : node_(std::move(node)),
      entities_(node_->entities()),
      context_(*entities_->context()),
      key_(std::move(key)),
      handler_(std::move(handler)),
      options_(options),
      entity_(entities_->next_number()) {}

EntityAnnouncement ResponderCore::announcement() const {
  return {.domain = {},
          .kind = EntityKind::responder,
          .context = {},
          .entity = entity_,
          .schema = {},
          .qos = {},
          .topic = key_};
}

Result<std::shared_ptr<MessageSink>> ResponderCore::on_open(const std::shared_ptr<Link>& link,
                                                            const Descriptor& open, Bytes) {
  TENDON_TRY(answers, window_of(open));
  const Lock lock(mutex_);
  if (state_ != State::open) {
    return Error{ErrorCode::unreachable, "responder.open",
                 "the responder of " + key_.text() + " was closed"};
  }
  channels_.push_back(CallChannel::create(entities_, link, open.pipe, CallChannel::Role::responder,
                                          answers, weak_from_this()));
  return channels_.back()->sink();
}

// Words of callers

void ResponderCore::on_received(CallChannel& channel, CallChannel::Received&& received) {
  channel.receive_mutex().assert_held();
  const std::uint64_t id = received.word.id;
  const Deadline deadline = deadline_of(received.word);
  auto job = std::make_shared<Job>(
      Job{channel.shared_from_this(), std::move(received), deadline, std::stop_source()});
  switch (admit(job)) {
    case Admitted::yes:
      return came_.notify_one();
    case Admitted::full:
      channel.drop_here(std::move(job->received));
      return refuse(
          channel, id,
          Error{ErrorCode::server_busy, kWhere,
                std::to_string(options_.handlers) + " handlers of " + key_.text() + " run, and " +
                    std::to_string(options_.waiting) + " requests wait for them"});
    case Admitted::caller_has_its_share:
      channel.drop_here(std::move(job->received));
      return refuse(channel, id,
                    Error{ErrorCode::server_busy, kWhere,
                          "one caller has at most " + std::to_string(places_of_caller()) +
                              " requests with the responder of " + key_.text() +
                              ", half of its handlers + waiting"});
    case Admitted::no_thread:
      channel.drop_here(std::move(job->received));
      return refuse(channel, id,
                    Error{ErrorCode::server_busy, kWhere,
                          "the process of the responder of " + key_.text() +
                              " can start no thread for a handler"});
    case Admitted::closed:
      channel.drop_here(std::move(job->received));
      return refuse(channel, id, was_closed());
  }
}

Error ResponderCore::was_closed() const {
  return {ErrorCode::unreachable, kWhere, "the responder of " + key_.text() + " was closed"};
}

std::size_t ResponderCore::places_of_caller() const {
  return std::max<std::size_t>(1, (std::size_t{options_.handlers} + options_.waiting) / 2);
}

ResponderCore::Admitted ResponderCore::admit(const std::shared_ptr<Job>& job) {
  const Link* const caller = &job->channel->link();
  const auto is_its = [&](const auto& known) { return &known->channel->link() == caller; };
  const Lock lock(mutex_);
  const std::size_t places = std::size_t{options_.handlers} + options_.waiting;
  auto admitted = state_ == State::open ? Admitted::full : Admitted::closed;
  if (state_ == State::open && running_.size() + waiting_.size() < places) {
    const auto count =
        std::ranges::count_if(running_, is_its) + std::ranges::count_if(waiting_, is_its);
    if (static_cast<std::size_t>(count) < places_of_caller()) {
      waiting_.push_back(job);
      if (has_thread()) return Admitted::yes;
      waiting_.pop_back();
      admitted = Admitted::no_thread;
    } else {
      admitted = Admitted::caller_has_its_share;
    }
  }
  ++stats_.refused;
  return admitted;
}

// True if there is a thread for the waiting requests.
bool ResponderCore::has_thread() {
  if (idle_count_ >= waiting_.size() || threads_.size() >= options_.handlers) return true;
  auto started = Thread::start({.name = "tendon-answer", .where = kWhere, .task = "for a handler"},
                               [self = shared_from_this()] { self->work(); });
  if (started)
    threads_.push_back(*std::move(started));
  else  // the next request tries again; until then the existing threads do the work
    context_.log(LogLevel::warn, kWhere, started.error().detail);
  return !threads_.empty();
}

void ResponderCore::on_cancelled(CallChannel& channel, std::uint64_t id) {
  channel.receive_mutex().assert_held();
  const auto is_meant = [&](const Job& job) {
    return job.channel.get() == &channel && job.received.word.id == id;
  };
  const Jobs jobs = take_waiting(is_meant);
  for (const auto& job : jobs) channel.drop_here(std::move(job->received));
  if (!jobs.empty()) return send_cancelled(channel, id);
  std::vector<std::stop_source> stops;
  {
    const Lock lock(mutex_);
    for (const auto& job : running_)
      if (is_meant(*job)) stops.push_back(job->stop);
  }
  stop_soon(std::move(stops));
}

void ResponderCore::on_over(CallChannel& channel, const Error&) {
  channel.receive_mutex().assert_held();
  const auto is_its = [&](const Job& job) { return job.channel.get() == &channel; };
  const Jobs jobs = take_waiting(is_its);
  for (const auto& job : jobs) channel.drop_here(std::move(job->received));
  std::vector<std::stop_source> stops;
  {
    const Lock lock(mutex_);
    stats_.cancelled += jobs.size();
    for (const auto& job : running_)
      if (is_its(*job)) stops.push_back(job->stop);
  }
  stop_soon(std::move(stops));
  // After the receive lock: a sink does not detach itself inside an event.
  context_.schedule([self = shared_from_this(), known = channel.shared_from_this()] {
    known->close();
    const Lock lock(self->mutex_);
    std::erase(self->channels_, known);
  });
}

// Not here: callbacks of a stop belong to the program, and may take locks.
void ResponderCore::stop_soon(std::vector<std::stop_source> stops) {
  if (stops.empty()) return;
  context_.schedule([stops = std::move(stops)]() mutable {
    for (std::stop_source& stop : stops) stop.request_stop();
  });
}

template <class F>
ResponderCore::Jobs ResponderCore::take_waiting(F is_meant) {
  Jobs taken;
  const Lock lock(mutex_);
  std::erase_if(waiting_, [&](const auto& job) {
    if (!is_meant(*job)) return false;
    taken.push_back(job);
    return true;
  });
  if (!taken.empty()) done_.notify_all();
  return taken;
}

// Answering

void ResponderCore::work() {
  serves_ = this;
  while (const std::shared_ptr<Job> job = next_job()) {
    answers_ = job.get();
    answer(*job);
    answers_ = nullptr;
    const Lock lock(mutex_);
    std::erase(running_, job);
    done_.notify_all();
  }
  leave();
}

// After a hand-over the work belongs to the last thread: the others do nothing more, and end.
void ResponderCore::leave() {
  std::vector<Thread> threads;
  {
    const Lock lock(mutex_);
    ++left_count_;
    if (state_ != State::handed_over || left_count_ != threads_.size()) return;
    threads.swap(threads_);
  }
  for (Thread& thread : threads) thread.join();
  close_channels(context_.options().linger);
}

// Empty at the end. The caller drops it without the lock: a job may hold the last reference to a
// link, whose own lock is taken first.
std::shared_ptr<ResponderCore::Job> ResponderCore::next_job() {
  const Lock lock(mutex_);
  while (waiting_.empty() && state_ <= State::closed) {
    ++idle_count_;
    came_.wait(mutex_);
    --idle_count_;
  }
  if (waiting_.empty()) return nullptr;
  running_.push_back(waiting_.front());
  waiting_.pop_front();
  return running_.back();
}

void ResponderCore::answer(Job& job) {
  CallChannel& channel = *job.channel;
  const std::uint64_t id = job.received.word.id;
  if (job.stop.stop_requested() || job.deadline.has_passed()) {
    channel.drop(std::move(job.received));
    return send_cancelled(channel, id);
  }
  auto tensors = channel.take(std::move(job.received));
  if (!tensors) return refuse(channel, id, tensors.error());
  auto answer = run(
      Request(*std::move(tensors), channel.link().peer_name(), job.deadline, job.stop.get_token()));
  if (job.stop.stop_requested()) return send_cancelled(channel, id);
  if (!answer) return refuse(channel, id, answer.error());
  send(channel, id, *answer);
}

Result<TensorDict> ResponderCore::run(const Request& request) const {
  const auto failed = [this](std::string_view what) {
    context_.log(LogLevel::error, "responder.handler", what);
    return Error{ErrorCode::handler_failed, "responder.handler", std::string(what)};
  };
  try {
    return handler_(request);
  } catch (const std::exception& failure) {
    return failed(failure.what());
  } catch (...) {
    return failed("an exception that is no std::exception");
  }
}

void ResponderCore::send(CallChannel& channel, std::uint64_t id, const TensorDict& answer) {
  const CallWord word{.id = id, .kind = CallWordKind::answer};
  if (auto movable = check_on_cpu(answer, kWhere); !movable)
    return refuse(channel, id, movable.error());
  const std::uint64_t size = answer.schema()->layout(Layout::aligned).total_bytes;
  if (size > kMaxInlineBytes && !channel.has_room(size)) {
    return refuse(channel, id,
                  Error{ErrorCode::resource_exhausted, kWhere,
                        "answers that the caller has not taken fill its part of publish_bytes"});
  }
  auto message = std::make_shared<KeptBody>();
  const auto acquire = [this](std::uint64_t bytes) -> Result<std::shared_ptr<const PublishedSlot>> {
    TENDON_TRY(slot, context_.publishing().acquire(bytes));
    return std::shared_ptr<const PublishedSlot>(std::move(slot));
  };
  if (auto packed = message->pack(answer, sizeof word, acquire); !packed)
    return refuse(channel, id, packed.error());
  std::memcpy(message->header_room().data(), &word, sizeof word);
  {
    const Lock lock(mutex_);
    ++stats_.answered;
  }
  (void)channel.send(std::move(message), word);  // an end is no news: on_over()
}

// A code that a peer may not say would tell the caller what to do about something else.
void ResponderCore::refuse(CallChannel& channel, std::uint64_t id, const Error& why) {
  const bool is_legal =
      code_from_peer(static_cast<std::uint32_t>(why.code), PeerSays::pipe).has_value();
  const ErrorCode code = is_legal ? why.code : ErrorCode::handler_failed;
  const std::string text =
      is_legal ? why.detail : std::string(to_string(why.code)) + ": " + why.detail;
  if (code != ErrorCode::server_busy) {
    const Lock lock(mutex_);
    ++stats_.failed;
  }
  (void)channel.send(
      {.id = id, .kind = CallWordKind::error, .code = static_cast<std::uint32_t>(code)},
      escaped(text, kMaxReasonBytes));
}

void ResponderCore::send_cancelled(CallChannel& channel, std::uint64_t id) {
  {
    const Lock lock(mutex_);
    ++stats_.cancelled;
  }
  (void)channel.send({.id = id, .kind = CallWordKind::cancelled}, {});
}

void ResponderCore::on_unsent(CallChannel& channel, const CallWord& word, const Error& why) {
  if (word.kind != CallWordKind::answer) return;  // its caller waits until its deadline
  {
    const Lock lock(mutex_);
    --stats_.answered;
  }
  refuse(channel, word.id, why);
}

// Its end

ResponderStats ResponderCore::stats() const {
  if (context_.forked()) return {};
  const Lock lock(mutex_);
  ResponderStats stats = stats_;
  stats.waiting = waiting_.size();
  stats.running = running_.size();
  return stats;
}

void ResponderCore::stop_taking_requests() {
  {
    const Lock lock(mutex_);
    if (state_ != State::open) return;
    state_ = State::closed;
  }
  node_->withdraw(announcement());
  entities_->remove(entity_);
}

// Refuses waiting requests, and stops running handlers, except for this very one.
void ResponderCore::stop_all() {
  for (const auto& job : take_waiting([](const Job&) { return true; })) {
    job->channel->drop(std::move(job->received));
    refuse(*job->channel, job->received.word.id, was_closed());
  }
  Jobs running;
  {
    const Lock lock(mutex_);
    running = running_;
  }
  for (const auto& job : running)
    if (job.get() != answers_) job->stop.request_stop();
}

void ResponderCore::close_channels(Deadline deadline) {
  std::vector<std::shared_ptr<CallChannel>> channels;
  {
    const Lock lock(mutex_);
    channels = channels_;
  }
  (void)context_.wait(nullptr, deadline, [&] {
    return context_.unusable() ||
           std::ranges::all_of(channels, [](const auto& channel) { return channel->is_idle(); });
  });
  for (const auto& channel : channels) channel->close();
  const Lock lock(mutex_);
  std::erase_if(channels_, [&](const auto& known) {
    return std::ranges::find(channels, known) != channels.end();
  });
}

Result<void> ResponderCore::close(Deadline deadline) {
  if (context_.forked()) return {};
  stop_taking_requests();
  // The wait for its own request would last until the deadline. Waiting ones are answered after it.
  if (is_handler()) return {};
  std::size_t left = 0;
  {
    const Lock lock(mutex_);
    while ((!waiting_.empty() || !running_.empty()) && !deadline.is_poll())
      if (!done_.wait_until(mutex_, deadline)) break;
    left = waiting_.size() + running_.size();
  }
  if (left != 0) stop_all();
  close_channels(deadline);
  TENDON_CHECK(context_.usable("responder.close"));
  if (left == 0) return {};
  return Error{ErrorCode::timeout, "responder.close",
               std::to_string(left) + " requests of " + key_.text() +
                   " had no answer before the deadline, and were cancelled"};
}

void ResponderCore::end() {
  stop_taking_requests();
  stop_all();
  std::vector<Thread> threads;
  {
    const Lock lock(mutex_);
    state_ = is_handler() ? State::handed_over : State::joining;
    if (state_ == State::joining) threads.swap(threads_);
  }
  came_.notify_all();
  if (is_handler()) return;
  for (Thread& thread : threads) thread.join();
  close_channels(context_.options().linger);
}

}  // namespace tendon::v0::detail
