// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/publisher_core.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "channel/loaned_batch.hpp"
#include "channel/open.hpp"
#include "channel/staging.hpp"
#include "core/failpoint.hpp"
#include "core/text.hpp"
#include "observe/context_log.hpp"
#include "runtime/gpu_loan.hpp"
#include "tensor/on_cpu.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "publisher.publish";
// A longer history is not prefaulted beyond this.
constexpr std::uint64_t kMaxPrefaultBytes = 256ull << 20;
// For the copy of a sample on a GPU for which a late reader waits: slots that return notify nobody.
constexpr std::chrono::milliseconds kLookForMemoryEvery{20};

// The reason why a publish() of this thread does not wait for the subscription at all; empty: it
// does.
std::string_view why_not_waited_for(const Subscription& subscription) {
  const LastReceiver* const receiver = subscription.receiver();
  if (receiver == nullptr) return {};
  if (receiver->is_nobody())
    return " does not wait for it: nobody has received from it yet, and it is of this context";
  if (receiver->is_this_thread())
    return " does not wait for it: the thread that publishes is the one that receives from it";
  return {};
}

EntityAnnouncement announcement_of(const PublisherCore& publisher) {
  const PublisherOptions& options = publisher.options();
  EntityAnnouncement said{.domain = {},
                          .kind = EntityKind::publisher,
                          .context = {},
                          .entity = publisher.entity(),
                          .schema = {},
                          .qos = options.qos,
                          .topic = publisher.key()};
  if (options.schema != nullptr) said.schema = options.schema->hash();
  return said;
}

}  // namespace

// Words of a subscriber

void Subscription::on_arrived() {
  channel_.receive_mutex().assert_held();
  if (channel_.look() == Channel::Head::message)
    channel_.break_off(channel_.violation("sent a message, and is a subscriber"));
}

void Subscription::on_room() {
  if (const auto publisher = publisher_.lock()) publisher->took(*this);
}

void Subscription::on_over() {
  channel_.receive_mutex().assert_held();
  const bool is_lost =
      channel_.state() == Channel::State::lost && channel_.why().code != ErrorCode::end_of_stream;
  if (const auto publisher = publisher_.lock())
    publisher->ended(*this,
                     is_lost ? PublisherCore::Parting::lost : PublisherCore::Parting::in_order);
}

// Making

