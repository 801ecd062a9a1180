// SPDX-License-Identifier: Apache-2.0
#include "fabric/calls/caller.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"
#include "fabric/ways/announced_dial.hpp"
#include "runtime/reach.hpp"
#include "tensor/on_cpu.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "node.call";

// Distinguishes the targets of one node from those of others that share its Context.
std::atomic<std::uint64_t> next_caller{1};

std::string target_of(const std::string& prefix, const PublisherId& responder) {
  return prefix + responder.context.to_string() + ' ' + std::to_string(responder.entity);
}

PublisherId id_of(const EntityAnnouncement& responder) {
  return {responder.context, responder.entity};
}

std::uint64_t left_ns_of(Deadline deadline) {
  if (deadline.is_never()) return CallWord::kNever;
  return static_cast<std::uint64_t>(deadline.remaining().count());
}

std::string text_of(const std::vector<Unanswered>& unanswered) {
  std::string text;
  for (const Unanswered& one : unanswered)
    text += (text.empty() ? "" : "; ") + one.node + ": " + one.error.detail;
  return text;
}

}  // namespace

Caller::Caller(std::shared_ptr<Entities> entities, std::shared_ptr<Dialler> dialler)
    : entities_(std::move(entities)),
      dialler_(std::move(dialler)),
      prefix_("call " + std::to_string(next_caller.fetch_add(1)) + ' ') {}

Result<void> Caller::usable(const std::stop_token& stop) const {
  TENDON_CHECK(context()->usable(kWhere));
  if (stop.stop_requested())
    return Error{ErrorCode::cancelled, kWhere, "the caller gave the call up"};
  const Lock lock(mutex_);
  if (!closed_) return {};
  return Error{ErrorCode::pipe_closed, kWhere, "the node was closed"};
}

// Calling

Result<Reply> Caller::call(const std::shared_ptr<NodePort>& node, const Question& question) {
  TENDON_TRY(came, ask(node, question, Until::first_answer));
  if (!came.replies.empty()) return std::move(came.replies.front());
  const auto waited = std::ranges::find_if(
      came.unanswered, [](const Unanswered& one) { return one.error.code == ErrorCode::timeout; });
  const auto& first = waited != came.unanswered.end() ? *waited : came.unanswered.front();
  return Error{first.error.code, kWhere,
               "no answer of " + question.key.text() + ": " + text_of(came.unanswered)};
}

Result<CallAllReplies> Caller::call_all(const std::shared_ptr<NodePort>& node,
                                        const Question& question) {
  return ask(node, question, Until::all_answers);
}

namespace {

/// While it lives, discovery reports the responders of a key.
class Followed {
 public:
  Followed(NodePort& node, const KeyExpression& key) : node_(node), key_(key) {}
  Followed(const Followed&) = delete;
  Followed& operator=(const Followed&) = delete;
  ~Followed() { node_.end_call(key_); }

 private:
  NodePort& node_;
  const KeyExpression& key_;
};

}  // namespace

/// Cancels unanswered requests, whatever way a call ends.
class Caller::Finisher {
 public:
  Finisher(Caller& caller, OpenCall& call) : caller_(caller), call_(call) {}
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;
  ~Finisher() { caller_.finish(call_); }

 private:
  Caller& caller_;
  OpenCall& call_;
};

Result<CallAllReplies> Caller::ask(const std::shared_ptr<NodePort>& node, const Question& question,
                                   Until until) {
  TENDON_CHECK(check_on_cpu(question.request, kWhere));
  const std::stop_callback wake(question.stop, [this] { context()->wake_others(); });
  TENDON_CHECK(node->begin_call(question.key));
  const Followed followed(*node, question.key);
  TENDON_CHECK(wait_for_responder(*node, question));
  TENDON_TRY(call, open(question));
  const Finisher finisher(*this, *call);
  CallAllReplies came;
  for (;;) {
    const std::uint64_t version = node->discovery_version();
    ask_responders(node, *call, responders_of(*node, question.key));
    const bool in_time = wait_for_more(*node, question, *call, version);
    take_arrived(*node, *call, came);
    const bool enough = until == Until::first_answer && !came.replies.empty();
    if (enough) break;
    TENDON_CHECK(usable(question.stop));  // which is why the rest failed
    if (is_settled(*call) || !in_time) break;
  }
  came.unanswered = unanswered(*node, *call);
  if (came.replies.empty() && came.unanswered.empty()) return nobody(*node, question);
  return came;
}

