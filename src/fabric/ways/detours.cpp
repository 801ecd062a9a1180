// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/detours.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <tendon/fabric/limits.hpp>
#include <utility>

#include "fabric/keys/name_chunk.hpp"
#include "runtime/strangers.hpp"
#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "fabric.detour";

// The names of ways that are not addresses, in tried lists.
constexpr std::string_view kDirect = "direct";
constexpr std::string_view kDialBack = "dial-back";
constexpr std::string_view kRouted = "routed";

// Shorter than an asker waits, so that it hears the answer.
constexpr std::chrono::milliseconds kPatienceForOthers{700};
static_assert(kPatienceForOthers < Dialler::kPatience);
// An asker hears no more of a dial that failed: the cause would reveal something about this
// network.
constexpr std::string_view kNoCause = "not done";

// Joins the halves of a key; the asker's is the first.
CableKey joined(const Nonce128& first, const Nonce128& second) {
  CableKey key;
  std::memcpy(key.data(), first.data(), first.size());
  std::memcpy(key.data() + first.size(), second.data(), second.size());
  return key;
}

// An object that counts in `count` as long as it lives.
class Counted {
 public:
  explicit Counted(std::shared_ptr<void> owner, std::atomic<std::size_t>& count)
      : owner_(std::move(owner)), count_(count) {
    count_.fetch_add(1);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { count_.fetch_sub(1); }

 private:
  const std::shared_ptr<void> owner_;  // owner of the count
  std::atomic<std::size_t>& count_;
};

// Parses the domain of "@tendon/<domain>/ask/<context>".
std::string domain_of(const std::string& key) {
  const std::size_t begin = key.find('/') + 1;
  const auto name = name_from_chunk(key.substr(begin, key.find('/', begin) - begin));
  return name ? *name : std::string();
}

}  // namespace

Result<std::shared_ptr<Detours>> Detours::create(const std::shared_ptr<ContextCore>& context,
                                                 const Security& security,
                                                 const std::weak_ptr<OpenHandler>& handler,
                                                 const std::shared_ptr<Dialler>& dialler,
                                                 std::shared_ptr<ZenohPort> port) {
  auto detours = std::make_shared<Detours>(context, security, dialler, std::move(port));
  TENDON_TRY(cables, Cables::create(detours->port_, context->id()));
  detours->cables_ = std::move(cables);
  TENDON_TRY(acceptor, Acceptor::without_socket(context, security, handler));
  detours->acceptor_ = std::move(acceptor);
  TENDON_CHECK(detours->listen());
  return detours;
}

Result<void> Detours::listen() {
  TENDON_TRY(key, answer_key(context_->id()));
  TENDON_TRY(questions, port_->answer(key, [weak = weak_from_this()](auto question) {
    if (const auto self = weak.lock()) self->on_question(std::move(question));
  }));
  questions_ = std::move(questions);
  return {};
}

// Closes the links before the cables, so that they can say goodbye.
void Detours::stop() {
  questions_.reset();
  acceptor_->close();
  const auto links = context_->links().all();
  for (const auto& link : *links) {
    if (link->path().kind != PathKind::routed) continue;
    link->close(Error{ErrorCode::peer_lost, kWhere,
                      "the routed link to " + link->peer_name() +
                          " was ended here with the nodes of this context"});
  }
  cables_->stop();
}

// Attempts of this Context

Approach Detours::reach(const PeerTarget& target, Deadline deadline) {
  Attempt attempt;
  {
    const Lock lock(mutex_);
    if (const auto begun = attempts_.find(target.context); begun != attempts_.end())
      attempt = begun->second;
  }
  for (;;) {
    auto link = go(attempt.way, target, attempt.tried, deadline);
    const bool is_last = attempt.way == Way::routed;
    if (link || context_->unusable() || is_last) {
      const Lock lock(mutex_);
      attempts_.erase(target.context);
      if (link || context_->unusable()) return {.link = std::move(link)};
      return {.link = std::move(link), .tried = std::move(attempt.tried)};
    }
    attempt.way = attempt.way == Way::direct ? Way::dialled_back : Way::routed;
    const Lock lock(mutex_);
    if (attempts_.size() >= kMostAttempts) attempts_.clear();  // this costs a round of tries
    attempts_.insert_or_assign(target.context, attempt);
    if (deadline.has_passed()) return {.link = std::move(link), .next = Approach::Next::other_way};
  }
}