Result<std::shared_ptr<PublisherCore>> PublisherCore::create(std::shared_ptr<NodePort> node,
                                                             KeyExpression key,
                                                             const PublisherOptions& options,
                                                             Clock clock) {
  if (options.qos.history.samples == 0 || options.qos.history.samples > kMaxHistorySamples) {
    return Error{ErrorCode::invalid_argument, "publisher.declare",
                 "a history of " + std::to_string(options.qos.history.samples) + " samples; 1 to " +
                     std::to_string(kMaxHistorySamples) + " are legal"};
  }
  if (options.schema != nullptr) {
    const std::uint64_t size = options.schema->layout(Layout::aligned).total_bytes;
    const std::uint64_t cap = node->context()->publishing().pool()->cap_bytes();
    constexpr std::uint64_t kLeastSlots = 4;
    if (size > kMaxInlineBytes && SlotPool::slot_bytes_for(size) > cap / kLeastSlots) {
      return Error{ErrorCode::limit_exceeded, "publisher.declare",
                   "a sample takes a slot of " + std::to_string(SlotPool::slot_bytes_for(size)) +
                       " bytes, and publish_bytes (" + std::to_string(cap) +
                       ") has room for fewer than " + std::to_string(kLeastSlots) +
                       ": raise ContextOptions::publish_bytes"};
    }
  }
  if (options.block_for < std::chrono::milliseconds::zero()) {
    return Error{
        ErrorCode::invalid_argument, "publisher.declare",
        "block_for is " + std::to_string(options.block_for.count()) + " ms; 0 and more are legal"};
  }
  if (options.plain_bytes == 0 || options.plain_bytes > kMaxPlainBytes) {
    return Error{ErrorCode::invalid_argument, "publisher.declare",
                 "plain_bytes is " + std::to_string(options.plain_bytes) + "; 1 to " +
                     std::to_string(kMaxPlainBytes) + " are legal"};
  }
  if (options.encoding.size() > kMaxEncodingBytes || !is_text(options.encoding)) {
    return Error{ErrorCode::invalid_argument, "publisher.declare",
                 "an encoding of " + std::to_string(options.encoding.size()) +
                     " bytes; UTF-8 without control characters, of at most " +
                     std::to_string(kMaxEncodingBytes) + " bytes, is legal"};
  }
  TENDON_TRY(head, node->entities()->heads().take());
  auto core = std::make_shared<PublisherCore>(std::move(node), std::move(key), options,
                                              std::move(head), clock);
  core->sender_ =
      std::make_shared<Fanout>(core->entities_->context(), [weak = std::weak_ptr(core)] {
        if (const auto publisher = weak.lock()) publisher->show_what_can_be();
      });
  core->from_gpus_.start(
      [weak = std::weak_ptr(core)](std::uint64_t size_bytes, std::uint64_t kept_from)
          -> Result<std::shared_ptr<const PublishedSlot>> {
        if (const auto publisher = weak.lock()) return publisher->acquire(size_bytes, kept_from);
        return Error{ErrorCode::pipe_closed, kWhere, "the publisher has gone"};
      },
      [weak = std::weak_ptr(core)](const KeptSample& sample,
                                   Result<std::shared_ptr<const KeptBody>> body) {
        const auto publisher = weak.lock();
        if (publisher == nullptr) return;
        const auto next = [&] {
          const Lock lock(publisher->mutex_);
          return publisher->from_gpus_.take_staged(sample, std::move(body));
        }();
        if (next == GpuSamples::Next::later)
          (void)publisher->context_.add_timed(kLookForMemoryEvery, weak);
        if (next != GpuSamples::Next::now) return;
        publisher->context_.schedule([weak] {
          const auto there = weak.lock();
          if (there == nullptr) return;
          there->show_what_can_be();
          there->context_.wake_others();  // calls that wait until all is shown
        });
        publisher->context_.wake_for_work();
      });
  TENDON_TRY(plain,
             PlainService::declare(
                 {.zenoh = core->node_->zenoh(),
                  .outlet = core->node_->plain_outlet(),
                  .context = core->context_.id(),
                  .entity = core->entity_,
                  .wake = [context = core->entities_->context()] { context->wake_others(); }},
                 core->key_, options));
  core->plain_ = std::move(plain);
  if (core->plain_.bare() != nullptr) return core;  // nobody finds it
  core->entities_->add(Purpose::fabric, core->entity_, core);
  TENDON_CHECK(core->node_->announce(announcement_of(*core), "publisher.declare"));
  if (options.schema != nullptr)
    core->prefault_soon(options.schema->layout(Layout::aligned).total_bytes + sizeof(SampleHeader));
  return core;
}

PublisherCore::PublisherCore(std::shared_ptr<NodePort> node, KeyExpression key,
                             const PublisherOptions& options, HeadWord head, Clock clock)
    : node_(std::move(node)),
      entities_(node_->entities()),
      context_(*entities_->context()),
      key_(std::move(key)),
      options_(options),
      clock_(clock),
      entity_(entities_->next_number()),
      head_(std::move(head)),
      history_(options.qos.history.samples),
      from_gpus_(entities_->context(), key_.text()) {}

PublisherCore::~PublisherCore() {
  if (!context_.forked()) entities_->remove(entity_);
}

// The first sample in each slot would cost its caller the making of its pages, some four times a
// copy. One slot more than the history has: a sample is filled before the oldest is dropped.
void PublisherCore::prefault_soon(std::uint64_t size_bytes) {
  if (size_bytes <= kMaxInlineBytes) return;
  const auto slot_count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(options_.qos.history.samples + 1, kMaxPrefaultBytes / size_bytes));
  context_.prefault_soon([weak = weak_from_this(), pool = context_.publishing().pool(), size_bytes,
                          slot_count, name = context_.log_name()] {
    const auto touched = pool->prefault(size_bytes, slot_count, [&] { return !weak.expired(); });
    if (!touched) log_of(name, LogLevel::info, "publisher.prefault", touched.error().detail);
  });
}

Result<void> PublisherCore::usable(std::string_view where) const {
  TENDON_CHECK(context_.usable(where));
  if (state_.load(std::memory_order_relaxed) == State::open) return {};
  return Error{ErrorCode::pipe_closed, where, "the publisher of " + key_.text() + " was closed"};
}

// Publishing

Result<void> PublisherCore::check(const Schema& schema) const {
  if (options_.schema == nullptr || options_.schema->hash() == schema.hash()) return {};
  return Error{ErrorCode::schema_mismatch, kWhere,
               "the sample does not fit the schema of " + key_.text() + ": " +
                   describe_difference(*options_.schema, schema)};
}

