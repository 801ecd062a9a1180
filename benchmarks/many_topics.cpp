// SPDX-License-Identifier: Apache-2.0
//
// One process with many publishers and one with a subscriber of all of them, on one host, each
// pinned to a core: unpinned, a run has one of two medians (5 or 10 us) by the core on which the
// system wakes the reader. The latency is that of a publish() on one of the first ten topics, each
// of which has a reader. `declare_cpu_s` is the CPU time of this process for declaring all,
// `connected_s` the time from the subscriber's declaration until all are connected. `publisher_kib`
// and `subscriber_kib` are the resident memory of a channel at each side when nothing is published,
// with its publisher or with the announcement of it.
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <utility>

#include "own_process.hpp"
#include "peers/peer.hpp"

namespace {

using namespace std::chrono_literals;
using tendon::Context;
using tendon::Node;

constexpr auto kLimit = 100s;
constexpr std::size_t kPublished = 10;

Context make(const char* name) {
  return Context::create({.name = name, .wait_policy = tendon::WaitPolicy::blocking}).value();
}

/// A subscriber's process: waits for the port, and for the word to subscribe.
struct Reader {
  peer::Words port;
  peer::Words said;

  void run(std::size_t count) const {
    const std::uint64_t at = port.read();
    Context context = make("reader");
    Node node = Node::join(context,
                           {.domain = "bench",
                            .name = "reader",
                            .peers = std::vector{"127.0.0.1:" + std::to_string(at)}},
                           kLimit)
                    .value();
    const std::uint64_t before_kib = peer::status_kib("VmRSS").value();
    said.write(0);
    (void)port.read();
    const auto begun = peer::Clock::now();
    tendon::Subscriber subscriber = tendon::Subscriber::declare(node, "t/**").value();
    subscriber.wait_for_publishers(count, kLimit).value();
    said.write(static_cast<std::uint64_t>(peer::elapsed_us(begun, peer::Clock::now())));
    said.write(peer::status_kib("VmRSS").value() - before_kib);
    for (;;) (void)subscriber.recv(kLimit).value();
  }
};

peer::Result measure(std::size_t count, const peer::Options& options) {
  const Reader reader;
  const pid_t process = peer::spawn([&] {
    peer::pin_to_core(1);
    reader.run(count);
  });
  peer::pin_to_core(0);
  Context context = make("publisher");
  Node node = Node::join(context,
                         {.domain = "bench",
                          .name = "publisher",
                          .peers = std::vector<std::string>{},
                          .listen = "127.0.0.1:0"},
                         kLimit)
                  .value();
  const std::string& address = node.address();
  reader.port.write(std::stoull(address.substr(address.rfind(':') + 1)));
  (void)reader.said.read();
  const std::uint64_t before_kib = peer::status_kib("VmRSS").value();
  const double before_s = peer::cpu_s();
  std::vector<tendon::Publisher> publishers;
  publishers.reserve(count);
  for (std::size_t n = 0; n < count; ++n) {
    publishers.push_back(
        tendon::Publisher::declare(node, "t/some/topic/" + std::to_string(n)).value());
  }
  node.survey(kLimit).value();  // until it has looked at all of them itself
  const double declare_cpu_s = peer::cpu_s() - before_s;
  reader.port.write(0);
  const double connected_s = static_cast<double>(reader.said.read()) / 1e6;
  const std::uint64_t reader_kib = reader.said.read();
  for (tendon::Publisher& publisher : publishers) publisher.wait_for_subscribers(1, kLimit).value();
  const std::uint64_t own_kib = peer::status_kib("VmRSS").value() - before_kib;

  tendon::TensorDict content;
  content.set("x", tendon::Tensor::zeros(tendon::DType::u8, {64}).value());
  std::vector<double> samples_us(options.iterations);
  const std::size_t warm_up = options.warm_up_for(0);
  for (std::size_t n = 0; n < options.iterations + warm_up; ++n) {
    std::this_thread::sleep_for(100us);  // the reader has taken the last one, and sleeps
    const auto before = peer::Clock::now();
    (void)publishers[n % kPublished].publish(content).value();
    const double took_us = peer::elapsed_us(before, peer::Clock::now());
    if (n >= warm_up) samples_us[n - warm_up] = took_us;
  }
  peer::Result result =
      peer::summarize("topic shm", std::to_string(count) + " topics", 64, samples_us);
  const auto each = static_cast<double>(count);
  result.more = {{"connected_s", connected_s},
                 {"declare_cpu_s", declare_cpu_s},
                 {"publisher_kib", static_cast<double>(own_kib) / each},
                 {"subscriber_kib", static_cast<double>(reader_kib) / each}};
  peer::end_by_kill(process);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse_options(argc, argv, {.iterations = 2000}, {"--topics"});
  // A process has one number: what an earlier one took would be in its memory.
  const peer::Result result = measure(std::stoul(options.extra_or("--topics", "10000")), options);
  peer::print_json("many_topics", std::span(&result, 1));
}