std::vector<Tried> Detours::tried_so_far(const ContextId& peer) const {
  const Lock lock(mutex_);
  const auto begun = attempts_.find(peer);
  return begun == attempts_.end() ? std::vector<Tried>() : begun->second.tried;
}

Result<std::shared_ptr<Link>> Detours::go(Way way, const PeerTarget& target,
                                          std::vector<Tried>& tried, Deadline deadline) {
  if (way == Way::direct) {
    auto reached = try_to_reach(*context_, target.context, target.addresses, security_, deadline);
    tried = std::move(reached.tried);
    if (!reached.link && target.addresses.empty()) {
      tried.push_back({std::string(kDirect),
                       Error{ErrorCode::unreachable, kWhere, "it announces no address for us"}});
    }
    return std::move(reached.link);
  }
  // The peer or another attempt may have made a link meanwhile.
  if (auto link = context_->links().usable(target.context, security_.profile, ReachBy::any))
    return link;
  auto link =
      way == Way::dialled_back ? dial_back(target, deadline) : route(target, tried, deadline);
  if (!link)
    tried.push_back({std::string(way == Way::dialled_back ? kDialBack : kRouted), link.error()});
  return link;
}

Result<std::shared_ptr<Link>> Detours::dial_back(const PeerTarget& target, Deadline deadline) {
  if (target.asker.addresses.empty()) {
    return Error{ErrorCode::unreachable, kWhere,
                 "this node announces no address to dial (NodeOptions::listen)"};
  }
  TENDON_TRY(answered, ask(target, DialBackQuestion{target.asker}, deadline));
  if (!answered.answer.why_not.empty())
    return Error{ErrorCode::unreachable, kWhere, "the peer says: " + answered.answer.why_not};
  std::shared_ptr<Link> link;
  const bool came = context_->wait(nullptr, deadline, [&] {
    if (context_->unusable()) return true;
    link = context_->links().usable(target.context, security_.profile, ReachBy::any);
    return link != nullptr;
  });
  TENDON_CHECK(context_->usable(kWhere));
  if (came) return link;
  return Error{ErrorCode::timeout, kWhere, "the peer says that it dialled, and no link came"};
}

Result<std::shared_ptr<Link>> Detours::route(const PeerTarget& target,
                                             const std::vector<Tried>& tried, Deadline deadline) {
  if (target.routed == Routed::no)
    return Error{ErrorCode::unreachable, kWhere,
                 "this node takes no routed links (routed = false)"};
  if (security_.profile == Profile::local) {
    return Error{ErrorCode::permission_denied, kWhere,
                 "profile 'local' needs the proof of this user on this host, which no router can "
                 "pass on: ask for profile 'plaintext' by name"};
  }
  std::string why;
  for (const Tried& one : tried)
    why += (why.empty() ? "" : "; ") + one.address + ": " + one.error.detail;
  // Cut short: an error has little room for text, and the figures follow it.
  constexpr std::size_t kMostWhyBytes = 360;
  why = cleaned(why, kMostWhyBytes);
  const Carrier carrier{
      .name = "context " + target.context.to_string() + " through routers",
      .context = target.context,
      .open = [&](Lane lane, Deadline until) { return open_cable(target, why, lane, until); }};
  TENDON_TRY(connected, connect(*context_, carrier, security_, deadline));
  return std::move(connected.link);
}

