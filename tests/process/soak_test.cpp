// SPDX-License-Identifier: Apache-2.0
// Every sample of every stream of a topic is delivered, in a gap, or behind an end, whatever
// happens to publishers, readers and the wires between them. The processes of three hosts are
// killed, ended, stopped and cut off at random. TENDON_SOAK_SECONDS sets the duration,
// TENDON_SOAK_SEED repeats the choices. Without the first it needs TENDON_TEST_LONG, and runs for a
// minute.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "process/mapped_record.hpp"
#include "process/network.hpp"
#include "process/peer.hpp"
#include "process/stop_signal.hpp"
#include "process/stream_ledger.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kHosts = 3;
constexpr int kFirstPort = 7800;

// Tests of the StreamLedger itself

Sample sample_of(std::uint64_t sequence, std::vector<Gap> gaps = {}) {
  Sample sample;
  sample.incarnation = 1;
  sample.entity = 1;
  sample.sequence = sequence;
  sample.gaps = std::move(gaps);
  return sample;
}
Sample end_of(EndReason reason, std::uint64_t seen, std::uint64_t published,
              std::vector<Gap> gaps = {}) {
  Sample sample = sample_of(0, std::move(gaps));
  sample.ended = tendon::Ended{"", 1, "", 1, seen, published, true, reason};
  return sample;
}
Gap gap_of(std::uint64_t first, std::uint64_t last, GapReason reason = GapReason::overflow) {
  return {"", 1, first, last, reason, 1};
}
FabricEvent event_of(FabricEventKind kind, std::optional<tendon::Ended> ended = {}) {
  FabricEvent event;
  event.kind = kind;
  event.ended = std::move(ended);
  return event;
}
/// Counts the faults of these samples.
int faults_of(const std::vector<Sample>& samples) {
  int count = 0;
  StreamLedger ledger(StreamLedger::Holes::none, [&](const std::string&) { ++count; });
  ledger.on_event(event_of(FabricEventKind::came));
  for (const Sample& sample : samples) {
    ledger.on_sample(sample);
    if (sample.ended) ledger.on_event(event_of(FabricEventKind::ended, sample.ended));
  }
  ledger.finish();
  return count;
}

TEST(StreamLedger, FindsEachFault) {
  constexpr auto kDied = EndReason::died;
  EXPECT_EQ(faults_of({sample_of(3), sample_of(6, {gap_of(4, 5)}),
                       end_of(kDied, 6, 9, {gap_of(7, 9, GapReason::died)})}),
            0);
  EXPECT_EQ(faults_of({sample_of(3), sample_of(5), end_of(kDied, 5, 5)}), 1) << "nowhere";
  EXPECT_EQ(faults_of({sample_of(3), sample_of(3), end_of(kDied, 3, 3)}), 1) << "twice";
  EXPECT_EQ(faults_of({sample_of(3), sample_of(5, {gap_of(3, 4)}), end_of(kDied, 5, 5)}), 1);
  EXPECT_EQ(faults_of({sample_of(3), end_of(kDied, 3, 5)}), 1) << "nothing said of 4 and 5";
  EXPECT_EQ(faults_of({sample_of(3), end_of(kDied, 3, 2)}), 2) << "seen, and not published";
  EXPECT_EQ(faults_of({end_of(kDied, 2, 2)}), 1) << "seen, and not delivered";
  EXPECT_EQ(faults_of({sample_of(3)}), 2) << "no end";
  EXPECT_GE(faults_of({sample_of(3), end_of(kDied, 3, 3), sample_of(4)}), 1) << "after its end";
  EXPECT_GE(faults_of({end_of(kDied, 0, 0), end_of(kDied, 0, 0)}), 1) << "two ends";
}

// The soak

struct Totals {
  std::uint64_t kills = 0;
  std::uint64_t closes = 0;
  std::uint64_t stops = 0;
  std::uint64_t cuts = 0;
};