Error Caller::nobody(const NodePort& node, const Question& question) {
  return Error{ErrorCode::unreachable, kWhere,
               "no responder of " + question.key.text() + " was announced in domain " +
                   node.domain() +
                   " before the deadline: start its node, and see that this one finds it" +
                   node.but_no_router()};
}

Result<void> Caller::wait_for_responder(const NodePort& node, const Question& question) {
  bool known = false;
  (void)context()->wait(nullptr, question.deadline, [&] {
    known = !responders_of(node, question.key).empty();
    return known || !usable(question.stop);
  });
  TENDON_CHECK(usable(question.stop));
  if (known) return {};
  return nobody(node, question);
}

std::vector<EntityAnnouncement> Caller::responders_of(const NodePort& node,
                                                      const KeyExpression& key) const {
  auto responders = node.responders_of(key);
  const Lock lock(mutex_);
  for (const auto& [id, connection] : connections_) {
    const bool is_announced =
        std::ranges::any_of(responders, [&](const auto& known) { return id_of(known) == id; });
    if (!is_announced && connection.responder.topic == key)
      responders.push_back(connection.responder);
  }
  return responders;
}

Result<Caller::Call> Caller::open(const Question& question) {
  auto message = std::make_shared<KeptBody>();
  const auto acquire = [this](std::uint64_t bytes) -> Result<std::shared_ptr<const PublishedSlot>> {
    TENDON_TRY(slot, context()->publishing().acquire(bytes));
    return std::shared_ptr<const PublishedSlot>(std::move(slot));
  };
  TENDON_CHECK(message->pack(question.request, sizeof(CallWord), acquire));
  auto call = std::make_shared<OpenCall>();
  const Lock lock(mutex_);
  ++stats_.calls;
  call->word = {.id = ++last_id_, .left_ns = left_ns_of(question.deadline)};
  std::memcpy(message->header_room().data(), &call->word, sizeof(CallWord));
  call->request = std::move(message);
  calls_[call->word.id] = call;
  return call;
}

void Caller::ask_responders(const std::shared_ptr<NodePort>& node, OpenCall& call,
                            const std::vector<EntityAnnouncement>& responders) {
  std::vector<std::shared_ptr<CallChannel>> to_send;
  std::vector<const EntityAnnouncement*> to_dial;
  {
    const Lock lock(mutex_);
    // A responder that was not reached before its announcement was withdrawn was not asked either.
    std::erase_if(call.parts, [&](const Part& part) {
      return part.state == Part::State::dialling &&
             std::ranges::none_of(responders, [&](const EntityAnnouncement& responder) {
               return id_of(responder) == part.responder;
             });
    });
    for (const EntityAnnouncement& responder : responders) {
      const ResponderId id = id_of(responder);
      const bool is_known =
          std::ranges::any_of(call.parts, [&](const Part& part) { return part.responder == id; });
      if (is_known) continue;
      const auto connection = connections_.find(id);
      // A responder for which another call waits is dialled already.
      if (connection == connections_.end() && !is_wanted(id)) to_dial.push_back(&responder);
      Part& part = call.parts.emplace_back(Part{.responder = id});
      if (connection == connections_.end()) continue;
      part.state = Part::State::asked;
      part.node = connection->second.node;
      part.channel = connection->second.channel;
      to_send.push_back(part.channel);
    }
  }
  for (const auto& channel : to_send) send(channel, call);
  for (const EntityAnnouncement* responder : to_dial) dial(node, *responder);
}

