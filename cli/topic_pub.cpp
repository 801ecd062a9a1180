// SPDX-License-Identifier: Apache-2.0
// `tendon topic pub`: publishes the tensors of a file.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <tendon/tensor/safetensors.hpp>
#include <thread>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "cli.topic.pub";
/// How long a signal may go unnoticed.
constexpr auto kSlice = 100ms;
/// So long subscribers have to come before anything is said of those that cannot.
constexpr auto kSilence = 1s;

/// Zenoh programs get what is published, and are no subscribers that can be waited for.
bool only_plain_peers_subscribe(FabricNode& fabric, const Publisher& publisher,
                                const TopicOptions& options) {
  if (publisher.stats().subscribers != 0) return false;
  const auto plain = fabric.node.has_plain_subscribers(options.key, kSlice);
  return plain && *plain;
}

Result<void> wait_for_subscribers(FabricNode& fabric, Publisher& publisher,
                                  const TopicOptions& options, const Interrupt& interrupt) {
  const Deadline deadline = options.patience();
  const Deadline silence(kSilence);
  bool has_said = false;
  for (;;) {
    if (!has_said && silence.has_passed() &&
        only_plain_peers_subscribe(fabric, publisher, options)) {
      say(fmt::format(
          "tendon: only plain Zenoh programs subscribe to {}, and a subscriber of Tendon is waited "
          "for; --subscribers 0 waits for none",
          shown(options.key)));
      has_said = true;
    }
    auto there = publisher.wait_for_subscribers(options.subscriber_count,
                                                earlier(deadline, Deadline(kSlice)));
    if (interrupt.requested()) return interrupt.error(kWhere);
    if (there || there.error().code != ErrorCode::timeout || deadline.has_passed()) return there;
  }
}

Result<void> publish(const TopicOptions& options, const Interrupt& interrupt) {
  TENDON_TRY(sample, load_safetensors(options.file));
  TENDON_TRY(fabric, join_fabric(options, "topic pub"));
  TENDON_TRY(publisher, Publisher::declare(fabric.node, options.key));
  TENDON_CHECK(wait_for_subscribers(fabric, publisher, options, interrupt));
  const auto period = to_duration(1 / options.rate_hz);
  auto next = Clock::now();
  Published last;
  for (std::uint64_t n = 0; options.count == 0 || n < options.count; ++n) {
    TENDON_TRY(published, publisher.publish(sample));
    last = std::move(published);
    next += period;
    while (!interrupt.requested() && Clock::now() < next &&
           (options.count == 0 || n + 1 < options.count))
      std::this_thread::sleep_until(std::min(next, Clock::now() + kSlice));
    if (interrupt.requested()) break;  // the end that was asked for
  }
  TENDON_CHECK(publisher.close(options.patience()));
  if (options.format == Format::json) {
    print_json({{"key", options.key}, {"published", last.sequence}, {"subscribers", last.shown}});
  } else {
    print_line(fmt::format("published {} samples on {}; the last one was shown to {}",
                           last.sequence, shown(options.key), last.shown));
  }
  return {};
}

}  // namespace

int run_topic_pub(const TopicOptions& options) {
  return run_until_signal(options.format,
                          [&](Interrupt& interrupt) { return publish(options, interrupt); });
}

}  // namespace tendon::cli