class Soak : public ProcessTest {
 protected:
  void SetUp() override {
    const char* const seconds = std::getenv("TENDON_SOAK_SECONDS");
    if (seconds == nullptr && std::getenv("TENDON_TEST_LONG") == nullptr)
      GTEST_SKIP() << "neither TENDON_SOAK_SECONDS nor TENDON_TEST_LONG is set";
    if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
    length_ = std::chrono::seconds(seconds == nullptr ? 60 : std::stoi(seconds));
    if (const char* const seed = std::getenv("TENDON_SOAK_SEED")) seed_ = std::stoull(seed);
    random_.seed(seed_);
    std::cout << "seed " << seed_ << std::endl;
    network_.emplace(kHosts);
  }

  /// One process of the soak, which is started again after it ended.
  struct Place {
    std::vector<std::string> role;  ///< "publish" or "read", and its name
    std::uint32_t host = 0;
    std::vector<std::string> options;
    std::unique_ptr<Peer> peer{};
    std::string path{};  ///< the path of its output
    bool stopped = false;
  };

  void add_reader(const std::string& options) {
    const auto number = static_cast<std::uint32_t>(readers_.size());
    const std::uint32_t host = number % kHosts;
    const std::string address =
        Network::address(host) + ":" + std::to_string(kFirstPort + static_cast<int>(number));
    addresses_.push_back("peer=" + address);
    readers_.push_back({{"read", "r" + std::to_string(number)}, host, words_of(options)});
    readers_.back().options.push_back("listen=" + address);
  }
  void add_publisher(const std::string& name, std::uint32_t host, const std::string& options) {
    publishers_.push_back({{"publish", name}, host, words_of(options)});
    auto& all = publishers_.back().options;
    all.insert(all.end(), addresses_.begin(), addresses_.end());
  }
  static std::vector<std::string> words_of(const std::string& text) {
    std::istringstream words(text + " lease=1000 strangers=1");
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    return all;
  }
  void start(Place& place) {
    place.path = scratch_.path() / (place.role[1] + "-" + std::to_string(++started_));
    (place.role[0] == "read" ? reports_ : records_).push_back(place.path);
    Peer::Options options{{place.role[0], place.role[1], place.path},
                          {{"TENDON_RUNTIME_DIR", folder_of(place.host)}},
                          "stream_main"};
    options.arguments.insert(options.arguments.end(), place.options.begin(), place.options.end());
    options.arguments.push_back("seed=" + std::to_string(random_()));
    network_->inside(place.host, [&] { place.peer = std::make_unique<Peer>(std::move(options)); });
  }
  [[nodiscard]] std::string folder_of(std::uint32_t host) const {
    std::string folder = runtime_folder() + "/host" + std::to_string(host);
    EXPECT_TRUE(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) << folder;
    return folder;
  }

