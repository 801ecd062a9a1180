// SPDX-License-Identifier: Apache-2.0
// A member of a group that obeys its input line by line:
//   member_main ADDRESS RANK SIZE shm|tcp|auto [PROFILE [LEASE_MS [LISTEN]]]
// It answers "ok ..." or "error <code> <detail>".
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/group/group.hpp>
#include <vector>

#include "support/held.hpp"

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 60s;

void say(const std::string& line) { std::cout << line << std::endl; }

template <class T>
bool succeeded(const Result<T>& result) {
  if (result) return true;
  std::string detail = result.error().detail;
  for (char& character : detail)
    if (character == '\n') character = ' ';
  say("error " + std::string(to_string(result.error().code)) + " " + detail);
  return false;
}

enum class Call { blocking, async };

// Sums of 1, 2, 3, ...: correct when every current member takes part.
bool reduce_once(Group& group, std::int64_t count, std::chrono::milliseconds patience,
                 Call call = Call::blocking) {
  const Tensor tensor = Tensor::zeros(DType::i64, Shape({count})).value();
  for (std::int64_t& element : tensor.span<std::int64_t>()) element = group.rank().value + 1;
  if (!succeeded(call == Call::async ? group.all_reduce_async(tensor, ReduceOp::sum).wait(patience)
                                     : group.all_reduce(tensor, ReduceOp::sum, patience)))
    return false;
  const std::int64_t n = group.size();
  for (const std::int64_t element : tensor.span<const std::int64_t>()) {
    if (element == n * (n + 1) / 2) continue;
    say("error wrong " + std::to_string(element));
    return false;
  }
  return true;
}

// Repeats until some member has another line to read: all end after the same one.
void work(Group& group, std::int64_t count) {
  for (std::int64_t rounds = 1;; ++rounds) {
    if (!reduce_once(group, count, kPatience)) return;
    if (rounds == 1) say("ok working");
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const std::int64_t wants_to_stop = rounds > 1 && poll(&input, 1, 0) != 0 ? 1 : 0;
    const Tensor vote = Tensor::of<std::int64_t>({1}, {wants_to_stop});
    if (!succeeded(group.all_reduce(vote, ReduceOp::max, kPatience))) return;
    if (vote.span<const std::int64_t>()[0] != 0) return say("ok " + std::to_string(rounds));
  }
}

// Calls every operation once, with blocks of `count` elements whose values name their member.
class EveryOperation {
 public:
  EveryOperation(Group& group, std::int64_t count)
      : group_(group), rank_(group.rank().value), size_(group.size()), count_(count) {}

  void run() {
    const Tensor mine = block(rank_);
    const Tensor one = block(-1);
    const Tensor all = blocks();

    Tensor got = block(rank_);
    expect("all_reduce", group_.all_reduce(got, ReduceOp::sum, kPatience), got, sum_of_all());
    got = block(rank_);
    expect("reduce", group_.reduce(got, ReduceOp::max, GroupRank{1}, kPatience), got,
           rank_ == 1 ? value(size_ - 1) : value(rank_));
    got = block(rank_);
    expect("broadcast", group_.broadcast(got, GroupRank{1}, kPatience), got, value(1));
    expect_blocks("all_gather", group_.all_gather(mine, all, kPatience), all, 1, 0);
    const Tensor gathered = blocks();
    const auto done = group_.gather(mine, gathered, GroupRank{0}, kPatience);
    if (rank_ == 0)
      expect_blocks("gather", done, gathered, 1, 0);
    else
      expect("gather", done, mine, value(rank_));
    expect("scatter", group_.scatter(ramp(), one, GroupRank{1}, kPatience), one, value(rank_));
    expect("reduce_scatter", group_.reduce_scatter(ramp(), one, ReduceOp::sum, kPatience), one,
           size_ * value(rank_));
    // Member m gets a number that names its sender: rank x 1000 + m.
    Tensor out = blocks();
    for (std::int64_t m = 0; m < size_; ++m) fill(out, m, rank_ * 1000 + m);
    expect_blocks("all_to_all", group_.all_to_all(out, all, kPatience), all, 1000, rank_);
    expect("barrier", group_.barrier(kPatience), mine, value(rank_));
    expect("monitored_barrier", group_.monitored_barrier(kPatience), mine, value(rank_));

    const auto next = static_cast<std::uint32_t>((rank_ + 1) % size_);
    const auto before = static_cast<std::uint32_t>((rank_ + size_ - 1) % size_);
    Completion<void> sending = group_.send_async(mine, {GroupRank{next}});
    const auto received = group_.recv(one, {.rank = GroupRank{before}}, kPatience);
    expect("recv", received, one, value(before));
    expect("send", sending.wait(kPatience), mine, value(rank_));
    TensorDict dict;
    if (rank_ == 1) dict.set("x", mine);
    const auto known = group_.broadcast_init(dict, GroupRank{1}, kPatience);
    expect("broadcast_init", known, known ? (*known)["x"] : one, value(1));
    if (failure_.empty())
      say("ok");
    else
      say("error wrong " + failure_);
  }

