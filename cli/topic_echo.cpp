// SPDX-License-Identifier: Apache-2.0
// `tendon topic echo`, `hz`, `bw` and `delay`: a subscriber that prints, or that measures.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/picture.hpp"
#include "cli/sample_text.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Ages are measured with this; nothing is so old.
constexpr std::chrono::nanoseconds kAnyAge = std::chrono::hours(24 * 365);

/// So long a reader waits in silence for a first sample, while it knows of no publisher.
constexpr auto kSilence = 1s;

/// So many keys are named where nobody publishes on the one that was asked for.
constexpr std::size_t kKeysNamed = 3;

/// How much two keys have in common: what they begin and end with.
std::size_t likeness(std::string_view one, std::string_view other) {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(one.size(), other.size()));
  const auto front = std::mismatch(one.begin(), one.begin() + shorter, other.begin()).first;
  const std::ptrdiff_t same = front - one.begin();
  const auto back = std::mismatch(one.rbegin(), one.rbegin() + (shorter - same), other.rbegin());
  return static_cast<std::size_t>(same + (back.first - one.rbegin()));
}

/// "; published are a, b", the most like it first; empty: none is published.
std::string published_keys(Node& node, const std::string& wanted) {
  (void)node.survey(kSilence);  // what is known by then is named
  std::vector<std::string> keys;
  for (const EntityInfo& publisher : node.publishers())
    if (keys.empty() || keys.back() != publisher.key) keys.push_back(publisher.key);
  if (keys.empty()) return {};
  std::ranges::stable_sort(keys, std::greater(),
                           [&](const std::string& key) { return likeness(key, wanted); });
  keys.resize(std::min(keys.size(), kKeysNamed));
  std::string text = "; published are ";
  for (std::string_view separator; const std::string& key : keys)
    text.append(std::exchange(separator, ", ")).append(shown(key));
  return text;
}

/// A reader of a topic: what it asks for, and what it does with what comes.
struct Reader {
  SubscriberOptions subscriber;
  /// Keys that may be meant where nobody publishes; empty: none.
  std::string_view hint;
  std::function<void(const FabricEvent&)> on_event;
  std::function<void(const Sample&)> on_sample;
  std::function<void(const Sample&)> on_end;  ///< Sample::ended is set
  std::function<void()> at_last;
};

/// As recv(); says, while it waits, when no node publishes on the key.
Result<Sample> first_sample(Node& node, Subscriber& subscriber, const TopicOptions& options,
                            std::string_view hint) {
  const Deadline deadline = options.patience_for_sample();
  auto sample = subscriber.recv(earlier(deadline, Deadline(kSilence)));
  if (sample || sample.error().code != ErrorCode::timeout || deadline.has_passed()) return sample;
  if (subscriber.stats().publishers == 0) {
    say(fmt::format("tendon: no node was found that publishes on {}{}{}", shown(options.key), hint,
                    published_keys(node, options.key)));
  }
  return subscriber.recv(deadline);
}

/// Receives until `options.count` samples, the timeout or a signal.
int receive(const TopicOptions& options, std::string_view verb, Reader reader) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    TENDON_TRY(fabric, join_fabric(options, verb));
    // Before there is a subscriber: its first publisher may be connected at once.
    if (reader.on_event) fabric.node.on_event(reader.on_event);
    reader.subscriber.ends = true;
    TENDON_TRY(declared, Subscriber::declare(fabric.node, options.key, reader.subscriber));
    const Interrupt::Guard end_on_signal(interrupt, [&] { declared.close(); });
    bool is_first = true;
    for (std::uint64_t n = 0; options.count == 0 || n < options.count;) {
      auto sample = std::exchange(is_first, false)
                        ? first_sample(fabric.node, declared, options, reader.hint)
                        : declared.recv(options.patience_for_sample());
      if (interrupt.requested()) break;  // the end that was asked for
      if (!sample) return std::move(sample).error();
      if (sample->ended) {
        reader.on_end(*sample);
      } else {
        reader.on_sample(*sample);
        ++n;
      }
    }
    reader.at_last();
    return {};
  });
}

void say_end(const Ended& ended) {
  std::ostringstream words;
  words << "tendon: " << ended;
  say(words.str());
}

std::uint64_t size_of(const Sample& sample) {
  return sample.tensors ? sample.tensors->size_bytes() : sample.bytes.size_bytes();
}

/// Figures of the samples since the last line, and of all.
class Series {
 public:
  void add(double value) {
    values_.push_back(value);
    sum_ += value;
  }
  [[nodiscard]] std::size_t count() const { return values_.size(); }
  [[nodiscard]] double mean() const { return sum_ / static_cast<double>(count()); }
  [[nodiscard]] double min() const { return *std::ranges::min_element(values_); }
  [[nodiscard]] double max() const { return *std::ranges::max_element(values_); }
  [[nodiscard]] double deviation() const {
    double squares = 0;
    for (const double value : values_) squares += (value - mean()) * (value - mean());
    return std::sqrt(squares / static_cast<double>(count()));
  }

 private:
  std::vector<double> values_;
  double sum_ = 0;
};

/// Prints one line a second, and one at the end, of what came since the last line.
class Meter {
 public:
  Meter(const TopicOptions& options, TopicMeasure measure) : options_(options), measure_(measure) {}