// When memory is short, the oldest samples are dropped, first those for which nobody waits. That
// continues while one of them has memory of the host: others lie on a GPU, or are small.
Result<std::shared_ptr<const PublishedSlot>> PublisherCore::acquire(std::uint64_t size_bytes,
                                                                    std::uint64_t kept_from) {
  for (;;) {
    auto slot = context_.publishing().acquire(size_bytes);
    if (slot) return std::shared_ptr<const PublishedSlot>(*std::move(slot));
    if (slot.error().code != ErrorCode::resource_exhausted) return std::move(slot).error();
    const Lock lock(mutex_);
    if (!history_.has_slot_before(kept_from)) return std::move(slot).error();
    (void)history_.trim();
    ++counted_.history_trimmed;
  }
}

// Makes memory for the body that `message` describes, with its header.
Result<std::shared_ptr<KeptSample>> PublisherCore::make_room(SharedMessage message) {
  auto kept = std::make_shared<KeptSample>();
  TENDON_CHECK(kept->make_room(std::move(message), sizeof(SampleHeader),
                               [this](std::uint64_t size_bytes) { return acquire(size_bytes); }));
  return kept;
}

Result<Published> PublisherCore::publish(const TensorDict& sample, std::optional<Deadline> deadline,
                                         const OnStream& on, const GoOn& go_on) {
  TENDON_CHECK(usable(kWhere));
  TENDON_CHECK(check(*sample.schema()));
  auto on_cpu = check_on_cpu(sample, kWhere);
  if (plain_.bare() != nullptr) {
    TENDON_CHECK(on_cpu);
    return plain_.bare()->publish(sample);
  }
  if (!on_cpu) {
    const Deadline until = deadline ? *deadline : Deadline(options_.block_for);
    GpuSamples::Readers readers;
    readers.history = options_.qos.history.samples;
    {
      const Lock lock(mutex_);
      for (const auto& subscription : subscriptions_)
        readers.links.push_back(subscription->link().shared_from_this());
    }
    TENDON_TRY(kept, from_gpus_.copy(sample,
                                     {.stream = on.stream,
                                      .deadline = until,
                                      .go_on = go_on,
                                      .usable = [this] { return usable(kWhere); }},
                                     readers));
    return publish(std::move(kept), until, go_on);
  }
  auto kept = std::make_shared<KeptSample>();
  TENDON_CHECK(kept->pack(sample, sizeof(SampleHeader),
                          [this](std::uint64_t size_bytes) { return acquire(size_bytes); }));
  return publish(std::move(kept), deadline ? *deadline : default_deadline(), go_on);
}

Result<Published> PublisherCore::publish(Bytes sample, Deadline deadline, const GoOn& go_on) {
  TENDON_CHECK(usable(kWhere));
  if (options_.schema != nullptr) {
    return Error{ErrorCode::schema_mismatch, kWhere,
                 key_.text() + " was declared with a schema: raw bytes have none"};
  }
  if (plain_.bare() != nullptr) return plain_.bare()->publish(sample);
  SharedMessage message;
  message.descriptor.kind = MessageKind::bytes;
  message.descriptor.payload_bytes = sample.size();
  TENDON_TRY(kept, make_room(std::move(message)));
  if (!sample.empty()) std::memcpy(kept->memory().data(), sample.data(), sample.size());
  return publish(std::move(kept), deadline, go_on);
}

Result<Loan> PublisherCore::loan(const std::shared_ptr<const Schema>& schema,
                                 const LoanOptions& options, Deadline deadline) {
  static constexpr std::string_view kHere = "publisher.loan";
  TENDON_CHECK(usable(kHere));
  if (plain_.bare() != nullptr) {
    return Error{ErrorCode::not_supported, kHere,
                 "a bare publisher puts by Zenoh, which has no memory to lend: publish a "
                 "TensorDict or bytes"};
  }
  if (schema == nullptr)
    return Error{ErrorCode::invalid_argument, kHere, "schema is null; a Schema is needed"};
  TENDON_CHECK(check(*schema));
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  TENDON_TRY(gpu, wanted_gpu(options.device, kHere, deadline));
  if (gpu != nullptr) {
    const RoomOnGpu room{.gpu = gpu, .context = context_, .link = nullptr, .usable = [this] {
                           return usable(kHere);
                         }};
    TENDON_TRY(slot, take_gpu_loan(room, options.stream, size, deadline, kHere));
    TENDON_TRY(dict,
               make_packed(schema, Layout::aligned, cuda::LoanedDeviceSlot::storage(slot, size)));
    return Loan(std::move(dict), std::move(slot));
  }
  SharedMessage message;
  message.schema = schema;
  message.descriptor.kind = MessageKind::data;
  message.descriptor.layout = Layout::aligned;
  message.descriptor.payload_bytes = size;
  TENDON_TRY(kept, make_room(std::move(message)));
  Storage storage(kept, kept->memory().data(), kept->message.descriptor.payload_bytes,
                  Access::read_write);
  TENDON_TRY(dict, make_packed(schema, Layout::aligned, std::move(storage)));
  return Loan(std::move(dict), std::move(kept));
}

