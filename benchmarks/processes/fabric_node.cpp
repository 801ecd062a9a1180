// SPDX-License-Identifier: Apache-2.0
// One node of `processes fabric`, in a process of its own. It publishes by its own clock, counts
// the samples that it receives, and writes a report to a file.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/observe/histogram.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/own_process.hpp"
#include "benchmarks/processes/fabric_profile.hpp"
#include "benchmarks/processes/verbs.hpp"
#include "cli/benchmark.hpp"
#include "runtime/peer_clock.hpp"

namespace tendon::cli {
namespace {

using namespace brain_profile;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench.fabric";
// On a busy machine a node may wait for seconds.
constexpr std::uint32_t kHistory = 256;
constexpr std::uint32_t kWindow = 128;

/// Counts the samples of one subscriber by publisher, beside the publisher's own count.
class Tally {
 public:
  Tally(const Node& node, std::uint64_t source_count) : node_(node), source_count_(source_count) {}

  void take(const Sample& sample) {
    const auto now_ns = static_cast<std::uint64_t>(detail::boot_time_ns());
    if (sample.stamp <= now_ns) latency_.record(now_ns - sample.stamp);
    const detail::Lock lock(mutex_);
    Source& source = sources_[sample.publisher];
    // Read now: a publisher that has sent everything may end before this node.
    if (source.received == 0 && sample.publisher != node_.name()) {
      const auto stats = node_.peer_stats(sample.publisher);
      source.path = stats ? stats->path.to_string() : stats.error().message();
    }
    source.repeated += sample.sequence <= source.last ? 1 : 0;
    source.last = sample.sequence;
    ++source.received;
    for (const Gap& gap : sample.gaps) source.in_gaps += gap.count();
    if (!sample.tensors) return;
    const auto total = sample.tensors->find_value("published_in_all");
    if (!total) return;
    source.published = total->as_u64();
    ended_.notify_all();
  }

  /// Waits for the last sample of every publisher, which has the number of its samples.
  [[nodiscard]] Result<void> wait(Deadline deadline) {
    const detail::Lock lock(mutex_);
    while (ended_count() < source_count_) {
      if (deadline.has_passed()) {
        return Error{ErrorCode::timeout, kWhere,
                     fmt::format("the last samples of {} of {} publishers did not come",
                                 source_count_ - ended_count(), source_count_)};
      }
      (void)ended_.wait_until(mutex_, deadline);
    }
    return {};
  }

  [[nodiscard]] const Histogram& latency() const { return latency_; }

  /// Adds a row for each publisher.
  void report(Value::List& rows) {
    const detail::Lock lock(mutex_);
    for (const auto& [publisher, source] : sources_) {
      rows.emplace_back(Value::Map{{"publisher", publisher},
                                   {"path", source.path},
                                   {"published", source.published.value_or(0)},
                                   {"received", source.received},
                                   {"repeated", source.repeated},
                                   {"in_gaps", source.in_gaps}});
    }
  }

 private:
  struct Source {
    std::string path;  ///< with its reason; empty: this node itself
    std::uint64_t last = 0;
    std::uint64_t received = 0;
    std::uint64_t repeated = 0;  ///< received twice, or after a later one
    std::uint64_t in_gaps = 0;
    std::optional<std::uint64_t> published;
  };

  [[nodiscard]] std::uint64_t ended_count() const TENDON_REQUIRES(mutex_) {
    std::uint64_t count = 0;
    for (const auto& [publisher, source] : sources_) count += source.published ? 1 : 0;
    return count;
  }

  const Node& node_;
  std::uint64_t source_count_;
  Histogram latency_;
  detail::Mutex mutex_;
  detail::CondVar ended_;
  std::map<std::string, Source> sources_ TENDON_GUARDED_BY(mutex_);
};

/// One topic of this node: `content` at every `ticks`-th tick; the last sample has the number of
/// samples.
struct Topic {
  Publisher publisher;
  TensorDict content;
  std::uint64_t ticks = 1;
  std::uint64_t published = 0;