  // The events of the processes
  void act();
  void end_publisher(Place& place);
  void kill(Place& place);
  void stop(Place& place);
  void cut(std::uint32_t host);
  void later(std::function<void()> what) {
    due_.emplace(Clock::now() + std::chrono::milliseconds(200 + random_() % 4800), std::move(what));
  }
  void do_what_is_due(Clock::time_point now) {
    while (!due_.empty() && due_.begin()->first <= now) due_.extract(due_.begin()).mapped()();
  }
  void expect_alive(const Place& place) {
    siginfo_t ended{};
    const int result =
        waitid(P_PID, static_cast<id_t>(place.peer->pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
    ASSERT_TRUE(result == 0 && ended.si_pid == 0)
        << place.role[1] << " ended by itself: " << ended.si_code << ' ' << ended.si_status;
  }
  void each(const std::function<void(Place&)>& work) {
    for (Place& place : readers_) work(place);
    for (Place& place : publishers_) work(place);
  }

  void wind_up();
  void check_reports();

  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_;
  std::chrono::seconds length_{};
  ScratchDir scratch_;
  std::optional<Network> network_;
  std::vector<std::string> addresses_;
  std::deque<Place> readers_;
  std::deque<Place> publishers_;
  std::array<bool, kHosts> cut_{};
  std::multimap<Clock::time_point, std::function<void()>> due_;
  std::vector<std::string> records_;
  std::vector<std::string> reports_;
  int started_ = 0;
  StopSignal pace_;
  Totals totals_;
};

void Soak::kill(Place& place) {
  ++totals_.kills;
  place.peer->kill_and_wait();
  place.stopped = false;
  start(place);
}

void Soak::end_publisher(Place& place) {
  if (place.stopped) return;
  ++totals_.closes;
  EXPECT_EQ(place.peer->ask("quit"), "ok") << place.role[1];
  EXPECT_EQ(place.peer->wait(), 0) << place.role[1];
  start(place);
}

void Soak::stop(Place& place) {
  if (place.stopped) return;
  ++totals_.stops;
  place.peer->signal(SIGSTOP);
  place.stopped = true;
  const pid_t pid = place.peer->pid();
  later([&place, pid] {
    if (!place.stopped || place.peer->pid() != pid) return;  // it was killed meanwhile
    place.peer->signal(SIGCONT);
    place.stopped = false;
  });
}

void Soak::cut(std::uint32_t host) {
  if (cut_[host]) return;
  ++totals_.cuts;
  cut_[host] = true;
  if (random_() % 2 == 0)
    network_->drop(host);
  else
    network_->reset(host, "tcp dport != 0");
  later([this, host] {
    network_->heal(host);
    cut_[host] = false;
  });
}

void Soak::act() {
  Place& publisher = publishers_[random_() % publishers_.size()];
  Place& reader = readers_[random_() % readers_.size()];
  switch (random_() % 10) {
    case 0:
    case 1:
      return kill(publisher);
    case 2:
      return end_publisher(publisher);
    case 3:
      return kill(reader);
    case 4:
    case 5:
      return stop(publisher);
    case 6:
    case 7:
      return stop(reader);
    default:
      return cut(static_cast<std::uint32_t>(random_() % kHosts));
  }
}

// Every publisher ends, and every living reader is told.
void Soak::wind_up() {
  do_what_is_due(Clock::time_point::max());
  for (Place& place : publishers_) place.peer->tell("quit");
  for (Place& place : publishers_) {
    EXPECT_EQ(place.peer->line(), "ok") << place.role[1];
    EXPECT_EQ(place.peer->wait(), 0) << place.role[1];
  }
  for (Place& place : readers_) {
    std::string open;
    const bool over = eventually([&] { return (open = value_of(place.peer->ask("open"))) == "0"; },
                                 [&] { pace_.wait_for(50ms); });
    EXPECT_TRUE(over) << open << " ends did not come to " << place.role[1];
    EXPECT_TRUE(is_ok(place.peer->ask("finish")));
  }
}

// Compares the reports of the readers with the counts of the publishers.
void Soak::check_reports() {
  struct Publisher {
    std::string path;
    std::unique_ptr<MappedRecord<PublisherRecord>> record;
  };
  std::map<std::uint64_t, Publisher> publishers;
  std::uint64_t published = 0;
  for (const std::string& path : records_) {
    auto record = std::make_unique<MappedRecord<PublisherRecord>>(path);
    for (const auto& life : (*record)->lives) published += life.returned;
    const std::uint64_t incarnation = (*record)->incarnation;
    if (incarnation != 0) publishers[incarnation] = {path, std::move(record)};
  }
  std::map<std::string, std::uint64_t> ends;
  std::uint64_t wrong = 0;
  const auto say = [&](const std::string& report, const std::string& what) {
    ++wrong;
    ADD_FAILURE() << std::filesystem::path(report).filename().string() << ": " << what;
  };
  std::uint64_t received = 0;
  std::uint64_t missing = 0;
  std::uint64_t holes = 0;
  std::uint64_t returned = 0;
  for (const std::string& path : reports_) {
    const MappedRecord<ReaderRecord> record(path + ".record");
    received += record->received;
    missing += record->missing;
    holes += record->holes;
    returned += record->returned;
    std::ifstream report(path);
    for (std::string line; std::getline(report, line);) {
      if (line.starts_with("wrong")) say(path, line);
      std::istringstream words(line);
      std::string verb;
      std::string exact;
      std::string reason;
      std::uint64_t incarnation = 0;
      std::uint32_t entity = 0;
      std::uint64_t seen = 0;
      std::uint64_t count = 0;
      words >> verb >> incarnation >> entity >> seen >> count >> exact >> reason;
      if (verb != "ended" || reason.empty()) continue;  // cut off when it was killed
      ++ends[reason + ' ' + exact + (seen == 0 ? " unseen" : "")];
      const auto found = publishers.find(incarnation);
      if (found == publishers.end() || entity >= PublisherRecord::kMostLives) {
        say(path, "an end of a stranger: " + line);
        continue;
      }
      const auto& all = **found->second.record;
      const auto& life = all.lives[entity];
      const bool is_right = exact == "exact" ? all.allows(entity, count) : count <= life.started;
      const bool may_close = reason != "closed" || life.closed != 0;
      if (!is_right || !may_close) {
        say(path, line + ", but its publisher (" +
                      std::filesystem::path(found->second.path).filename().string() + ") counted " +
                      std::to_string(life.returned) + " of " + std::to_string(life.started));
      }
    }
  }
  std::cout << "soak: seed " << seed_ << ", " << length_.count() << " s, " << records_.size()
            << " publishers and " << reports_.size() << " readers; " << published << " published, "
            << received << " delivered, " << missing << " in gaps, " << holes << " left out; "
            << totals_.kills << " kills, " << totals_.closes << " closes, " << totals_.stops
            << " stops, " << totals_.cuts << " cuts; ends:";
  for (const auto& [what, count] : ends) std::cout << ' ' << what << ' ' << count << ',';
  std::cout << " returned " << returned << "; wrong " << wrong << std::endl;
  EXPECT_GT(received, 0u);
  EXPECT_GT(ends.size(), 2u);
}

TEST_F(Soak, EverySampleIsDeliveredInAGapOrBehindAnEnd) {
  add_reader("");
  add_reader("nap=2000");
  add_reader("keep=12 window=32");
  add_reader("max_age=50");
  add_reader("max_hz=20");
  add_reader("newest=1 transport=tcp");
  add_reader("schema=1");
  add_reader("window=1 sleep=1000");
  add_reader("nap=300 transport=tcp");
  // No more than two cores can do.
  const std::string often = " reopen=3000 pace=";
  add_publisher("p0", 0,
                "topic=soak/0/a,small,drop,500 topic=soak/0/b,small,block,20" + often + "20000");
  add_publisher("p1", 1,
                "topic=soak/1/a,large,drop,4 topic=soak/1/b,shapes,block,10" + often +
                    "60000 publish_bytes=8000000");
  add_publisher("p2", 2,
                "topic=soak/2/a,shapes,drop,100 topic=soak/2/b,mixed,drop,50" + often + "20000");
  add_publisher("p3", 0,
                "topic=soak/3/a,mixed,block,1 topic=soak/3/b,large,block,30" + often + "60000");
  add_publisher("p4", 1,
                "topic=soak/4/a,small,drop,1000 topic=soak/4/b,large,drop,10" + often +
                    "40000 transport=tcp");
  // A twin of the first publisher, for the readers that follow the newest.
  add_publisher("p0", 2,
                "topic=soak/0/a,small,drop,10 topic=soak/0/c,small,drop,1" + often + "20000");
  each([&](Place& place) { start(place); });
  const auto end = Clock::now() + length_;
  for (auto now = Clock::now(); now < end && !HasFatalFailure(); now = Clock::now()) {
    do_what_is_due(now);
    each([&](Place& place) { expect_alive(place); });
    if (random_() % 8 == 0) act();
    pace_.wait_for(50ms);
  }
  wind_up();
  check_reports();
}

}  // namespace
}  // namespace tendon::test
