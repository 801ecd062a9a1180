// SPDX-License-Identifier: Apache-2.0
// A member of a group that continues whatever the result of its collectives is. It obeys its input
// line by line:
//   endure_main ADDRESS RANK SIZE [scribble SEED board|all]
// "call COUNT" calls COUNT operations and says "ok" and how many failed. "endure COUNT" continues
// after that until a member is lost. It says "ok" and how many are left, or "error" and why the
// group is over. With `scribble` the member writes random words to its shared memory meanwhile.
// "quit" ends it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/group/group.hpp>
#include <vector>

#include "process/scribbler.hpp"

using namespace tendon;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 20s;
// For an operation beside a member that lies, which may leave the others waiting like a hung
// member.
constexpr auto kShortPatience = 200ms;

void say(const std::string& line) { std::cout << line << std::endl; }

/// Tensors in private memory, or in the Context's pool, where the others read them in place.
class Tensors {
 public:
  Tensors(Context& context, bool pooled) : pool_(context.pool()), pooled_(pooled) {}
  [[nodiscard]] Tensor make(DType dtype, std::int64_t count) const {
    const Tensor fresh = Tensor::zeros(dtype, Shape({count})).value();
    if (!pooled_ || fresh.size_bytes() == 0) return fresh;
    auto storage = pool_.allocate(fresh.size_bytes());
    if (!storage) return fresh;
    return Tensor::view(*std::move(storage), 0, dtype, Shape({count})).value();
  }

 private:
  mutable Pool pool_;
  const bool pooled_;
};

/// Calls one operation after another, the same on all members, from the beginning in each epoch.
class Endurance {
 public:
  Endurance(Context& context, Group& group, std::chrono::milliseconds patience)
      : context_(context), group_(group), patience_(patience) {}

  enum class Until : std::uint8_t { counted, somebody_is_lost };
  /// All members end after the same operation: the last, or the one in which a member is lost.
  void run(std::uint64_t count, Until until) {
    const std::uint32_t size = group_.size();
    std::uint64_t called = 0;
    std::uint64_t failed = 0;
    for (std::uint64_t step = 0; group_.size() == size; ++step) {
      if (called++ == count) {
        say("ok " + std::to_string(failed));
        if (until == Until::counted) return;
      }
      if (call(step)) continue;
      ++failed;
      // The next epoch has the same members, or those that are left. A lying member can make this
      // fail as well, for as long as it lives. A failure takes a while, so it counts as several
      // calls.
      const auto left = group_.shrink(5 * patience_);
      if (!left && is_over(left.error().code))
        return say("error " + std::string(to_string(left.error().code)));
      if (!left && called < count) called = std::min(called + 10, count);
      step = ~std::uint64_t{0};
    }
    if (called <= count) say("ok " + std::to_string(failed));
    say("ok " + std::to_string(group_.size()));
  }

 private:
  [[nodiscard]] static bool is_over(ErrorCode code) {
    return code != ErrorCode::timeout && code != ErrorCode::protocol_violation;
  }
  bool call(std::uint64_t step) {
    static constexpr std::int64_t kCounts[] = {1, 3000, 200'000};
    static constexpr DType kDTypes[] = {DType::i64, DType::boolean, DType::bf16, DType::f32};
    const auto size = static_cast<std::int64_t>(group_.size());
    const std::int64_t count = kCounts[step / 3 % 3];
    const DType dtype = kDTypes[step / 2 % 4];
    const GroupRank root{static_cast<std::uint32_t>(step % group_.size())};
    const bool is_root = group_.rank() == root;
    const Tensors tensors(context_, step / 11 % 2 == 0);
    const Tensor one = tensors.make(dtype, count);
    const Tensor all = tensors.make(dtype, count * size);
    switch (step % 11) {
      case 0:
      case 1:
        return bool(group_.all_reduce(one, ReduceOp::sum, patience_));
      case 2:
        return bool(group_.reduce(one, ReduceOp::max, root, patience_));
      case 3:
        return bool(group_.broadcast(one, root, patience_));
      case 4:
        return bool(group_.all_gather(one, all, patience_));
      case 5:
        return bool(group_.gather(one, all, root, patience_));
      case 6:
        return bool(group_.scatter(all, one, root, patience_));
      case 7:
        return bool(group_.reduce_scatter(all, one, ReduceOp::sum, patience_));
      case 8:
        return bool(group_.all_to_all(all, tensors.make(dtype, count * size), patience_));
      case 9:
        return bool(group_.broadcast_init(is_root ? dict(count) : TensorDict(), root, patience_));
      default:
        return pass_dict(count);
    }
  }

  static TensorDict dict(std::int64_t count) {
    TensorDict dict;
    dict.set("weights", Tensor::zeros(DType::f32, Shape({count})).value());
    dict.set("größe", Tensor::zeros(DType::i64, Shape({3})).value());
    return dict;
  }
  // Passes a whole dict round the group, through the slots of a link.
  bool pass_dict(std::int64_t count) {
    const std::uint32_t size = group_.size();
    const std::uint32_t me = group_.rank().value;
    if (size == 1) return true;
    const bool sent =
        bool(group_.init_remote(dict(count), {GroupRank{(me + 1) % size}}, patience_));
    const auto come =
        group_.from_remote_init({.rank = GroupRank{(me + size - 1) % size}}, patience_);
    return sent && come;
  }

  Context& context_;
  Group& group_;
  const std::chrono::milliseconds patience_;
};

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values, values + count);
  const auto rank = static_cast<std::uint32_t>(std::stoul(arguments[2]));
  const auto size = static_cast<std::uint32_t>(std::stoul(arguments[3]));
  say("ready");
  auto context = Context::create({.name = "place " + std::to_string(rank)});
  if (!context) return 1;
  auto group =
      Group::join(*context, Rendezvous::at(arguments[1], GroupRank{rank}, size), kPatience);
  if (!group) return 1;
  say("ok joined");
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "quit") break;
    std::istringstream words(line);
    std::string verb;
    std::uint64_t times = 0;
    words >> verb >> times;
    std::optional<test::Scribbler> scribbler;
    if (arguments.size() > 5) {
      scribbler.emplace(static_cast<std::uint32_t>(std::stoul(arguments[5])),
                        arguments[6] == "all" ? test::Scribbler::Aim::everything
                                              : test::Scribbler::Aim::boards_and_pools);
    }
    if (verb == "endure")
      Endurance(*context, *group, kShortPatience).run(times, Endurance::Until::somebody_is_lost);
    else
      Endurance(*context, *group, kPatience).run(times, Endurance::Until::counted);
  }
  return 0;
}