 private:
  static std::int64_t value(std::int64_t rank) { return rank + 1; }
  [[nodiscard]] std::int64_t sum_of_all() const { return size_ * (size_ + 1) / 2; }
  [[nodiscard]] Tensor block(std::int64_t rank) const {
    Tensor tensor = Tensor::zeros(DType::i64, Shape({count_})).value();
    std::ranges::fill(tensor.span<std::int64_t>(), value(rank));
    return tensor;
  }
  [[nodiscard]] Tensor blocks() const {
    return Tensor::zeros(DType::i64, Shape({size_ * count_})).value();
  }
  void fill(const Tensor& tensor, std::int64_t block, std::int64_t value) const {
    const auto at = static_cast<std::size_t>(block * count_);
    std::ranges::fill(tensor.span<std::int64_t>().subspan(at, static_cast<std::size_t>(count_)),
                      value);
  }
  /// A tensor whose block b is value(b).
  [[nodiscard]] Tensor ramp() const {
    Tensor tensor = blocks();
    for (std::int64_t b = 0; b < size_; ++b) fill(tensor, b, value(b));
    return tensor;
  }

  template <class T>
  void expect(std::string_view what, const Result<T>& done, const Tensor& got,
              std::int64_t wanted) {
    if (!done) return note(what, done.error().message());
    for (const std::int64_t element : got.span<const std::int64_t>())
      if (element != wanted)
        return note(what, std::to_string(element) + " is not " + std::to_string(wanted));
  }
  /// Expects that block b holds factor x b + add, where `factor` is 1: value(b).
  void expect_blocks(std::string_view what, const Result<void>& done, const Tensor& got,
                     std::int64_t factor, std::int64_t add) {
    if (!done) return note(what, done.error().message());
    const auto elements = got.span<const std::int64_t>();
    for (std::int64_t i = 0; i < size_ * count_; ++i) {
      const std::int64_t b = i / count_;
      const std::int64_t wanted = factor == 1 ? value(b) : factor * b + add;
      const std::int64_t element = elements[static_cast<std::size_t>(i)];
      if (element == wanted) continue;
      return note(what, "block " + std::to_string(b) + ": " + std::to_string(element) + " is not " +
                            std::to_string(wanted));
    }
  }
  void note(std::string_view what, const std::string& text) {
    if (failure_.empty()) failure_ = std::string(what) + ": " + text;
  }

  Group& group_;
  std::int64_t rank_;
  std::int64_t size_;
  std::int64_t count_;
  std::string failure_;
};

// The paths to the others, then the address where this member listens.
std::string paths_of(const Group& group) {
  std::string text;
  for (const GroupMember& member : group.members())
    if (member.path) text += std::string(to_string(member.path->kind)) + " ";
  const std::string description = group.describe();
  const std::string before = "listening at ";
  const auto begin = description.find(before) + before.size();
  return text + description.substr(begin, description.find('\n', begin) - begin);
}

