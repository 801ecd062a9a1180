// SPDX-License-Identifier: Apache-2.0
// `tendon topic pub`: publishes the tensors of a file, or its bytes.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <thread>
#include <utility>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "cli.topic.pub";
/// How long a signal may stay unnoticed.
constexpr auto kSlice = 100ms;

Result<void> wait_for_subscribers(Publisher& publisher, const TopicOptions& options,
                                  const Interrupt& interrupt) {
  const Deadline deadline = options.patience();
  for (;;) {
    auto there = publisher.wait_for_subscribers(options.subscriber_count,
                                                earlier(deadline, Deadline(kSlice)));
    if (interrupt.requested()) return interrupt.error(kWhere);
    if (there || there.error().code != ErrorCode::timeout || deadline.has_passed()) return there;
  }
}

Result<std::string> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size > static_cast<std::streamoff>(kMaxPlainBytes)) {
    return Error{ErrorCode::message_too_large, kWhere,
                 path + " has " + std::to_string(size) + " bytes; at most " +
                     std::to_string(kMaxPlainBytes) + " are published with --encoding"};
  }
  std::string bytes(size < 0 ? 0 : static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (size < 0 || !file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return Error{ErrorCode::not_found, kWhere, path + " cannot be read: name a file"};
  }
  return bytes;
}

/// Publishes one sample.
using PublishOne = std::function<Result<Published>(Publisher&)>;

Result<PublishOne> read_sample(const TopicOptions& options) {
  if (options.encoding) {
    TENDON_TRY(bytes, bytes_of(options.file));
    return PublishOne([bytes = std::move(bytes)](Publisher& publisher) {
      return publisher.publish(as_bytes(bytes));
    });
  }
  TENDON_TRY(tensors, load_safetensors(options.file));
  return PublishOne(
      [tensors = std::move(tensors)](Publisher& publisher) { return publisher.publish(tensors); });
}

Result<void> publish(const TopicOptions& options, const Interrupt& interrupt) {
  TENDON_TRY(publish_one, read_sample(options));
  TENDON_TRY(fabric, join_fabric(options, "topic pub"));
  const PublisherOptions how{
      .plain_peers = options.sink == TopicSink::bare ? PlainPeers::bare : PlainPeers::automatic,
      .encoding = options.encoding.value_or("")};
  TENDON_TRY(publisher, Publisher::declare(fabric.node, options.key, how));
  TENDON_CHECK(wait_for_subscribers(publisher, options, interrupt));
  const auto period = to_duration(1 / options.rate_hz);
  auto next = Clock::now();
  Published last;
  for (std::uint64_t n = 0; options.count == 0 || n < options.count; ++n) {
    TENDON_TRY(published, publish_one(publisher));
    last = std::move(published);
    next += period;
    while (!interrupt.requested() && Clock::now() < next &&
           (options.count == 0 || n + 1 < options.count))
      std::this_thread::sleep_until(std::min(next, Clock::now() + kSlice));
    if (interrupt.requested()) break;  // the requested end
  }
  TENDON_CHECK(publisher.close(options.patience()));
  const std::uint64_t put_count = publisher.stats().plain_put;
  if (options.format == Format::json) {
    print_json({{"key", options.key},
                {"published", last.sequence},
                {"subscribers", last.shown},
                {"plain_put", put_count}});
    return {};
  }
  const std::string by_zenoh =
      put_count == 0 ? "" : fmt::format("; {} were put for plain Zenoh peers", put_count);
  print_line(fmt::format("published {} samples on {}; the last one was shown to {}{}",
                         last.sequence, shown(options.key), last.shown, by_zenoh));
  return {};
}

}  // namespace

int run_topic_pub(const TopicOptions& options) {
  return run_until_signal(options.format,
                          [&](Interrupt& interrupt) { return publish(options, interrupt); });
}

}  // namespace tendon::cli
