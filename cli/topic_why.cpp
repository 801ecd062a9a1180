// SPDX-License-Identifier: Apache-2.0
// `tendon topic info --why`: how each publisher of a key is reached, or what was tried.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "fabric/samples/event_log.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kWhere = "cli.why";

/// A publisher, as discovery names it: key and node.
using Name = std::pair<std::string, std::string>;

/// The result for one publisher.
struct Found {
  bool connected = false;
  std::string reason{};  ///< why it is not connected
  std::vector<DialAttempt> tried{};
  std::optional<Path> path{};
};

/// Collects the reasons from the node's events about publishers that are not connected.
class Failures {
 public:
  void note(const FabricEvent& event) {
    if (event.kind != FabricEventKind::unreachable &&
        event.kind != FabricEventKind::schema_mismatch)
      return;
    const detail::Lock lock(mutex_);
    found_[{event.key, event.node}] = event;
  }
  [[nodiscard]] std::map<Name, FabricEvent> all() const {
    const detail::Lock lock(mutex_);
    return found_;
  }

 private:
  mutable detail::Mutex mutex_;
  std::map<Name, FabricEvent> found_ TENDON_GUARDED_BY(mutex_);
};

void print(const Name& name, const Found& found, Format format) {
  if (format == Format::json) {
    Value::List tried;
    for (const DialAttempt& each : found.tried)
      tried.push_back(Value::Map{{"address", each.address}, {"error", each.error}});
    Value::Map document{{"key", name.first}, {"node", name.second}, {"reached", found.connected}};
    if (found.path) document.emplace_back("path", found.path->to_string());
    if (!found.connected) document.emplace_back("why", found.reason);
    document.emplace_back("tried", std::move(tried));
    return print_json(std::move(document));
  }
  const std::string front = fmt::format("{}  of {}  ", shown(name.first), shown(name.second));
  if (found.connected) {
    return print_line(front + "reached by " +
                      (found.path ? shown(found.path->to_string()) : "a link that has gone"));
  }
  print_line(front + shown(found.reason));
  for (const DialAttempt& each : found.tried)
    print_line(fmt::format("  {}  {}", shown(each.address), shown(each.error)));
}

}  // namespace

int run_topic_why(const TopicOptions& options) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    if (options.key.empty()) {
      return Error{ErrorCode::invalid_argument, kWhere,
                   "--why is about a KEY: name one, or a set, as in \"vision/**\""};
    }
    TENDON_TRY(keys, KeyExpression::canonize(options.key));
    TENDON_TRY(fabric, join_fabric(options, "topic info"));
    const auto failures = std::make_shared<Failures>();  // an event may arrive after this call
    fabric.node.on_event([failures](const FabricEvent& event) { failures->note(event); });
    TENDON_TRY(subscriber, Subscriber::declare(fabric.node, keys.text()));
    TENDON_CHECK(wait_for_picture(fabric, options, interrupt));
    std::vector<Name> publishers;
    for (const EntityInfo& entity : fabric.node.publishers()) {
      const auto own = KeyExpression::parse(entity.key);
      if (own && keys.intersects(*own)) publishers.emplace_back(entity.key, entity.node);
    }
    const Deadline deadline = options.patience();
    auto failed = failures->all();
    while (!deadline.has_passed() &&
           subscriber.stats().publishers + failed.size() < publishers.size()) {
      if (interrupt.requested()) return interrupt.error(kWhere);
      std::this_thread::sleep_for(20ms);
      failed = failures->all();
    }
    const bool all_known = subscriber.stats().publishers + failed.size() >= publishers.size();
    for (const Name& name : publishers) {
      Found found;
      if (const auto failure = failed.find(name); failure != failed.end()) {
        found.reason = detail::why_not(failure->second);
        found.tried = failure->second.tried;
      } else if (all_known) {
        found.connected = true;
        if (auto stats = fabric.node.peer_stats(name.second)) found.path = std::move(stats->path);
      } else {
        const auto stats = fabric.node.peer_stats(name.second);
        found.reason = "found, and not reached before --timeout";
        if (!stats) found.reason += ": " + stats.error().detail;
      }
      print(name, found, options.format);
    }
    return {};
  });
}

}  // namespace tendon::cli
