// SPDX-License-Identifier: Apache-2.0
// `tendon topic echo`, `hz`, `bw` and `delay`: a subscriber that prints, or that measures.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tendon/fabric/key_expression.hpp>
#include <utility>
#include <vector>

#include "cli/fabric_node.hpp"
#include "cli/fabric_talk.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/picture.hpp"
#include "cli/sample_text.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The limit for ages that are measured; no sample is older.
constexpr std::chrono::nanoseconds kAnyAge = std::chrono::hours(24 * 365);

/// How long a reader waits in silence before it says what it waits for.
constexpr auto kSilence = 1s;

/// How many keys are named where nobody publishes on the requested key.
constexpr std::size_t kKeysNamed = 3;

/// The length of the common beginning and end of two keys.
std::size_t likeness(std::string_view one, std::string_view other) {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(one.size(), other.size()));
  const auto front = std::mismatch(one.begin(), one.begin() + shorter, other.begin()).first;
  const std::ptrdiff_t same = front - one.begin();
  const auto back = std::mismatch(one.rbegin(), one.rbegin() + (shorter - same), other.rbegin());
  return static_cast<std::size_t>(same + (back.first - one.rbegin()));
}

/// "; published are a, b", the most similar first; empty where none is published.
std::string published_keys(Node& node, const std::string& wanted) {
  (void)node.survey(kSilence);  // names the keys that are known by then
  std::vector<std::string> keys;
  for (const EntityInfo& publisher : node.publishers())
    if (keys.empty() || keys.back() != publisher.key) keys.push_back(publisher.key);
  if (keys.empty()) return {};
  std::ranges::stable_sort(keys, std::greater(),
                           [&](const std::string& key) { return likeness(key, wanted); });
  keys.resize(std::min(keys.size(), kKeysNamed));
  std::string text = "; published are ";
  for (std::string_view separator; const std::string& key : keys)
    text.append(std::exchange(separator, ", ")).append(key);
  return text;
}

/// When a reader says that no sample arrives.
enum class Silence : std::uint8_t { before_the_first, always };

/// A reader of a topic: its options, and its handling of samples.
struct Reader {
  SubscriberOptions subscriber;
  /// Suggests keys where nobody publishes; empty: none.
  std::string_view hint;
  Silence silence = Silence::always;
  std::function<void(const Sample&)> on_sample;
  std::function<void(const Sample&)> on_end;  ///< Sample::ended is set
  std::function<void()> at_last;
};

/// Whether discovery knows a publisher on one of the keys.
bool somebody_publishes(const Node& node, const std::string& wanted) {
  const auto keys = KeyExpression::canonize(wanted);
  return keys && std::ranges::any_of(node.publishers(), [&](const EntityInfo& publisher) {
           const auto own = KeyExpression::parse(publisher.key);
           return own && keys->intersects(*own);
         });
}

/// Says what the reader waits for.
void say_silence(FabricNode& fabric, const Subscriber& subscriber, const TopicOptions& options,
                 std::string_view hint, FabricTalk& talk) {
  const std::size_t count = subscriber.stats().publishers;
  if (count != 0) {
    return talk.say("silence", fmt::format("nothing came on {} for {} s; publishers: {}",
                                           options.key, kSilence.count(), count));
  }
  if (somebody_publishes(fabric.node, options.key))
    return talk.say("silence", options.key + ": found, and not connected yet");
  if (!talk.may_say("nobody")) return;
  FabricTalk::say_now(fmt::format("no node was found that publishes on {}{}{}", options.key, hint,
                                  published_keys(fabric.node, options.key)));
  if (fabric.node.nodes().size() <= 1) say_nobody_found(fabric, options);
}

/// As recv(), but calls `on_silence` again and again while it waits.
template <class F>
Result<Sample> next_sample(Subscriber& subscriber, Deadline deadline, F on_silence) {
  for (;;) {
    auto sample = subscriber.recv(earlier(deadline, Deadline(kSilence)));
    if (sample || sample.error().code != ErrorCode::timeout || deadline.has_passed()) return sample;
    on_silence();
  }
}

/// Receives until `options.count` samples, the timeout or a signal.
int receive(const TopicOptions& options, std::string_view verb, Reader reader) {
  return run_until_signal(options.format, [&](Interrupt& interrupt) -> Result<void> {
    TENDON_TRY(fabric, join_fabric(options, verb));
    const auto talk = std::make_shared<FabricTalk>();  // an event may arrive after this call
    // Set before there is a subscriber: its first publisher may connect at once.
    fabric.node.on_event([talk](const FabricEvent& event) { talk->tell(event); });
    reader.subscriber.ends = true;
    TENDON_TRY(declared, Subscriber::declare(fabric.node, options.key, reader.subscriber));
    const Interrupt::Guard end_on_signal(interrupt, [&] { declared.close(); });
    bool had_one = false;
    const auto on_silence = [&] {
      if (had_one && reader.silence == Silence::before_the_first) return;
      say_silence(fabric, declared, options, reader.hint, *talk);
    };
    for (std::uint64_t n = 0; options.count == 0 || n < options.count;) {
      auto sample = next_sample(declared, options.patience_for_sample(), on_silence);
      if (interrupt.requested()) break;  // the requested end
      if (!sample) return std::move(sample).error();
      had_one = true;
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
  words << ended;
  FabricTalk::say_now(words.str());
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

/// Prints one line a second, and one at the end, about the samples since the last line.
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
  /// Samples a second; 0 with one sample alone.
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
  SubscriberOptions subscriber{.newest_only = false};
  if (options.sources == TopicSources::plain_too) {
    subscriber.hears_plain = true;  // without ages, which plain samples do not have
    subscriber.plain_content = PlainContent::both;
  } else {
    subscriber.max_age = kAnyAge;
  }
  return receive(options, "topic echo",
                 {.subscriber = subscriber,
                  .hint = options.sources == TopicSources::plain_too
                              ? "; waiting for it, and for plain Zenoh peers"
                              : "; --plain hears plain Zenoh peers, too",
                  .silence = Silence::before_the_first,
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
                  .on_sample = [&](const Sample& sample) { meter.add(sample); },
                  .on_end =
                      [&](const Sample& sample) {
                        meter.add_gaps(sample);
                        say_end(*sample.ended);
                      },
                  .at_last = [&] { meter.print(); }});
}

}  // namespace tendon::cli