bool Caller::wait_for_more(const NodePort& node, const Question& question, OpenCall& call,
                           std::uint64_t version) {
  std::vector<std::shared_ptr<CallChannel>> channels;
  std::vector<Link*> links;
  {
    const Lock lock(mutex_);
    for (const Part& part : call.parts)
      if (part.state == Part::State::asked) channels.push_back(part.channel);
  }
  for (const auto& channel : channels)
    if (std::ranges::find(links, &channel->link()) == links.end())
      links.push_back(&channel->link());
  return context()->wait(WaitedLinks(links), question.deadline, [&] {
    if (context()->unusable() || question.stop.stop_requested()) return true;
    for (Link* link : links) context()->poll_link(*link);
    if (node.discovery_version() != version) return true;
    const Lock lock(mutex_);
    return call.moved || closed_;
  });
}

void Caller::take_arrived(const NodePort& node, OpenCall& call, CallAllReplies& replies) {
  struct Arrived {
    std::size_t part;
    std::shared_ptr<CallChannel> channel;
    CallChannel::Received received;
  };
  std::vector<Arrived> arrived;
  {
    const Lock lock(mutex_);
    call.moved = false;
    for (std::size_t i = 0; i < call.parts.size(); ++i) {
      Part& part = call.parts[i];
      if (part.state != Part::State::arrived) continue;
      part.state = Part::State::done;
      arrived.push_back({i, part.channel, *std::exchange(part.received, std::nullopt)});
    }
  }
  const auto read = [](CallChannel& channel, CallChannel::Received received) -> Result<TensorDict> {
    const CallWord word = received.word;
    if (word.kind == CallWordKind::answer) return channel.take(std::move(received));
    std::string text = channel.take_text(std::move(received));
    if (word.kind == CallWordKind::cancelled)
      return Error{ErrorCode::unreachable, kWhere, "it ended before it answered"};
    return Error{code_from_peer(word.code, PeerSays::pipe).value_or(ErrorCode::handler_failed),
                 kWhere, std::move(text)};
  };
  for (Arrived& one : arrived) {
    auto answer = read(*one.channel, std::move(one.received));
    const Lock lock(mutex_);
    Part& part = call.parts[one.part];
    if (answer) {
      ++stats_.answers;
      replies.replies.push_back({name_of(node, part), *std::move(answer)});
    } else {
      part.state = Part::State::failed;
      part.error = std::move(answer).error();
    }
  }
}

std::string Caller::name_of(const NodePort& node, const Part& part) {
  return part.node.empty() ? node.name_of_peer(part.responder.context).text : part.node;
}

bool Caller::is_settled(const OpenCall& call) const {
  const Lock lock(mutex_);
  return !call.parts.empty() && std::ranges::all_of(call.parts, [](const Part& part) {
    return part.state == Part::State::done || part.state == Part::State::failed;
  });
}

std::vector<Unanswered> Caller::unanswered(const NodePort& node, const OpenCall& call) const {
  std::vector<Unanswered> all;
  const Lock lock(mutex_);
  for (const Part& part : call.parts) {
    if (part.state == Part::State::done) continue;
    Error error = part.error.value_or(Error{ErrorCode::timeout, kWhere, {}});
    if (part.state == Part::State::dialling) {
      error = Error{ErrorCode::timeout, kWhere,
                    "it is announced, and was not reached before the deadline" +
                        (part.error ? ": " + part.error->detail : std::string())};
    } else if (part.state != Part::State::failed) {
      error = Error{ErrorCode::timeout, kWhere, "it had not answered before the deadline"};
    }
    all.push_back({name_of(node, part), std::move(error)});
  }
  std::ranges::sort(all, {}, &Unanswered::node);
  return all;
}