  [[nodiscard]] Result<void> publish_at(std::uint64_t tick, std::uint64_t last_tick) {
    if (tick % ticks != 0) return {};
    ++published;
    TENDON_CHECK(content.try_set("published", Value(published)));
    if (tick + ticks > last_tick)
      TENDON_CHECK(content.try_set("published_in_all", Value(published)));
    const auto shown = publisher.publish(content);
    return shown ? Result<void>() : Result<void>(shown.error());
  }
};

Result<Topic> declare_topic(Node& node, const std::string& key, std::uint64_t ticks,
                            std::size_t reader_count) {
  TENDON_TRY(publisher, Publisher::declare(node, key, {.qos = {keep_last(kHistory)}}));
  TENDON_CHECK(publisher.wait_for_subscribers(reader_count, row_deadline()));
  return Topic{std::move(publisher), {}, ticks};
}

Result<Node> join(Context& context, const Value& parameters, std::uint64_t number) {
  NodeOptions options{.domain = parameter(parameters, "domain").as_string(),
                      .name = name(number),
                      .listen = parameter(parameters, "listen").as_string()};
  if (parameter(parameters, "path").as_string() == "tcp")
    options.security.profile = Profile::plaintext;
  for (const Value& router : parameter(parameters, "routers").as_list())
    options.routers.push_back(router.as_string());
  if (const Value* peers = parameters.find("peers")) {
    options.peers.emplace();
    for (const Value& peer : peers->as_list()) options.peers->push_back(peer.as_string());
  }
  return Node::join(context, std::move(options), row_deadline());
}

/// Publishes at each tick of its own clock until `last_tick`.
Result<void> run_clock(std::vector<Topic>& topics, std::uint64_t last_tick) {
  auto next = Clock::now();
  for (std::uint64_t tick = 1; tick <= last_tick; ++tick) {
    std::this_thread::sleep_until(next += kTick);
    for (Topic& topic : topics) TENDON_CHECK(topic.publish_at(tick, last_tick));
  }
  return {};
}

}  // namespace

Result<void> play_fabric_node(const Value& parameters) {
  const std::uint64_t number = parameter(parameters, "number").as_u64();
  // With its own runtime directory a node reaches the others as if it were on another host.
  setenv("TENDON_RUNTIME_DIR", parameter(parameters, "runtime_directory").as_string().c_str(), 1);
  unsetenv("TENDON_ROUTER");
  TENDON_TRY(context, Context::create({.name = name(number), .wait_policy = WaitPolicy::blocking}));
  TENDON_TRY(node, join(context, parameters, number));
  Tally maps_read(node, kSourcesOfEach);
  Tally heartbeats_read(node, kNodeCount);
  const auto into = [](Tally& tally) {
    return SubscriberOptions{.window = kWindow,
                             .on_sample = [&tally](const Sample& sample) { tally.take(sample); }};
  };
  TENDON_TRY(maps, Subscriber::declare(node, map_keys(number), into(maps_read)));
  std::optional<Subscriber> heartbeats;
  if (number == 0) {
    TENDON_TRY(all, Subscriber::declare(node, kHeartbeatKeys, into(heartbeats_read)));
    heartbeats = std::move(all);
  }
  std::vector<Topic> topics;
  TENDON_TRY(heartbeat, declare_topic(node, heartbeat_key(number), kTicksPerHeartbeat, 1));
  topics.push_back(std::move(heartbeat));
  if (has_map(number)) {
    TENDON_TRY(topic, declare_topic(node, map_key(number), kTicksPerMap, kReadersOfEach));
    TENDON_TRY(map, Tensor::zeros(DType::f32, {kMapSide, kMapSide}));
    TENDON_CHECK(topic.content.try_set("map", std::move(map)));
    topics.push_back(std::move(topic));
  }

  const auto begin = Clock::now();
  const double cpu_before_s = peer::cpu_s();
  TENDON_CHECK(run_clock(topics, parameter(parameters, "seconds").as_u64() * kTicksPerSecond));
  const double cpu_s = peer::cpu_s() - cpu_before_s;
  const double elapsed_s = elapsed_us(begin) / 1e6;
  const std::uint64_t rss_bytes = peer::status_kib("VmRSS").value_or(0) << 10;
  const std::uint64_t private_bytes = peer::status_kib("RssAnon").value_or(0) << 10;

  Value::List sources;
  TENDON_CHECK(maps_read.wait(row_deadline()));
  maps_read.report(sources);
  if (heartbeats) {
    TENDON_CHECK(heartbeats_read.wait(row_deadline()));
    heartbeats_read.report(sources);
  }
  for (Topic& topic : topics) TENDON_CHECK(topic.publisher.close(row_deadline()));
  TENDON_TRY(json,
             to_json(Value::Map{
                 {"cpu_percent", 100 * cpu_s / elapsed_s},
                 {"rss_bytes", rss_bytes},
                 {"private_bytes", private_bytes},
                 {"latency_us_p50", static_cast<double>(maps_read.latency().percentile(50)) / 1e3},
                 {"latency_us_p99", static_cast<double>(maps_read.latency().percentile(99)) / 1e3},
                 {"sources", std::move(sources)}}));
  const std::string file = parameter(parameters, "report").as_string();
  if (!(std::ofstream(file) << json << std::flush))
    return Error{ErrorCode::system, kWhere, fmt::format("'{}' cannot be written", file)};
  return {};
}

}  // namespace tendon::cli