Result<Published> PublisherCore::publish(Loan&& sample, std::optional<Deadline> deadline,
                                         const OnStream& on, const GoOn& go_on) {
  TENDON_CHECK(usable(kWhere));
  if (plain_.bare() != nullptr) {
    if (sample.device_slot_ != nullptr) TENDON_CHECK(check_on_cpu(sample.dict_, kWhere));
    return Error{ErrorCode::wrong_link, kWhere, "the loan was taken from another publisher"};
  }
  if (sample.device_slot_ != nullptr) {
    TENDON_TRY(batch, sealed_loan(sample.dict_, *sample.device_slot_, context_, kWhere));
    auto published = publish(batch, deadline, on, go_on);
    if (!published) return published;
    sample.device_slot_->note_ordered();  // the GPU has done the work of the stream
    sample.clear();
    return published;
  }
  if (sample.slot_ != nullptr) {
    return Error{ErrorCode::wrong_link, kWhere,
                 "the loan was taken from a pipe: send it there, or take one with "
                 "Publisher::loan"};
  }
  if (sample.sample_ == nullptr) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 "the loan is empty: it was published before; take a new one with Publisher::loan"};
  }
  const auto& slot = sample.sample_->message.slot;
  if (slot != nullptr && &slot->pool() != context_.publishing().pool().get()) {
    return Error{ErrorCode::wrong_link, kWhere,
                 "the loan was taken from a publisher of another context"};
  }
  TENDON_CHECK(check(*sample.dict_.schema()));
  TENDON_CHECK(check_on_cpu(sample.dict_, kWhere));
  // Values that were set beside the tensors have no place behind them: they are copied to larger
  // memory.
  const Deadline until = deadline ? *deadline : default_deadline();
  auto published = sample.dict_.values() == nullptr ? publish(sample.sample_, until, go_on)
                                                    : publish(sample.dict_, until, {}, go_on);
  if (published) sample.clear();
  return published;
}

Result<Published> PublisherCore::publish(std::shared_ptr<KeptSample> sample, Deadline deadline,
                                         const GoOn& go_on) {
  Published published;
  {
    const Lock lock(mutex_);
    TENDON_CHECK(usable(kWhere));
    published.sequence = history_.last() + 1;
    sample->header = {.sequence = published.sequence,
                      .stamp = static_cast<std::uint64_t>(clock_()),
                      .incarnation = context_.identity().incarnation,
                      .head = head_.number()};
    const bool leaves_room = options_.qos.priority == Priority::normal;
    if (sample->has_body)
      std::memcpy(sample->header_room().data(), &sample->header, sizeof(SampleHeader));
    if (leaves_room) sample->message.share = RingShare::less_control;
    if (SampleOnGpu* const there = sample->on_gpu.get()) {
      const auto header = MutableBytes(there->body).last(sizeof(SampleHeader));
      std::memcpy(header.data(), &sample->header, sizeof(SampleHeader));
      if (leaves_room) there->message.share = RingShare::less_control;
    }
    history_.push(std::move(sample));
    head_.store(published.sequence);  // before any reader sees it
    (void)TENDON_FAILPOINT("topic.publish.before_show");
    {
      Fanout::Round round(*sender_);
      for (const auto& subscription : std::vector(subscriptions_)) show(*subscription, round);
    }
    if (plain_.is_asked_for()) plain_.offer(history_.find(published.sequence));
    tell(published);
    if (!published.lagging.empty()) note_behind();
    if (options_.qos.overflow != Overflow::block || published.lagging.empty()) return published;
  }
  if (!wait_for_laggards(published.sequence, deadline, go_on)) {
    const Lock lock(mutex_);
    tell(published);
    return published;
  }
  for (const auto& [name, why] : excuse(published)) {
    node_->tell({.kind = FabricEventKind::lagging,
                 .key = key_.text(),
                 .node = name,
                 .reason = "sample " + std::to_string(published.sequence).append(why)});
  }
  return published;
}

