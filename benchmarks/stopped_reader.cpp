// SPDX-License-Identifier: Apache-2.0
//
// A publisher and three subscribers, each a process of its own on one host. They run alone, or with
// a fourth subscriber that is stopped (SIGSTOP) before the measurement. `lost` counts the samples
// that the three missed; `rss_mib` is the largest growth of the publisher's resident memory.
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>
#include <utility>

#include "own_process.hpp"
#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Node;
using tendon::TensorDict;

constexpr auto kLimit = 60s;
constexpr std::uint64_t kPublishBytes = 2ull << 30;
constexpr const char* kKey = "stream";
constexpr const char* kLast = "last";

/// A subscriber's process: reports its first sample, and after the last one how many it missed.
struct Reader {
  std::string name;
  peer::Words at;
  peer::Words said;
  pid_t process = 0;

  void run() const {
    const std::string address = at.read_text();
    Context context =
        Context::create({.name = name, .wait_policy = tendon::WaitPolicy::blocking}).value();
    Node node = Node::join(context,
                           {.domain = "bench", .name = name, .peers = std::vector{address}}, kLimit)
                    .value();
    tendon::Subscriber subscriber = tendon::Subscriber::declare(node, kKey).value();
    std::uint64_t lost = 0;
    for (std::uint64_t last = 0;;) {
      const tendon::Sample sample = subscriber.recv(kLimit).value();
      if (last == 0) said.write(sample.sequence);
      if (last != 0) lost += sample.sequence - last - 1;
      last = sample.sequence;
      if (sample.tensors->find_value(kLast)) break;
    }
    said.write(lost);
    (void)at.read();  // waits to be killed
  }
};

/// Publishes until the stopped `reader` lags and the publisher no longer waits for it.
void stop(const Reader& reader, tendon::Publisher& publisher, const TensorDict& content) {
  if (kill(reader.process, SIGSTOP) != 0) peer::fail_errno("kill");
  const auto give_up = peer::Clock::now() + kLimit;
  while (peer::Clock::now() < give_up) {
    const auto lagging = publisher.publish(content, 500ms).value().lagging;
    if (lagging.size() == 1 && lagging.front().starts_with(reader.name)) return;
  }
  peer::fail("the stopped subscriber is not behind");
}

peer::Result measure(std::size_t size_bytes, bool one_stops, const peer::Options& options) {
  std::vector<Reader> readers(one_stops ? 4 : 3);
  for (std::size_t n = 0; n < readers.size(); ++n) {
    readers[n].name = "reader " + std::to_string(n);
    readers[n].process = peer::spawn([&] { readers[n].run(); });
  }
  Context context = Context::create({.name = "publisher",
                                     .wait_policy = tendon::WaitPolicy::blocking,
                                     .publish_bytes = kPublishBytes})
                        .value();
  Node node = Node::join(context,
                         {.domain = "bench",
                          .name = "publisher",
                          .peers = std::vector<std::string>{},
                          .listen = "127.0.0.1:0"},
                         kLimit)
                  .value();
  for (const Reader& reader : readers) reader.at.write_text(node.address());
  tendon::Publisher publisher =
      tendon::Publisher::declare(node, kKey, {.qos = {.overflow = tendon::Overflow::block}})
          .value();
  publisher.wait_for_subscribers(readers.size(), kLimit).value();
  TensorDict content;
  content.set(
      "x",
      tendon::Tensor::zeros(tendon::DType::u8, {static_cast<std::int64_t>(size_bytes)}).value());
  const std::uint64_t start_kib = peer::status_kib("VmRSS").value();
  (void)publisher.publish(content, kLimit).value();
  for (const Reader& reader : readers) (void)reader.said.read();
  if (one_stops) stop(readers.back(), publisher, content);
  // Touches the memory of all messages that are in flight.
  for (std::size_t i = 0; i < options.warm_up_for(size_bytes); ++i)
    (void)publisher.publish(content, kLimit).value();

  std::vector<double> samples_us(options.iterations_for(size_bytes));
  const auto begun = peer::Clock::now();
  for (double& sample : samples_us) {
    const auto before = peer::Clock::now();
    if (&sample == &samples_us.back()) content.set(kLast, tendon::Value(true));
    (void)publisher.publish(content, kLimit).value();
    sample = peer::elapsed_us(before, peer::Clock::now());
  }
  std::uint64_t lost = 0;
  for (std::size_t n = 0; n < 3; ++n) lost += readers[n].said.read();
  const double all_us = peer::elapsed_us(begun, peer::Clock::now());
  const double moved = static_cast<double>(size_bytes * samples_us.size());
  peer::Result result = peer::summarize("topic shm", one_stops ? "3 beside a stopped one" : "3",
                                        size_bytes, samples_us);
  result.rate_gb_per_s = moved / all_us / 1e3;
  const auto grown_kib =
      static_cast<double>(peer::status_kib("VmHWM").value()) - static_cast<double>(start_kib);
  result.more = {{"lost", static_cast<double>(lost)}, {"rss_mib", grown_kib / 1024}};
  for (const Reader& reader : readers) peer::end_by_kill(reader.process);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options =
      peer::parse_options(argc, argv, {.begin_bytes = 1024}, {"--stopped"});
  // Each process measures one size: memory of an earlier size would count.
  const peer::Result result =
      measure(options.begin_bytes, options.extra_or("--stopped", "no") == "yes", options);
  peer::print_json("stopped_reader", std::span(&result, 1));
}
