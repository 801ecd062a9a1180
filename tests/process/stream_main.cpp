// SPDX-License-Identifier: Apache-2.0
// A publisher or a reader whose samples are accounted for:
//   stream_main publish NAME RECORD [topic=KEY,KIND,drop|block,HISTORY]... [OPTION=VALUE]...
//   stream_main read NAME REPORT [OPTION=VALUE]...
// Both take transport=shm|tcp|auto, lease=MS, seed=N, and peer=ADDR or listen=ADDR.
//
// A publisher publishes on each topic, in bursts, and counts in RECORD. KIND is small, large (100
// KB), shapes (each differs from the one before) or mixed (two schemas in turn). wait=N: waits for
// N subscribers first; reopen=N: closes each topic after about N samples, and declares it again;
// pace=US: pauses between bursts; publish_bytes=N. "quit" closes in order.
//
// A reader takes all topics, checks them in a StreamLedger, and appends each end and each fault to
// REPORT. window, held, max_age [ms], max_hz, newest, schema: its SubscriberOptions; keep=N: it
// keeps N samples; nap=US: it pauses after each sample; sleep=MS: it pauses this long now and then.
// "open": "ok" and how many streams have not ended; "finish": "ok", and the REPORT is complete.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "process/mapped_record.hpp"
#include "process/stop_signal.hpp"
#include "process/stream_ledger.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"

namespace tendon::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

[[noreturn]] void fail(const std::string& what) {
  std::cerr << what << std::endl;
  std::exit(1);
}

class Options {
 public:
  explicit Options(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const auto at = word.find('=');
      values_.emplace(word.substr(0, at), word.substr(at + 1));
    }
  }
  [[nodiscard]] std::vector<std::string> all(const std::string& name) const {
    std::vector<std::string> found;
    for (auto [at, end] = values_.equal_range(name); at != end; ++at) found.push_back(at->second);
    return found;
  }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise = {}) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  [[nodiscard]] std::uint64_t number(const std::string& name, std::uint64_t otherwise = 0) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::stoull(found->second);
  }
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }

 private:
  std::multimap<std::string, std::string> values_;
};

Context context_of(const std::string& name, const Options& options) {
  const auto transport = parse_word<Transport>(options.text("transport", "auto"));
  auto context = Context::create({.name = name,
                                  .transport = transport.value(),
                                  .lease = milliseconds(options.number("lease", 3000)),
                                  .publish_bytes = options.number("publish_bytes")});
  if (!context) fail(context.error().message());
  return *std::move(context);
}