// False: `go_on` ended it.
bool PublisherCore::wait_for_laggards(std::uint64_t sequence, Deadline deadline,
                                      const GoOn& go_on) {
  std::vector<std::shared_ptr<Link>> links;
  {
    const Lock lock(mutex_);
    for (const auto& subscription : subscriptions_)
      links.push_back(subscription->link().shared_from_this());
  }
  std::vector<Link*> waited;
  waited.reserve(links.size());
  for (const auto& link : links) waited.push_back(link.get());
  for (;;) {
    const Deadline slice = go_on ? earlier(deadline, kGoOnSlice) : deadline;
    const bool done = context_.wait(WaitedLinks(waited), slice, [&] {
      if (context_.unusable()) return true;
      for (Link* link : waited) context_.poll_link(*link);
      const Lock lock(mutex_);
      return all_shown(sequence);
    });
    if (done || slice.time_point() == deadline.time_point()) return true;
    if (!go_on()) return false;
  }
}

// Subscriptions that missed the deadline are not awaited again. Returns the newly excused ones.
std::vector<PublisherCore::Excused> PublisherCore::excuse(Published& published) {
  std::vector<Excused> newly;
  const Lock lock(mutex_);
  Fanout::Round round(*sender_);
  tell(published);
  for (const auto& subscription : subscriptions_) {
    Subscription::Position& position = subscription->position;
    if (position.cursor.next() > published.sequence) continue;
    if (const auto why = why_not_waited_for(*subscription); !why.empty()) {
      if (!std::exchange(position.told_of_receiver, true))
        newly.emplace_back(subscription->name(), why);
    } else if (!std::exchange(position.excused, true)) {
      round.wait_no_more(*subscription->samples());
      newly.emplace_back(subscription->name(),
                         " waited for it until the deadline; none waits again until it takes one");
    }
  }
  return newly;
}

// Notes which subscriptions have it now.
void PublisherCore::tell(Published& published) const {
  published.lagging = behind(published.sequence);
  published.shown = static_cast<std::uint32_t>(
      std::ranges::count_if(subscriptions_, [&](const auto& subscription) {
        return subscription->position.cursor.has_shown(published.sequence);
      }));
}

std::vector<std::string> PublisherCore::behind(std::uint64_t sequence) const {
  std::vector<std::string> names;
  for (const auto& subscription : subscriptions_)
    if (subscription->position.cursor.next() <= sequence) names.push_back(subscription->name());
  return names;
}

// True if it was shown to all subscriptions that are worth a wait.
bool PublisherCore::all_shown(std::uint64_t sequence) const {
  return std::ranges::all_of(subscriptions_, [&](const auto& subscription) {
    const auto& position = subscription->position;
    return position.excused || position.cursor.next() > sequence ||
           !why_not_waited_for(*subscription).empty();
  });
}

// Showing

// A subscription counts as closed while its share of samples under way was not taken, so that a
// stopped one leaves the others theirs. Each may have one sample, however large. Taken samples that
// it keeps count as well, at its link: beyond that it gets copies.
bool PublisherCore::has_share(const Subscription& subscription, const SharedMessage& sample) const {
  if (sample.slot == nullptr) return true;
  const SendWindow& window = subscription.samples()->window();
  if (window.has_taken(subscription.position.slots_until)) return true;
  const std::uint64_t size = sample.descriptor.payload_bytes;
  return window.untaken_bytes() + size <= entities_->share_bytes() / 2;
}

void PublisherCore::show(Subscription& subscription, Fanout::Round& round) {
  Subscription::Position& position = subscription.position;
  Cursor& cursor = position.cursor;
  if (!position.has_head_page) show_head_page(subscription);
  note_dropped(subscription, round);
  auto reads = GpuSamples::Reads::where_it_lies;
  while (!position.over) {
    counted_.thinned += cursor.catch_up(history_);
    const auto sample = history_.find(cursor.next());
    if (sample == nullptr) return;
    const auto message = from_gpus_.message_for(subscription.link(), sample, reads);
    if (message && (*message == nullptr || !has_share(subscription, **message))) return;
    const Subscription::Position::Before before{cursor, position.slots_until};
    const Result<Shown> shown =
        message ? round.show(subscription.samples(), **message, cursor.tag(),
                             entities_->share_bytes_of(subscription.link()), keeps(subscription))
                : Result<Shown>(message.error());
    if (shown && *shown == Shown::beyond_share) {
      reads = GpuSamples::Reads::host_memory;
      continue;
    }
    reads = GpuSamples::Reads::where_it_lies;
    if (!shown) {
      if (subscription.link().ended()) return;  // its sink is told
      const Error& why = shown.error();
      const bool is_of_gpu = why.code == ErrorCode::unsupported_device;
      if (why.code != ErrorCode::message_too_large && !is_of_gpu) return give_up(subscription, why);
      if (is_of_gpu && !std::exchange(position.told_of_gpus, true)) {
        context_.schedule(
            [node = node_, event = FabricEvent{
                               .kind = FabricEventKind::not_taken,
                               .key = key_.text(),
                               .node = subscription.name(),
                               .reason = "it does not get samples that lie on a GPU: " + why.detail,
                               .entity = entity_}] { node->tell(event); });
      }
      cursor.pass_over();  // the peer, or the caps of its link, do not allow it: a gap
      continue;
    }
    if (*shown == Shown::closed) return;
    if (*shown == Shown::dropped) {
      take_back(position);
      continue;
    }
    cursor.shown(sample->header.stamp);
    if ((*message)->slot != nullptr)
      position.slots_until = subscription.samples()->window().shown_bytes();
    if (*shown == Shown::under_way) {
      position.before = before;
      counted_.thinned += cursor.catch_up(history_);  // samples that are not due wait for nothing
      return;
    }
  }
}