void Caller::finish(OpenCall& call) {
  std::vector<std::shared_ptr<CallChannel>> to_cancel;
  std::vector<std::pair<std::shared_ptr<CallChannel>, CallChannel::Received>> to_drop;
  {
    const Lock lock(mutex_);
    calls_.erase(call.word.id);
    for (Part& part : call.parts) {
      if (part.state == Part::State::asked) to_cancel.push_back(part.channel);
      if (part.state != Part::State::arrived) continue;
      if (part.received->word.kind != CallWordKind::cancelled) ++stats_.late_answers;
      to_drop.emplace_back(part.channel, *std::exchange(part.received, std::nullopt));
    }
  }
  for (const auto& channel : to_cancel) channel->cancel(call.word.id);
  for (auto& [channel, received] : to_drop) channel->drop(std::move(received));
}

// Connecting

void Caller::dial(const std::shared_ptr<NodePort>& node, const EntityAnnouncement& responder) {
  const std::string target = target_of(prefix_, id_of(responder));
  dialler_->drop(target);  // that of an earlier channel
  const auto addresses = node->addresses_of(responder.context);
  auto wanted = wanted_at(target, responder.context, addresses.value_or(std::vector<std::string>()),
                          [weak = weak_from_this(), weak_node = std::weak_ptr(node),
                           responder](const Dialler::Dial& dial) {
                            const auto self = weak.lock();
                            const auto known = weak_node.lock();
                            if (self == nullptr || known == nullptr) return Dialler::Outcome::done;
                            return self->connect(*known, responder, dial);
                          });
  wanted.haste = Dialler::Haste::called;
  dialler_->want(std::move(wanted));
}

// Runs on a thread of the Dialler.
Dialler::Outcome Caller::connect(const NodePort& node, const EntityAnnouncement& responder,
                                 const Dialler::Dial& dial) {
  using Outcome = Dialler::Outcome;
  const ResponderId id = id_of(responder);
  {
    const Lock lock(mutex_);
    // The calls that waited for it have ended.
    if (closed_ || !is_wanted(id)) return Outcome::done;
  }
  const auto addresses = node.addresses_of(responder.context);
  if (!addresses) {
    note_unreached(id, Error{ErrorCode::unreachable, kWhere, "its node is not announced"});
    return Outcome::unreached;
  }
  const auto link = node.reach(responder.context, *addresses, dial).link;
  if (!link) {
    note_unreached(id, link.error());
    return context()->unusable() ? Outcome::done : Outcome::unreached;
  }
  const auto channel = open_channel(responder, *link);
  if (!channel) {
    note_unreached(id, channel.error());
    return context()->unusable() ? Outcome::done : Outcome::again;
  }
  use({responder, node.name_of_peer(responder.context).text, *channel});
  return Outcome::done;
}

Result<std::shared_ptr<CallChannel>> Caller::open_channel(const EntityAnnouncement& responder,
                                                          const std::shared_ptr<Link>& link) {
  const CallOpening said{.entity = responder.entity};
  const Window answers = Window::said(kMaxOpenCalls, kPipeWindowBytes);
  const Opening opening{.purpose = Purpose::call,
                        .header = std::as_bytes(std::span(&said, 1)),
                        .window_messages = answers.messages,
                        .window_bytes = answers.bytes};
  std::shared_ptr<CallChannel> channel;
  TENDON_CHECK(context()->open_pipe(*link, opening, [&](std::uint32_t pipe) {
    channel = CallChannel::create(entities_, link, pipe, CallChannel::Role::caller, answers,
                                  weak_from_this());
    return channel->sink();
  }));
  return channel;
}

bool Caller::is_wanted(const ResponderId& responder) const {
  return std::ranges::any_of(calls_, [&](const auto& entry) {
    return std::ranges::any_of(entry.second->parts, [&](const Part& part) {
      return part.responder == responder && part.state == Part::State::dialling;
    });
  });
}

void Caller::note_unreached(const ResponderId& responder, const Error& why) {
  context()->log(LogLevel::info, kWhere,
                 "a responder is announced and not reached: " + why.message());
  const Lock lock(mutex_);
  for (const auto& [number, call] : calls_)
    for (Part& part : call->parts)
      if (part.responder == responder && part.state == Part::State::dialling) part.error = why;
}

