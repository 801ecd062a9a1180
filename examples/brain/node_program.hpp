// SPDX-License-Identifier: Apache-2.0
// The common part of the brain's C++ nodes; node_program.py is the same in Python. A node joins,
// reads each of its topics on a thread of its own, and acts at the ticks of its own clock. It
// publishes a heartbeat with the samples that it received and missed, and with the fate of other
// nodes.
//
// A node ends in order at the end of its standard input, and therefore with the program that
// started it. It also ends at SIGTERM, by which containers are stopped.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tendon/observe/histogram.hpp>
#include <tendon/tendon.hpp>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace brain {

using namespace std::chrono_literals;
using tendon::Value;

inline constexpr auto kPatience = 10s;
inline constexpr std::uint32_t kHistory = 256;
inline constexpr std::uint32_t kWindow = 128;
inline constexpr std::uint64_t kHistory_ns = 1'000'000'000;

/// Set by SIGTERM.
inline std::atomic<bool> told_to_end{false};
static_assert(std::atomic<bool>::is_always_lock_free);

/// The clock of Sample::stamp, in nanoseconds.
inline std::uint64_t boottime_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Reads one topic, or a set of topics, on a thread of its own, and counts the samples.
class Inbox {
 public:
  using OnSample = std::function<void(const tendon::Sample&)>;

  /// The thread of this inbox calls `on_sample`.
  Inbox(tendon::Node& node, std::string_view keys, tendon::SubscriberOptions options,
        OnSample on_sample)
      : subscriber_(tendon::Subscriber::declare(node, keys, options).value()),
        on_sample_(std::move(on_sample)),
        thread_([this](const std::stop_token& stop) { read(stop); }) {}

  /// The counts of received and missed samples for each publisher and each of its incarnations.
  [[nodiscard]] Value::List report() const {
    const std::lock_guard lock(mutex_);
    Value::List list;
    for (const auto& [name, source] : sources_) {
      Value::Map missed;
      for (const auto& [reason, count] : source.missed)
        missed.emplace_back(std::string(to_string(reason)), count);
      list.emplace_back(Value::Map{
          {"key", std::get<0>(name)},
          {"publisher", std::get<1>(name)},
          {"incarnation", std::get<2>(name)},
          {"first", source.first},
          {"last", source.last},
          {"received", source.received},
          {"missed", std::move(missed)},
          {"timed", source.latency.count()},
          {"p50_us", static_cast<double>(source.latency.percentile(50)) / 1e3},
          {"p99_us", static_cast<double>(source.latency.percentile(99)) / 1e3},
      });
    }
    return list;
  }

 private:
  struct Source {
    std::uint64_t timed_from_ns = 0;  ///< by then its old history has been read
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t received = 0;
    std::map<tendon::GapReason, std::uint64_t> missed;
    tendon::Histogram latency;
  };

  void read(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      auto sample = subscriber_.recv(100ms);
      if (!sample) {
        if (sample.error().code == tendon::ErrorCode::timeout) continue;
        std::cerr << sample.error().message() << "\n";
        return;
      }
      count(*sample);
      on_sample_(*sample);
    }
  }

  void count(const tendon::Sample& sample) {
    const std::uint64_t now_ns = boottime_ns();
    const std::lock_guard lock(mutex_);
    Source& source = sources_[{sample.key, sample.publisher, sample.incarnation}];
    if (source.received == 0) {
      source.timed_from_ns = now_ns + kHistory_ns;
      source.first = sample.gaps.empty() ? sample.sequence : sample.gaps.front().first;
    }
    source.last = sample.sequence;
    ++source.received;
    for (const tendon::Gap& gap : sample.gaps) source.missed[gap.reason] += gap.count();
    if (sample.stamp >= source.timed_from_ns && sample.stamp <= now_ns)
      source.latency.record(now_ns - sample.stamp);
  }

  tendon::Subscriber subscriber_;
  OnSample on_sample_;
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, std::uint64_t>, Source> sources_;
  std::jthread thread_;  // the last member, so that it ends before the members that it uses
};

class NodeProgram {
 public:
  static constexpr auto kTick = 10ms;  ///< 100 Hz

  explicit NodeProgram(std::string name)
      : context_(
            tendon::Context::create({.name = name, .wait_policy = tendon::WaitPolicy::blocking})
                .value()),
        node_(join(context_, name)),
        heartbeat_(publisher("heartbeat/" + name)) {
    context_.on_member([this](const tendon::MemberEvent& event) {
      note(to_string(event.kind), event.member, event.reason);
    });
    node_.on_event([this](const tendon::FabricEvent& event) {
      // Gaps are reported with samples.
      if (event.kind != tendon::FabricEventKind::gap)
        note(to_string(event.kind), event.node, event.reason);
    });
  }
  NodeProgram(const NodeProgram&) = delete;
  NodeProgram& operator=(const NodeProgram&) = delete;