// A reader for which a publisher waits has its sample kept, until the wait is over.
LentSample::Keeps PublisherCore::keeps(const Subscription& subscription) const {
  const bool is_waited_for = options_.qos.overflow == Overflow::block &&
                             !subscription.position.excused &&
                             why_not_waited_for(subscription).empty();
  return is_waited_for ? LentSample::Keeps::until_sent : LentSample::Keeps::once_begun;
}

void PublisherCore::note_dropped(Subscription& subscription, Fanout::Round& round) {
  if (round.was_dropped(*subscription.samples())) take_back(subscription.position);
}

// The sample under way was not sent: it is shown again if it is still kept, or is lost.
void PublisherCore::take_back(Subscription::Position& position) {
  counted_.thinned -= position.cursor.left_out();
  position.cursor = position.before->cursor;
  position.slots_until = position.before->slots_until;
  counted_.thinned += position.cursor.catch_up(history_);
}

// The link lives, but its failure may repeat: the subscriber hears why, and subscribes again.
void PublisherCore::give_up(Subscription& subscription, const Error& why) {
  subscription.link().post_error(subscription.pipe(), why.code, why.detail);
  remove(subscription);
  detach_soon(subscription);
}

// Its socket may be full: then it is shown before a later sample.
void PublisherCore::show_head_page(Subscription& subscription) {
  SharedMemoryLink* const memory = subscription.link().shared_memory();
  if (memory == nullptr || !subscription.link().features().has(Feature::heads)) {
    subscription.position.has_head_page = true;
    return;
  }
  const auto shown =
      memory->publish_segment(subscription.pipe(), head_.page().name, *head_.page().segment);
  if (shown) subscription.position.has_head_page = *shown == Sent::done;
}

void PublisherCore::note_behind() {
  if (!noted_behind_.exchange(true)) entities_->head_teller().note_behind(weak_from_this());
}

std::size_t PublisherCore::say_head() {
  const Lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& subscription : subscriptions_) {
    Link& link = subscription->link();
    const bool is_behind = !subscription->position.cursor.is_at_end(history_);
    if (!is_behind || link.shared_memory() != nullptr || !link.features().has(Feature::heads))
      continue;
    ++count;
    // After waiting words it would say nothing new.
    if (link.posted_bytes() != 0) continue;
    link.post(Descriptor{
        .kind = MessageKind::head, .pipe = subscription->pipe(), .sequence = history_.last()});
  }
  if (count == 0) noted_behind_.store(false);
  return count;
}

void PublisherCore::on_time() {
  {
    const Lock lock(mutex_);
    from_gpus_.end_pause();
  }
  show_what_can_be();
}

void PublisherCore::show_what_can_be() {
  const Lock lock(mutex_);
  Fanout::Round round(*sender_);
  for (const auto& subscription : std::vector(subscriptions_)) show(*subscription, round);
}

// Subscriptions

Result<std::shared_ptr<MessageSink>> PublisherCore::on_open(const std::shared_ptr<Link>& link,
                                                            const Descriptor& open, Bytes said) {
  TENDON_TRY(request, read_subscription_request(said));
  TENDON_TRY(window, window_of(open));
  const Lock lock(mutex_);
  TENDON_CHECK(admits(link->peer().context));
  if (subscriptions_.size() >= kMaxSubscriptions) {
    return Error{ErrorCode::limit_exceeded, "publisher.subscribe",
                 key_.text() + " has " + std::to_string(kMaxSubscriptions) +
                     " subscriptions (kMaxSubscriptions), the most that one publisher has"};
  }
  const bool resumes =
      request.seen_sequence != 0 && request.seen_incarnation == context_.identity().incarnation;
  const Cursor cursor =
      resumes ? Cursor(history_, request.seen_sequence, Pace(request.period_ns, request.seen_stamp))
              : Cursor(history_, Pace(request.period_ns));
  if (link->traits().slots_bound_window) window = window.without_bytes();
  const bool is_own = link->peer().context == context_.id();
  auto subscription = std::make_shared<Subscription>(
      weak_from_this(), link,
      std::make_shared<SampleChannel>(context_, link, open.pipe, window, copied_), open.pipe,
      cursor, history_.last(), is_own ? entities_->receiver_of(request.subscriber) : nullptr);
  let_go(lost_.returned(link->peer().context));
  subscriptions_.push_back(subscription);
  entities_->count_subscription(*link, 1);
  Fanout::Round round(*sender_);
  show(*subscription, round);
  return subscription->sink();
}