Node node_of(Context& context, const std::string& name, const Options& options) {
  auto node =
      Node::join(context,
                 {.domain = "soak",
                  .name = name,
                  .peers = options.all("peer"),
                  .listen = options.text("listen"),
                  .security = {options.has("strangers") ? Profile::plaintext : Profile::local}},
                 milliseconds(20'000));
  if (!node) fail(node.error().message());
  return *std::move(node);
}

// Samples whose content follows from their sequence

TensorDict sample_of(const std::string& kind, std::uint64_t sequence) {
  if (kind == "small" || (kind == "mixed" && sequence % 2 == 0))
    return numbered(static_cast<std::int64_t>(sequence));
  if (kind == "large") return patterned(sequence, 100'000);
  if (kind == "shapes") return patterned(sequence, 1 + sequence * 7919 % 20'011);
  return patterned(sequence, 64);
}

bool is_right(const TensorDict& sample, std::uint64_t sequence) {
  if (sample.find("n")) return number_of(sample) == static_cast<std::int64_t>(sequence);
  const auto x = sample.find("x");
  return x && has_pattern(x->bytes(), sequence);
}

/// One topic, declared again and again.
class Topic {
 public:
  struct Spec {
    std::string key;
    std::string kind;
    bool blocks = false;
    std::uint32_t history = 1;
  };
  static Spec spec_of(std::string text) {
    for (char& c : text)
      if (c == ',') c = ' ';
    std::istringstream words(text);
    Spec spec;
    std::string overflow;
    words >> spec.key >> spec.kind >> overflow >> spec.history;
    spec.blocks = overflow == "block";
    return spec;
  }

  Topic(Node& node, MappedRecord<PublisherRecord>& record, Spec spec, const Options& options,
        std::uint64_t seed)
      : node_(node),
        record_(record),
        spec_(std::move(spec)),
        readers_(options.number("wait")),
        reopen_(options.number("reopen")),
        pace_us_(options.number("pace")),
        random_(seed) {}

  void run(StopSignal& quit) {
    while (!quit.requested()) live(quit);
  }

 private:
  void live(StopSignal& quit) {
    auto [publisher, life] = declare();
    if (readers_ != 0) {
      const auto there = publisher->wait_for_subscribers(readers_, milliseconds(20'000));
      if (!there) fail(there.error().message());
    }
    const std::uint64_t most = reopen_ == 0 ? ~std::uint64_t{0} : 1 + random_() % (2 * reopen_);
    std::uint64_t burst = 0;
    for (std::uint64_t n = 1; n <= most && !quit.requested();) {
      if (burst-- == 0) {
        burst = random_() % 100;
        if (pace_us_ != 0) quit.wait_for(microseconds(random_() % (2 * pace_us_)));
      }
      life->started = n;
      const auto shown =
          publisher->publish(sample_of(spec_.kind, n), milliseconds(spec_.blocks ? 20 : 0));
      if (!shown) {
        life->started = n - 1;
        if (shown.error().code != ErrorCode::resource_exhausted) fail(shown.error().message());
        quit.wait_for(milliseconds(1));
        continue;
      }
      if (shown->sequence != n) fail("a sequence that is not the next one");
      life->returned = n++;
    }
    life->closed = 1;
    (void)publisher->close(milliseconds(500));
  }
  std::pair<std::optional<Publisher>, PublisherRecord::Life*> declare() {
    // Entities are numbered in the order of their declaration.
    static std::mutex mutex;
    static std::uint32_t count = 0;
    const std::lock_guard lock(mutex);
    auto publisher = Publisher::declare(
        node_, spec_.key,
        {.qos = {.history = keep_last(spec_.history),
                 .overflow = spec_.blocks ? Overflow::block : Overflow::drop_oldest},
         .schema = spec_.kind == "small" && spec_.blocks ? numbered(0).schema() : nullptr});
    if (!publisher) fail(publisher.error().message());
    if (++count >= PublisherRecord::kMostLives) fail("too many lives");
    return {*std::move(publisher), &record_->lives[count]};
  }

  Node& node_;
  MappedRecord<PublisherRecord>& record_;
  const Spec spec_;
  const std::uint64_t readers_;
  const std::uint64_t reopen_;
  const std::uint64_t pace_us_;
  std::mt19937_64 random_;
};

int publish(const std::string& name, const std::string& record_path, const Options& options) {
  MappedRecord<PublisherRecord> record(record_path);
  Context context = context_of(name, options);
  record->incarnation = detail::ContextCore::of(context)->identity().incarnation;
  std::cout << "ready" << std::endl;
  Node node = node_of(context, name, options);
  StopSignal quit;
  std::vector<std::thread> threads;
  std::uint64_t seed = options.number("seed");
  for (const std::string& text : options.all("topic")) {
    threads.emplace_back([&, text, own = seed++] {
      Topic(node, record, Topic::spec_of(text), options, own).run(quit);
    });
  }
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
  }
  quit.request();
  for (std::thread& thread : threads) thread.join();
  std::cout << "ok" << std::endl;
  return 0;
}

class Reader {
 public:
  Reader(Node& node, const std::string& report, const Options& options)
      : report_(report, std::ios::app),
        record_(report + ".record"),
        ledger_(options.has("max_hz") || options.has("newest") || options.has("max_age")
                    ? StreamLedger::Holes::allowed
                    : StreamLedger::Holes::none,
                [this](const std::string& what) {
                  report_ << "wrong " << what << std::endl;
                  ++record_->wrong;
                }),
        keep_(options.number("keep")),
        nap_us_(options.number("nap")),
        sleep_ms_(options.number("sleep")),
        random_(options.number("seed")) {
    SubscriberOptions wanted{.window = static_cast<std::uint32_t>(options.number("window", 16)),
                             .max_held = static_cast<std::uint32_t>(options.number("held", 4)),
                             .ends = true};
    if (options.has("max_age")) wanted.max_age = milliseconds(options.number("max_age"));
    if (options.has("max_hz")) wanted.max_hz = static_cast<double>(options.number("max_hz"));
    if (options.has("newest")) wanted.newest_only = true;
    if (options.has("schema")) wanted.schema = numbered(0).schema();
    // Set before any event can happen.
    node.on_event([this](const FabricEvent& event) {
      const std::lock_guard lock(mutex_);
      ledger_.on_event(event);
      record_->came = ledger_.came();
    });
    auto subscriber = Subscriber::declare(node, "soak/**", wanted);
    if (!subscriber) fail(subscriber.error().message());
    subscriber_.emplace(*std::move(subscriber));
  }

  void run() {
    while (!quit_.requested()) {
      auto sample = subscriber_->recv(milliseconds(50));
      if (!sample) {
        if (sample.error().code != ErrorCode::timeout) fail(sample.error().message());
        continue;
      }
      take(*std::move(sample));
      if (hurry_) continue;
      if (nap_us_ != 0) quit_.wait_for(microseconds(nap_us_));
      if (sleep_ms_ != 0 && random_() % 500 == 0) quit_.wait_for(milliseconds(sleep_ms_));
    }
  }
  std::string act(const std::string& verb) {
    if (verb == "open") {
      hurry_ = true;
      const std::lock_guard lock(mutex_);
      return "ok " + std::to_string(ledger_.open_count());
    }
    if (verb != "finish") return "error unknown " + verb;
    const std::lock_guard lock(mutex_);
    ledger_.finish();
    const SubscriberStats stats = subscriber_->stats();
    report_ << "stats thinned " << stats.thinned << " superseded " << stats.superseded << std::endl;
    if (ledger_.hole_count() > stats.thinned + stats.superseded + at_ends_) {
      report_ << "wrong " << ledger_.hole_count() << " samples are nowhere; counted "
              << stats.thinned << " thinned, " << stats.superseded << " superseded, " << at_ends_
              << " at ends" << std::endl;
      ++record_->wrong;
    }
    return "ok";
  }
  void stop() { quit_.request(); }

 private:
  void take(Sample sample) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t holes = ledger_.hole_count();
    ledger_.on_sample(sample);
    if (sample.ended) {
      const tendon::Ended& ended = *sample.ended;
      at_ends_ += ledger_.hole_count() - holes;
      report_ << "ended " << ended.incarnation << ' ' << ended.entity << ' ' << ended.last_seen
              << ' ' << ended.last_published << ' ' << (ended.exact ? "exact" : "at_least") << ' '
              << to_string(ended.reason) << std::endl;
    } else {
      check(sample);
      kept_.push_back(std::move(sample));
    }
    // The samples that it kept still have their content.
    for (; kept_.size() > keep_; kept_.pop_front()) check(kept_.front());
    record_->received = ledger_.received();
    record_->missing = ledger_.missing();
    record_->holes = ledger_.hole_count();
    record_->ended = ledger_.ended();
    record_->returned = ledger_.returned();
  }
  void check(const Sample& sample) {
    if (sample.tensors && is_right(*sample.tensors, sample.sequence)) return;
    report_ << "wrong content of sample " << sample.sequence << " of " << sample.key << std::endl;
    ++record_->wrong;
  }

  std::mutex mutex_;
  std::ofstream report_;
  MappedRecord<ReaderRecord> record_;
  StreamLedger ledger_;
  const std::uint64_t keep_;
  const std::uint64_t nap_us_;
  const std::uint64_t sleep_ms_;
  std::mt19937_64 random_;
  std::optional<Subscriber> subscriber_;
  std::deque<Sample> kept_;
  std::uint64_t at_ends_ = 0;  // holes before the end of a stream
  std::atomic<bool> hurry_ = false;
  StopSignal quit_;
};

int read(const std::string& name, const std::string& report, const Options& options) {
  Context context = context_of(name, options);
  Node node = node_of(context, name, options);
  Reader reader(node, report, options);
  std::cout << "ready" << std::endl;
  std::thread receiver([&] { reader.run(); });
  for (std::string line; std::getline(std::cin, line) && line != "quit";)
    std::cout << reader.act(line) << std::endl;
  reader.stop();
  receiver.join();
  return 0;
}

}  // namespace
}  // namespace tendon::test

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string role = argv[1];
  const tendon::test::Options options({argv + 4, argv + argc});
  return role == "publish" ? tendon::test::publish(argv[2], argv[3], options)
                           : tendon::test::read(argv[2], argv[3], options);
}