void perform(Group& group, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  words >> verb;
  if (verb == "loop") {
    std::int64_t times = 0;
    std::int64_t count = 0;
    words >> times >> count;
    for (std::int64_t i = 0; i < times; ++i)
      if (!reduce_once(group, count, kPatience)) return;
    return say("ok");
  }
  if (verb == "mixed") {
    // Blocking and non-blocking calls alternate.
    std::int64_t times = 0;
    std::int64_t count = 0;
    words >> times >> count;
    for (std::int64_t i = 0; i < times; ++i) {
      const bool async = (i + group.rank().value) % 2 == 0;
      if (!reduce_once(group, count, kPatience, async ? Call::async : Call::blocking)) return;
    }
    return say("ok");
  }
  if (verb == "reduce") {
    std::int64_t count = 0;
    std::int64_t patience_ms = 0;
    words >> count >> patience_ms;
    if (reduce_once(group, count, std::chrono::milliseconds(patience_ms))) say("ok");
    return;
  }
  if (verb == "work") {
    std::int64_t count = 0;
    words >> count;
    return work(group, count);
  }
  if (verb == "every") {
    std::int64_t count = 0;
    words >> count;
    return EveryOperation(group, count).run();
  }
  if (verb == "paths") return say("ok " + paths_of(group));
  if (verb == "mute") {
    // The others see a process whose end has begun and is not complete.
    for (int fd = 3; fd < 256; ++fd) shutdown(fd, SHUT_RDWR);
    say("ok");
    for (;;) pause();
  }
  if (verb == "shrink") {
    std::string fence;
    std::int64_t patience_ms = 0;
    words >> fence >> patience_ms;
    const bool repeats = fence == "kill";
    const bool kills = repeats || fence == "kill_once";
    const ShrinkOptions options{.fence = kills ? Fence::kill : Fence::none};
    auto patience = kills ? 6'000ms : 60'000ms;
    if (patience_ms > 0) patience = std::chrono::milliseconds(patience_ms);
    auto shrunk = group.shrink(patience, options);
    // The proof of a death at the deadline may arrive after the grace.
    while (repeats && !shrunk && shrunk.error().code == ErrorCode::timeout)
      shrunk = group.shrink(patience, options);
    if (succeeded(shrunk)) say("ok " + std::to_string(group.size()));
    return;
  }
  if (verb == "rebuild") {
    std::int64_t patience_ms = 60'000;
    std::string fence;
    words >> patience_ms >> fence;
    const ShrinkOptions options{.fence = fence == "kill" ? Fence::kill : Fence::none};
    if (succeeded(group.rebuild(std::chrono::milliseconds(patience_ms == 0 ? 60'000 : patience_ms),
                                options)))
      say("ok " + std::to_string(group.size()));
    return;
  }
  say("error unknown " + line);
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values, values + count);
  const auto rank = static_cast<std::uint32_t>(std::stoul(arguments[2]));
  const auto size = static_cast<std::uint32_t>(std::stoul(arguments[3]));
  const bool tcp = arguments[4] == "tcp";
  ContextOptions options{.name = "place " + std::to_string(rank),
                         .transport = tcp ? Transport::tcp : Transport::automatic};
  GroupOptions group_options;
  if (count > 5 && arguments[5] == "plaintext") group_options.security.profile = Profile::plaintext;
  if (count > 6) options.lease = std::chrono::milliseconds(std::stol(arguments[6]));
  if (count > 7) group_options.listen = arguments[7];
  say("ready");
  auto context = Context::create(options);
  if (!succeeded(context)) return 1;
  const test::Held before = test::Held::now();
  const char* const patience_ms = std::getenv("MEMBER_PATIENCE_MS");
  const Deadline deadline = patience_ms == nullptr
                                ? Deadline(kPatience)
                                : Deadline(std::chrono::milliseconds(std::stol(patience_ms)));
  auto group = Group::join(*context, Rendezvous::at(arguments[1], GroupRank{rank}, size), deadline,
                           group_options);
  if (!succeeded(group)) return 1;
  say("ok joined");
  std::optional<Group> member(*std::move(group));
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "held") {
      // Descriptors and mappings beyond those of the Context itself.
      const test::Held now = test::Held::now();
      say("ok " + std::to_string(now.descriptors - before.descriptors) + " " +
          std::to_string(now.mappings - before.mappings));
    } else if (line == "leave") {
      member.reset();
      say("ok");
    } else {
      perform(*member, line);
    }
  }
  return 0;
}