void PublisherCore::took(Subscription& subscription) {
  {
    const Lock lock(mutex_);
    if (subscription.position.over) return;
    subscription.position.excused = false;
    subscription.position.told_of_receiver = false;
    if (subscription.position.cursor.is_at_end(history_)) return;
    Fanout::Round round(*sender_);
    show(subscription, round);
  }
}

void PublisherCore::ended(Subscription& subscription, Parting parting) {
  const Lock lock(mutex_);
  if (subscription.position.over) return;
  if (parting == Parting::lost) {
    let_go(lost_.add({.link = subscription.link().shared_from_this(),
                      .next = subscription.position.cursor.next(),
                      .at = std::chrono::steady_clock::now(),
                      .confirmed = subscription.samples()->window().untaken_messages() == 0}));
  }
  remove(subscription);
  detach_soon(subscription);
}

// The last share of a link takes that link's receive lock, and is not dropped under another lock.
void PublisherCore::let_go(LostReaders::Links links) {
  if (!links.empty()) context_.schedule([links = std::move(links)] {});
}

// After the receive lock and the round: under them the last share of a publisher may be dropped,
// and a sink does not detach itself inside an event.
void PublisherCore::detach_soon(Subscription& subscription) {
  context_.schedule([self = shared_from_this(), known = subscription.shared_from_this()] {
    self->detach(*known);
  });
}

void PublisherCore::detach(const Subscription& subscription) {
  sender_->remove(subscription.samples());
  {
    const Lock receiving(subscription.link().receive_mutex());
    subscription.link().detach(subscription.pipe());
  }
  const Lock lock(mutex_);
  std::erase_if(leaving_, [&](const auto& known) { return known.get() == &subscription; });
}

void PublisherCore::remove(Subscription& subscription) {
  subscription.position.over = true;
  const auto found = std::ranges::find_if(
      subscriptions_, [&](const auto& known) { return known.get() == &subscription; });
  if (found == subscriptions_.end()) return;
  leaving_.push_back(std::move(*found));
  subscriptions_.erase(found);
  entities_->count_subscription(subscription.link(), -1);
}

// Waiting and closing

Result<void> PublisherCore::wait_for_subscribers(std::size_t count, Deadline deadline) {
  constexpr std::string_view kHere = "publisher.wait_for_subscribers";
  TENDON_CHECK(usable(kHere));
  std::size_t ready = 0;
  std::optional<Error> error;
  for (bool is_over = false; !is_over;) {
    const bool asks = plain_.is_asked_for();
    if (asks) plain_.ask_if_due();
    const Deadline slice = asks ? earlier(deadline, Deadline(PlainAudience::kAskAgain)) : deadline;
    is_over = deadline.has_passed();
    (void)context_.wait(nullptr, slice, [&] {
      if (auto still = usable(kHere); !still) {
        error = std::move(still).error();
        return true;
      }
      ready = plain_.peer_count();
      const Lock lock(mutex_);
      ready +=
          static_cast<std::size_t>(std::ranges::count_if(subscriptions_, [](const auto& known) {
            return known->position.cursor.next() > known->position.late_until;
          }));
      return ready >= count || asks != plain_.is_asked_for();
    });
    if (error) return *std::move(error);
    if (ready >= count) return {};
  }
  return Error{ErrorCode::timeout, kHere,
               key_.text() + " has " + std::to_string(ready) + " subscribers of " +
                   std::to_string(count) + " before the deadline" + node_->but_no_router()};
}

PublisherStats PublisherCore::stats() const {
  if (context_.forked()) return {};
  if (plain_.bare() != nullptr)
    return {.published = plain_.bare()->put_count(), .plain_put = plain_.bare()->put_count()};
  const auto plain = plain_.counts();
  const Lock lock(mutex_);
  PublisherStats stats{.published = history_.last(),
                       .history_trimmed = counted_.history_trimmed,
                       .thinned = counted_.thinned,
                       .subscribers = subscriptions_.size(),
                       .plain_put = plain.put,
                       .plain_dropped = plain.dropped,
                       .lagging = behind(history_.last()),
                       .copied_over_share = copied_->load(std::memory_order_relaxed)};
  from_gpus_.count_in(stats);
  return stats;
}