void Caller::use(const Connection& connection) {
  const ResponderId responder = id_of(connection.responder);
  const auto& channel = connection.channel;
  std::vector<Call> to_send;
  bool added = false;
  {
    const Lock lock(mutex_);
    // Two attempts may both succeed, if the calls of the first have ended meanwhile.
    added = !closed_ && connections_.try_emplace(responder, connection).second;
    for (const auto& [number, call] : calls_) {
      for (Part& part : call->parts) {
        if (!added || part.responder != responder || part.state != Part::State::dialling) continue;
        part.state = Part::State::asked;
        part.node = connection.node;
        part.channel = channel;
        part.error.reset();
        call->moved = true;
        to_send.push_back(call);
      }
    }
  }
  if (!added) return channel->close();
  for (const Call& call : to_send) send(channel, *call);
  if (channel->is_over()) forget(*channel);  // since before it was here
  context()->wake_others();                  // a waiting thread reads from this link, too
}

void Caller::send(const std::shared_ptr<CallChannel>& channel, const OpenCall& call) {
  if (channel->send(call.request, call.word)) return;
  // It was over before the call was one of its parts, which heard nothing of that.
  fail_parts(*channel, Error{ErrorCode::unreachable, kWhere,
                             channel->link().peer_name() + " ended its calls"});
}

// Events of channels

void Caller::on_received(CallChannel& channel, CallChannel::Received&& received) {
  channel.receive_mutex().assert_held();
  {
    const Lock lock(mutex_);
    const auto found = calls_.find(received.word.id);
    if (found != calls_.end()) {
      for (Part& part : found->second->parts) {
        if (part.channel.get() != &channel || part.state != Part::State::asked) continue;
        part.state = Part::State::arrived;
        part.received = std::move(received);
        found->second->moved = true;
        return;
      }
    }
    if (received.word.kind != CallWordKind::cancelled) ++stats_.late_answers;
  }
  channel.drop_here(std::move(received));
}

void Caller::on_unsent(CallChannel& channel, const CallWord& word, const Error& why) {
  {
    const Lock lock(mutex_);
    const auto found = calls_.find(word.id);
    if (found == calls_.end()) return;
    for (Part& part : found->second->parts) {
      if (part.channel.get() != &channel || part.state != Part::State::asked) continue;
      part.state = Part::State::failed;
      part.error = why;
      found->second->moved = true;
    }
  }
  context()->schedule([context = context()] { context->wake_others(); });
}

void Caller::on_over(CallChannel& channel, const Error& why) {
  fail_parts(channel, why);
  {
    const Lock lock(mutex_);
    leaving_.push_back(channel.shared_from_this());
  }
  forget(channel);
  // After the receive lock: a sink does not detach itself inside an event.
  context()->schedule(
      [weak = weak_from_this(), context = context(), known = channel.shared_from_this()] {
        known->close();
        if (const auto self = weak.lock()) {
          const Lock lock(self->mutex_);
          std::erase(self->leaving_, known);
        }
        context->wake_others();
      });
}

void Caller::forget(const CallChannel& channel) {
  const Lock lock(mutex_);
  std::erase_if(connections_,
                [&](const auto& entry) { return entry.second.channel.get() == &channel; });
}

void Caller::fail_parts(const CallChannel& channel, const Error& why) {
  const Lock lock(mutex_);
  for (const auto& [number, call] : calls_) {
    for (Part& part : call->parts) {
      if (part.channel.get() != &channel || part.state != Part::State::asked) continue;
      part.state = Part::State::failed;
      part.error = why;
      call->moved = true;
    }
  }
}

// Its end

CallStats Caller::stats() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return stats_;
}

void Caller::close() {
  std::vector<std::shared_ptr<CallChannel>> channels;
  {
    const Lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (const auto& [responder, connection] : connections_) channels.push_back(connection.channel);
    connections_.clear();
    // None of them calls this caller when its last share is dropped.
    channels.insert(channels.end(), leaving_.begin(), leaving_.end());
  }
  dialler_->drop_all(prefix_);
  for (const auto& channel : channels) channel->close();
  context()->wake_others();
}

}  // namespace tendon::v0::detail