Result<std::unique_ptr<ByteStream>> Detours::open_cable(const PeerTarget& target,
                                                        const std::string& why, Lane lane,
                                                        Deadline deadline) {
  TENDON_TRY(connection, random_nonce());
  TENDON_TRY(half, random_nonce());
  const CableQuestion question{
      .asker = context_->id(), .connection = connection, .half_key = half, .lane = lane};
  TENDON_TRY(answered, ask(target, question, deadline));
  if (!answered.answer.why_not.empty())
    return Error{ErrorCode::unreachable, kWhere, "the peer says: " + answered.answer.why_not};
  if (is_none(answered.answer.half_key))
    return Error{ErrorCode::protocol_violation, kWhere, "the peer gave no half of a key"};
  TENDON_TRY(near, cables_->lay({.domain = target.asker.domain,
                                 .peer = target.context,
                                 .connection = connection,
                                 .key = joined(half, answered.answer.half_key),
                                 .end = CableEnd::asker,
                                 .lane = lane}));
  std::ostringstream text;
  text << why << "; window " << (kCableWindowBytes >> 10) << " KiB, round trip "
       << static_cast<double>(answered.round_trip.count()) / 1000 << " ms";
  return std::unique_ptr<ByteStream>(std::make_unique<SocketStream>(
      std::move(near),
      StreamPeer{.user = std::nullopt, .kind = PathKind::routed, .why = text.str()}));
}

// Waits as a caller of the Context does, so that a Context without a thread makes progress. Anybody
// may answer: the first `done` counts, and a "no" counts only once no answer can follow.
Result<Detours::Answered> Detours::ask(const PeerTarget& target, const PeerQuestion& question,
                                       Deadline deadline) {
  struct Heard {
    Mutex mutex;
    std::optional<PeerAnswer> done TENDON_GUARDED_BY(mutex);
    std::optional<Result<PeerAnswer>> no TENDON_GUARDED_BY(mutex);  // the first one
    bool ended TENDON_GUARDED_BY(mutex) = false;
  };
  const auto heard = std::make_shared<Heard>();
  TENDON_TRY(key, ask_key(target.asker.domain, target.context));
  TENDON_TRY(payload, encode(question));
  const auto asked_at = std::chrono::steady_clock::now();
  TENDON_TRY(request, port_->query(
                          {.key = key.text(), .payload = std::move(payload), .attachment = {}},
                          std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()),
                          [heard, context = context_](const ZenohMessage& message) {
                            auto answer = read_peer_answer(message.payload.bytes());
                            {
                              const Lock lock(heard->mutex);
                              const bool is_done = answer && answer->why_not.empty();
                              if (is_done && !heard->done)
                                heard->done = *std::move(answer);
                              else if (!is_done && !heard->no)
                                heard->no = std::move(answer);
                            }
                            context->wake_others();
                          },
                          [heard, context = context_](Ending) {
                            {
                              const Lock lock(heard->mutex);
                              heard->ended = true;
                            }
                            context->wake_others();
                          }));
  (void)context_->wait(nullptr, deadline, [&] {
    const Lock lock(heard->mutex);
    return context_->unusable() || heard->done || heard->ended;
  });
  const auto round_trip = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - asked_at);
  request.reset();
  TENDON_CHECK(context_->usable(kWhere));
  const Lock lock(heard->mutex);
  if (heard->done) return Answered{*std::move(heard->done), round_trip};
  if (heard->no) {
    TENDON_TRY(no, *std::move(heard->no));
    return Answered{std::move(no), round_trip};
  }
  return Error{heard->ended ? ErrorCode::unreachable : ErrorCode::timeout, kWhere,
               "the peer was asked through Zenoh, and did not answer"};
}

// Questions of others

void Detours::on_question(std::unique_ptr<ZenohQuestion> question) {
  if (question->asked().payload.size_bytes() > kMaxQuestionBytes ||
      waiting_questions_.load() >= kMostWaitingQuestions) {
    refused_questions_.fetch_add(1);
    return;  // an honest peer asks again
  }
  const auto waits = std::make_shared<Counted>(shared_from_this(), waiting_questions_);
  cables_->post([weak = weak_from_this(), waits,
                 question = std::shared_ptr<ZenohQuestion>(std::move(question))] {
    if (const auto self = weak.lock()) self->answer(question);
  });
}