std::vector<std::string> PublisherCore::unsent() {
  const std::uint64_t last = history_.last();
  std::vector<std::string> names = behind(last);
  for (const std::string& name : lost_.behind(last)) names.push_back(name);
  return names;
}

// True if the subscribers or the kernel have everything.
bool PublisherCore::is_idle() {
  Fanout::Round round(*sender_);
  for (const auto& subscription : subscriptions_) {
    note_dropped(*subscription, round);
    if (!subscription->position.cursor.is_at_end(history_)) return false;
    if (!round.is_idle(*subscription->samples())) return false;
  }
  return true;
}

// Admits only a reader that had a link before, while it is awaited.
Result<void> PublisherCore::admits(const ContextId& reader) {
  TENDON_CHECK(context_.usable("publisher.subscribe"));
  const State state = state_.load(std::memory_order_relaxed);
  if (state == State::open || (state == State::closing && lost_.knows(reader))) return {};
  return Error{ErrorCode::pipe_closed, "publisher.subscribe",
               "the publisher of " + key_.text() + " was closed"};
}

Result<void> PublisherCore::close(Deadline deadline) { return close(deadline, Lost::waited_for); }

// The announcement stays until the end: a reader whose link was lost returns by it.
Result<void> PublisherCore::close(Deadline deadline, Lost lost) {
  State open = State::open;
  if (context_.forked() || !state_.compare_exchange_strong(open, State::closing)) return {};
  plain_.close(deadline);
  const auto begun = std::chrono::steady_clock::now();
  {
    const Lock lock(mutex_);
    if (lost == Lost::ignored) let_go(lost_.forget_all());
    let_go(lost_.close(begun, context_.options().lease));
  }
  for (bool waiting = true; waiting;) {
    const auto due = [&] {
      const Lock lock(mutex_);
      return lost_.due(history_.last(), std::chrono::steady_clock::now());
    }();
    const bool idle =
        context_.wait(nullptr, due ? earlier(deadline, Deadline::at(*due)) : deadline, [&] {
          if (context_.unusable()) return true;
          const Lock lock(mutex_);
          return is_idle() && !lost_.due(history_.last(), std::chrono::steady_clock::now());
        });
    waiting = !idle && !deadline.has_passed();
  }
  node_->withdraw(announcement_of(*this));
  entities_->remove(entity_);
  state_.store(State::closed);
  std::vector<std::shared_ptr<Subscription>> ending;
  std::vector<std::shared_ptr<Subscription>> leaving;
  std::vector<std::string> unsent;
  std::uint64_t last = 0;
  {
    const Lock lock(mutex_);
    last = history_.last();
    unsent = this->unsent();
    let_go(lost_.forget_all());
    for (const auto& subscription : subscriptions_) {
      subscription->position.over = true;
      entities_->count_subscription(subscription->link(), -1);
    }
    ending.swap(subscriptions_);
    leaving = leaving_;
  }
  for (const auto& subscription : ending) {
    Descriptor end;
    end.kind = MessageKind::end;
    end.pipe = subscription->pipe();
    end.sequence = last;
    end.payload_bytes = subscription->position.cursor.lost_until(last);
    sender_->remove(subscription->samples());
    if (!context_.unusable()) subscription->link().post(end);
    detach(*subscription);
  }
  // None of them calls this publisher when its last share is dropped.
  for (const auto& subscription : leaving) detach(*subscription);
  TENDON_CHECK(context_.usable("publisher.close"));
  if (unsent.empty()) return {};
  std::string names;
  for (const std::string& name : unsent) {
    names += (names.empty() ? "" : ", ") + name;
    node_->tell({.kind = FabricEventKind::unsent,
                 .key = key_.text(),
                 .node = name,
                 .reason = "the publisher was closed at sample " + std::to_string(last) +
                           " before this reader was shown everything",
                 .entity = entity_});
  }
  return Error{ErrorCode::timeout, "publisher.close",
               "not shown everything of " + key_.text() + " before the deadline: " + names};
}

void PublisherCore::end() {
  const auto closed = close(context_.options().linger, Lost::ignored);
  if (!closed && closed.error().code == ErrorCode::timeout)
    context_.log(LogLevel::warn, "publisher.close", closed.error().detail);
}

}  // namespace tendon::v0::detail