  [[nodiscard]] tendon::Context& context() { return context_; }
  [[nodiscard]] tendon::Publisher publisher(std::string_view key) {
    return tendon::Publisher::declare(node_, key, {.qos = {tendon::keep_last(kHistory)}}).value();
  }
  void subscribe(std::string_view keys, Inbox::OnSample on_sample,
                 tendon::SubscriberOptions options = {.window = kWindow}) {
    inboxes_.emplace_back(node_, keys, options, std::move(on_sample));
  }

  /// Waits for the next tick of this node's own clock; false when the node must end.
  [[nodiscard]] bool tick() {
    const auto now = std::chrono::steady_clock::now();
    next_ += kTick;
    if (next_ + 10 * kTick < now) {  // the node was stopped: missed ticks are skipped
      skipped_ += static_cast<std::uint64_t>((now - next_) / kTick);
      next_ = now;
    }
    std::this_thread::sleep_until(next_);
    ++ticks_;
    return !ended();
  }

  /// Ticks without a wait: a node of a group follows the ticks of the others.
  [[nodiscard]] bool tick_with_group() {
    ++ticks_;
    return !ended();
  }

  /// Publishes the heartbeat, ten times a second. `did` is this node's report about itself.
  void beat(const Value::Map& did) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_beat_) return;
    next_beat_ = now + 100ms;
    publish_heartbeat(did);
  }

  /// Publishes the last heartbeat and closes everything that this node has.
  void leave(const Value::Map& did) {
    publish_heartbeat(did);
    inboxes_.clear();
    (void)heartbeat_.close(2s);  // the observer may have left already
    node_.close();
    (void)context_.close(2s);
  }

 private:
  static tendon::Node join(tendon::Context& context, const std::string& name) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)std::signal(SIGTERM, [](int) { told_to_end = true; });
    const char* domain = std::getenv("BRAIN_DOMAIN");
    tendon::NodeOptions options{.domain = domain == nullptr ? "brain" : domain, .name = name};
    // Without BRAIN_PEERS, nodes find each other by themselves.
    if (const char* given = std::getenv("BRAIN_PEERS")) {
      std::istringstream words(given);
      options.peers.emplace();
      for (std::string peer; words >> peer;) options.peers->push_back(peer);
    }
    if (const char* address = std::getenv("BRAIN_LISTEN")) options.listen = address;
    const char* profile = std::getenv("BRAIN_PROFILE");
    if (profile != nullptr && std::string_view(profile) == "plaintext")
      options.security.profile = tendon::Profile::plaintext;
    const char* discovery = std::getenv("BRAIN_DISCOVERY");
    if (discovery != nullptr && std::string_view(discovery) == "background")
      options.discovery = tendon::DiscoveryNeed::background;
    return tendon::Node::join(context, std::move(options), kPatience).value();
  }

  static bool ended() {
    if (told_to_end) return true;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
  }

  void note(std::string_view kind, const std::string& member, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    members_.emplace_back(Value::Map{
        {"kind", kind}, {"member", member}, {"reason", reason}, {"at_ns", boottime_ns()}});
  }

  void publish_heartbeat(const Value::Map& did) {
    Value::List inbox;
    for (const Inbox& each : inboxes_)
      for (Value& source : each.report()) inbox.push_back(std::move(source));
    Value::List members;
    {
      const std::lock_guard lock(mutex_);
      members = members_;
    }
    const Value status = Value::Map{{"pid", getpid()},
                                    {"ticks", ticks_},
                                    {"skipped", skipped_},
                                    {"inbox", std::move(inbox)},
                                    {"members", std::move(members)},
                                    {"did", did}};
    heartbeat_.publish(tendon::as_bytes(tendon::to_json(status).value())).value();
  }

  std::mutex mutex_;
  Value::List members_;  ///< events of other nodes; it outlives the Context that fills it
  tendon::Context context_;
  tendon::Node node_;
  tendon::Publisher heartbeat_;
  std::list<Inbox> inboxes_;
  std::uint64_t ticks_ = 0;
  std::uint64_t skipped_ = 0;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_beat_ = next_;
};

/// The body of main(): prints a failure and returns it as the exit code.
inline int run(void (*program)()) {
  try {
    program();
    return 0;
  } catch (const tendon::Exception& failure) {
    std::cerr << failure.error().message() << "\n";
    return tendon::error_info(failure.code()).exit_code;
  }
}

}  // namespace brain