void Detours::answer(const std::shared_ptr<ZenohQuestion>& question) {
  const ZenohMessage& asked = question->asked();
  const auto read = read_peer_question(asked.payload.bytes());
  if (!read) {
    refuse_stranger(context_.get(), kWhere, {"a node behind routers", "routers"},
                    read.error().detail);
    return say(*question, refuse(read.error().detail));
  }
  if (const auto* const cable = std::get_if<CableQuestion>(&*read))
    return say(*question, take(*cable, domain_of(asked.key)));
  dial_for(std::get<DialBackQuestion>(*read), question);
}

PeerAnswer Detours::refuse(std::string why) {
  refused_questions_.fetch_add(1);
  return {.why_not = std::move(why)};
}

PeerAnswer Detours::take(const CableQuestion& asked, const std::string& domain) {
  if (!lets_in_cables_.load())
    return {.why_not = "its nodes take no routed links (routed = false)"};
  if (!cable_requests_.may_serve(asked.asker, std::chrono::steady_clock::now())) {
    return refuse("it was asked for more than " + std::to_string(kMaxCableRequestsPerSecond) +
                  " cables in a second");
  }
  const auto half = random_nonce();
  if (!half) return {.why_not = half.error().detail};
  auto near = cables_->lay({.domain = domain,
                            .peer = asked.asker,
                            .connection = asked.connection,
                            .key = joined(asked.half_key, *half),
                            .end = CableEnd::answerer,
                            .lane = asked.lane});
  if (!near) return refuse(near.error().detail);
  acceptor_->admit(
      std::make_unique<SocketStream>(
          *std::move(near), StreamPeer{.user = std::nullopt, .kind = PathKind::routed, .why = {}}),
      std::nullopt);
  return {.why_not = {}, .half_key = *half};
}

std::vector<std::string> Detours::dialable_for(const NodeAnnouncement& asker) {
  const auto here = boot_hash(boot_id());
  const bool is_here = here && asker.unix_on == *here;
  std::vector<std::string> addresses;
  for (const Address& address : asker.addresses) {
    const auto numbers = resolve(address, Deadline::now(), ResolveFor::connect);
    if (!numbers) continue;  // a name, which nobody announces
    const bool stays_here = std::ranges::any_of(*numbers, [](const SocketAddress& one) {
      return one.is_loopback() || one.is_link_local();
    });
    if (is_here || !stays_here) addresses.push_back(address.to_string());
  }
  return addresses;
}

// The question is only a hint, as every announcement is: nothing follows but a dial.
void Detours::dial_for(const DialBackQuestion& asked,
                       const std::shared_ptr<ZenohQuestion>& question) {
  auto addresses = dialable_for(asked.asker);
  const bool may = !addresses.empty() && dials_for_others_.load() < kMostDialsForOthers &&
                   dials_back_.may_serve(asked.asker.context, std::chrono::steady_clock::now());
  if (!may) return say(*question, refuse(std::string(kNoCause)));
  const auto counted = std::make_shared<Counted>(shared_from_this(), dials_for_others_);
  const std::string key = "back " + asked.asker.context.to_string();
  const auto attempt = [context = context_, security = security_, peer = asked.asker.context,
                        addresses, question, counted, key,
                        weak = std::weak_ptr(dialler_)](const Dialler::Dial&) {
    const auto link = reach_once(*context, peer, addresses, security, kPatienceForOthers);
    PeerAnswer answer;
    if (!link) answer.why_not = kNoCause;
    say(*question, answer);
    if (const auto dialler = weak.lock()) dialler->drop(key);
    return Dialler::Outcome::done;
  };
  // The key names a peer of its own, as a dial from here to the asker may wait for this one.
  dialler_->want({.key = key, .peer = key, .attempt = attempt, .addresses = std::move(addresses)});
}

void Detours::say(ZenohQuestion& question, const PeerAnswer& answer) {
  auto payload = encode(answer);
  if (!payload) return;  // no memory: the asker sees the end, and asks again
  question.answer({.key = question.asked().key, .payload = *std::move(payload), .attachment = {}});
}

}  // namespace tendon::v0::detail