  void add(const Sample& sample) {
    const auto now = Clock::now();
    if (last_ != Clock::time_point()) {
      periods_.add(std::chrono::duration<double>(now - last_).count());
    } else {
      since_ = now;
    }
    last_ = now;
    sizes_.add(static_cast<double>(size_of(sample)));
    if (sample.age) ages_.add(static_cast<double>(sample.age->count()) * 1e-9);
    add_gaps(sample);
    if (now - since_ >= 1s) print();
  }
  void add_gaps(const Sample& sample) {
    for (const Gap& gap : sample.gaps) missed_ += gap.count();
  }

  void print() {
    if (sizes_.count() == 0) return;
    options_.format == Format::json ? print_document() : print_words();
    periods_ = {};
    sizes_ = {};
    ages_ = {};
    missed_ = 0;
    since_ = last_;
  }

 private:
  [[nodiscard]] const Series& series() const {
    return measure_ == TopicMeasure::rate        ? periods_
           : measure_ == TopicMeasure::bandwidth ? sizes_
                                                 : ages_;
  }
  /// Samples in a second; none with one sample alone.
  [[nodiscard]] double rate() const { return periods_.count() == 0 ? 0 : 1 / periods_.mean(); }

  void print_words() const {
    const std::string tail = missed_ == 0 ? "" : fmt::format("  missed {}", missed_);
    const Series& values = series();
    std::string text;
    if (values.count() == 0) {
      text = fmt::format("{} samples{}", sizes_.count(), tail);
    } else if (measure_ == TopicMeasure::bandwidth) {
      text =
          fmt::format("{}  mean {}  min {}  max {}  samples {}{}",
                      format_rate(rate() * sizes_.mean()), format_bytes(sizes_.mean()),
                      format_bytes(sizes_.min()), format_bytes(sizes_.max()), sizes_.count(), tail);
    } else {
      const std::string front =
          measure_ == TopicMeasure::rate ? format_number(rate()) + " Hz" : "age";
      text = fmt::format("{}  mean {}  min {}  max {}  std dev {}  samples {}{}", front,
                         format_seconds(values.mean()), format_seconds(values.min()),
                         format_seconds(values.max()), format_seconds(values.deviation()),
                         sizes_.count(), tail);
    }
    print_line(text);
  }

  void print_document() const {
    Value::Map document{{"samples", sizes_.count()}, {"missed", missed_}};
    if (measure_ == TopicMeasure::rate) document.emplace_back("hz", rate());
    if (measure_ == TopicMeasure::bandwidth)
      document.emplace_back("bytes_per_s", rate() * sizes_.mean());
    const Series& values = series();
    if (values.count() != 0) {
      const std::string unit = measure_ == TopicMeasure::bandwidth ? "_bytes" : "_s";
      document.emplace_back("mean" + unit, values.mean());
      document.emplace_back("min" + unit, values.min());
      document.emplace_back("max" + unit, values.max());
      document.emplace_back("deviation" + unit, values.deviation());
    }
    print_json(std::move(document));
  }

  const TopicOptions& options_;
  const TopicMeasure measure_;
  Clock::time_point since_;
  Clock::time_point last_;
  Series periods_;
  Series sizes_;
  Series ages_;
  std::uint64_t missed_ = 0;
};

}  // namespace

int run_topic_echo(const TopicOptions& options) {
  const Pictures pictures = stdout_shows_pictures() ? Pictures::blocks : Pictures::none;
  const auto print = [&](const Sample& sample) {
    if (options.format == Format::json) {
      print_json(sample_document(sample));
    } else {
      print_sample(sample, pictures);
    }
  };
  const auto print_end = [&](const Sample& sample) {
    if (options.format == Format::json) {
      print_json(sample_document(sample));
    } else {
      print_gaps(sample);
    }
    say_end(*sample.ended);
  };
  const auto say_came = [](const FabricEvent& event) {
    if (event.kind != FabricEventKind::came) return;
    say(fmt::format("tendon: {} publishes on {}: {}", shown(event.node), shown(event.key),
                    shown(event.reason)));
  };
  SubscriberOptions subscriber{.newest_only = false};
  if (options.sources == TopicSources::plain_too) {
    subscriber.plain = true;  // without ages, which plain samples do not have
    subscriber.plain_content = PlainContent::both;
  } else {
    subscriber.max_age = kAnyAge;
  }
  return receive(options, "topic echo",
                 {.subscriber = subscriber,
                  .hint = options.sources == TopicSources::plain_too
                              ? "; waiting for it, and for plain Zenoh peers"
                              : "; --plain hears plain Zenoh peers, too",
                  .on_event = say_came,
                  .on_sample = print,
                  .on_end = print_end,
                  .at_last = [] {}});
}

int run_topic_measure(const TopicOptions& options, TopicMeasure measure) {
  Meter meter(options, measure);
  SubscriberOptions subscriber;
  subscriber.newest_only = false;
  if (measure == TopicMeasure::delay) subscriber.max_age = kAnyAge;
  return receive(options, "topic",
                 {.subscriber = subscriber,
                  .hint = {},
                  .on_event = {},
                  .on_sample = [&](const Sample& sample) { meter.add(sample); },
                  .on_end =
                      [&](const Sample& sample) {
                        meter.add_gaps(sample);
                        say_end(*sample.ended);
                      },
                  .at_last = [&] { meter.print(); }});
}

}  // namespace tendon::cli
