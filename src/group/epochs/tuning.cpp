// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/tuning.hpp"

#include <algorithm>
#include <charconv>
#include <span>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/environment.hpp"
#include "core/process_wide.hpp"
#include "group/boards/board.hpp"

namespace tendon::v0::detail {
namespace {

constexpr TuningRow kRows[] = {
    {"symmetric_max", &Tuning::symmetric_max_bytes,
     "one host: (n-1) x size up to which everybody reduces all"},
    {"pull_min", &Tuning::pull_min_bytes,
     "one host: n x size from which pool memory is read in place where that is faster"},
    {"few_steps_max", &Tuning::few_steps_max_bytes,
     "links: size up to which all_reduce goes by recursive doubling"},
    {"pair_max", &Tuning::pair_max_bytes, "links: the same where two members are all there are"},
    {"ring_block_min", &Tuning::ring_block_min_bytes,
     "links: size / n from which rings are worth their many steps"},
    {"chain_min", &Tuning::chain_min_bytes, "links: size / n from which a broadcast is a chain"},
    {"shard_min", &Tuning::shard_min_bytes,
     "two levels: bytes that a member of a host all-reduces for it, at least"},
    {"two_level_block_min", &Tuning::two_level_block_min_bytes,
     "two levels: size / n from which all_gather takes them"},
};

/// Calls `visit(name, algorithms, member of Tuning)` for each operation.
template <class Visit>
void for_each_forced(Visit visit) {
  visit("board_all_reduce", kWords<BoardAllReduce>, &Tuning::board_all_reduce);
  visit("staging", std::span(kWords<CopyHint>).first(2), &Tuning::staging);
  visit("all_reduce", kWords<AllReduceAlgorithm>, &Tuning::all_reduce);
  visit("reduce", kWords<ReduceAlgorithm>, &Tuning::reduce);
  visit("broadcast", kWords<BroadcastAlgorithm>, &Tuning::broadcast);
  visit("all_gather", kWords<AllGatherAlgorithm>, &Tuning::all_gather);
  visit("reduce_scatter", kWords<ReduceScatterAlgorithm>, &Tuning::reduce_scatter);
  visit("barrier", kWords<BarrierAlgorithm>, &Tuning::barrier);
}

std::optional<std::uint64_t> read_size(std::string_view text) {
  std::uint64_t size_bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, size_bytes);
  if (failure != std::errc() || stop != end) return {};
  return size_bytes;
}

// Returns the fault of the entry; empty when it was read.
std::string read_entry(Tuning& tuning, std::string_view name, std::string_view value) {
  for (const TuningRow& row : kRows) {
    if (row.name != name) continue;
    const auto size_bytes = read_size(value);
    if (!size_bytes) return "legal for " + std::string(name) + " is a number of bytes";
    tuning.*row.size_bytes = *size_bytes;
    return {};
  }
  std::string wrong;
  std::string all;
  bool known = false;
  for_each_forced([&](std::string_view operation, const auto& names, auto forced) {
    (all += ", ") += operation;
    if (operation != name) return;
    known = true;
    std::string legal;
    for (const auto& each : names) {
      (legal += legal.empty() ? "" : ", ") += each.text;
      if (each.text == value) tuning.*forced = each.value;
    }
    if (!(tuning.*forced) || to_string(*(tuning.*forced)) != value)
      wrong = "legal for " + std::string(name) + " are " + legal;
  });
  if (known) return wrong;
  std::string sizes;
  for (const TuningRow& row : kRows) (sizes += sizes.empty() ? "" : ", ") += row.name;
  return "legal names are " + sizes + all;
}

std::string text_of_size(std::uint64_t size_bytes) {
  if (size_bytes % (1 << 20) == 0) return std::to_string(size_bytes >> 20) + " MiB";
  if (size_bytes % (1 << 10) == 0) return std::to_string(size_bytes >> 10) + " KiB";
  return std::to_string(size_bytes) + " B";
}

// The sizes at which the answer of `choose` changes. Compares each size with twice as much; if the
// two differ, halves the range down to the byte.
template <class Choose>
std::vector<Choice> switches(const SizeRange& range, Choose choose) {
  std::vector<Choice> found = {{range.first_bytes, std::string(choose(range.first_bytes))}};
  for (std::uint64_t below = range.first_bytes; below < range.last_bytes;) {
    const std::uint64_t next = std::min(range.last_bytes, std::max(2 * below, below + 1));
    while (found.back().algorithm != choose(next)) {
      std::uint64_t changed = next;
      while (changed - below > 1) {
        const std::uint64_t middle = below + (changed - below) / 2;
        (found.back().algorithm == choose(middle) ? below : changed) = middle;
      }
      found.push_back({changed, std::string(choose(changed))});
      below = changed;
    }
    below = next;
  }
  return found;
}

bool is_two_level(std::string_view algorithm) { return algorithm.starts_with("two_level"); }

template <class Algorithm>
bool applies(const std::optional<Algorithm>& forced, const Hosts& hosts) {
  return forced && (hosts.are_levels() || !is_two_level(to_string(*forced)));
}

AllReduceAlgorithm flat_all_reduce(const Tuning& tuning, std::uint32_t members,
                                   std::uint64_t size_bytes) {
  // Two members that exchange all send no more than two that exchange halves, and wait once.
  if (size_bytes <= (members == 2 ? tuning.pair_max_bytes : tuning.few_steps_max_bytes))
    return AllReduceAlgorithm::recursive_doubling;
  return size_bytes / members >= tuning.ring_block_min_bytes ? AllReduceAlgorithm::ring
                                                             : AllReduceAlgorithm::halving_doubling;
}

// The way is as long as the chain of the hosts and then that of the largest one; a piece for each
// member of it hides that.
bool hides_a_chain(const Tuning& tuning, const Hosts& hosts, std::uint64_t size_bytes) {
  const std::uint32_t length =
      hosts.are_levels() ? hosts.count() + hosts.most_on_one() - 1 : hosts.member_count();
  return size_bytes / length >= tuning.chain_min_bytes;
}

}  // namespace

const Tuning& Tuning::get() {
  static constinit MadeOnce<const Tuning> tuning;
  return tuning.get([] {
    const ReadTuning read = read_tuning(environment_variable("TENDON_COLLECTIVES"));
    for (const std::string& complaint : read.complaints)
      log(LogLevel::warn, "group.tuning", complaint);
    return std::make_unique<const Tuning>(read.tuning);
  });
}

std::span<const TuningRow> tuning_rows() { return kRows; }

std::vector<ForcedRow> forced_rows(const Tuning& tuning) {
  std::vector<ForcedRow> rows;
  for_each_forced([&](std::string_view operation, const auto& names, auto forced) {
    ForcedRow row{operation, {}, {}, operation == "staging" ? "by trial" : "by size"};
    for (const auto& each : names) row.algorithms.push_back(each.text);
    if (tuning.*forced) row.forced = to_string(*(tuning.*forced));
    rows.push_back(std::move(row));
  });
  return rows;
}

ReadTuning read_tuning(std::string_view text) {
  ReadTuning read;
  while (!text.empty()) {
    const auto entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto split = std::min(entry.find('='), entry.size());
    const auto name = entry.substr(0, split);
    const auto value = entry.substr(std::min(entry.size(), split + 1));
    const std::string wrong = read_entry(read.tuning, name, value);
    if (wrong.empty())
      read.names.emplace_back(name);
    else
      read.complaints.push_back("TENDON_COLLECTIVES has '" + std::string(entry) + "'; " + wrong);
  }
  return read;
}

BoardAllReduce choose_board_all_reduce(const Tuning& tuning, std::uint32_t members,
                                       std::uint64_t size_bytes) {
  // Data that fits in a line is there when the line is.
  const bool fits_in_line = size_bytes <= Board::kSmallBytes;
  if (tuning.board_all_reduce &&
      !(*tuning.board_all_reduce == BoardAllReduce::pull && fits_in_line))
    return *tuning.board_all_reduce;
  if (size_bytes >= tuning.pull_min_bytes / members && !fits_in_line) return BoardAllReduce::pull;
  if (members <= 2 || size_bytes <= tuning.symmetric_max_bytes / (members - 1))
    return BoardAllReduce::symmetric;
  return BoardAllReduce::distributed;
}

AllReduceAlgorithm choose_all_reduce(const Tuning& tuning, const Hosts& hosts,
                                     std::uint64_t size_bytes) {
  if (applies(tuning.all_reduce, hosts)) return *tuning.all_reduce;
  if (hosts.are_levels()) return AllReduceAlgorithm::two_level;
  return flat_all_reduce(tuning, hosts.member_count(), size_bytes);
}

TwoLevelAllReduce choose_two_level_all_reduce(const Tuning& tuning, const Hosts& hosts,
                                              std::uint64_t size_bytes) {
  const std::uint64_t shards = std::clamp<std::uint64_t>(
      size_bytes / std::max<std::uint64_t>(1, tuning.shard_min_bytes), 1, hosts.most_on_one());
  return {static_cast<std::uint32_t>(shards),
          flat_all_reduce(tuning, hosts.count(), size_bytes / shards)};
}

ReduceAlgorithm choose_reduce(const Tuning& tuning, const Hosts& hosts, std::uint64_t size_bytes) {
  if (applies(tuning.reduce, hosts)) return *tuning.reduce;
  if (hosts.are_levels()) {
    return hides_a_chain(tuning, hosts, size_bytes) ? ReduceAlgorithm::two_level_chain
                                                    : ReduceAlgorithm::two_level_tree;
  }
  // Between two members a ring shares nothing out: the root would send half, and receive it back.
  const std::uint32_t members = hosts.member_count();
  return members > 2 && size_bytes / members >= tuning.ring_block_min_bytes ? ReduceAlgorithm::ring
                                                                            : ReduceAlgorithm::tree;
}

BroadcastAlgorithm choose_broadcast(const Tuning& tuning, const Hosts& hosts,
                                    std::uint64_t size_bytes) {
  if (applies(tuning.broadcast, hosts)) return *tuning.broadcast;
  if (hosts.are_levels()) {
    return hides_a_chain(tuning, hosts, size_bytes) ? BroadcastAlgorithm::two_level_chain
                                                    : BroadcastAlgorithm::two_level_tree;
  }
  return hides_a_chain(tuning, hosts, size_bytes) ? BroadcastAlgorithm::chain
                                                  : BroadcastAlgorithm::tree;
}

AllGatherAlgorithm choose_all_gather(const Tuning& tuning, const Hosts& hosts,
                                     std::uint64_t size_bytes) {
  if (applies(tuning.all_gather, hosts)) return *tuning.all_gather;
  const std::uint64_t block_bytes = size_bytes / hosts.member_count();
  if (hosts.are_levels() && block_bytes >= tuning.two_level_block_min_bytes)
    return AllGatherAlgorithm::two_level;
  return block_bytes >= tuning.ring_block_min_bytes ? AllGatherAlgorithm::ring
                                                    : AllGatherAlgorithm::bruck;
}

ReduceScatterAlgorithm choose_reduce_scatter(const Tuning& tuning, const Hosts& hosts,
                                             std::uint64_t size_bytes) {
  if (applies(tuning.reduce_scatter, hosts)) return *tuning.reduce_scatter;
  if (hosts.are_levels()) return ReduceScatterAlgorithm::two_level;
  return size_bytes / hosts.member_count() >= tuning.ring_block_min_bytes
             ? ReduceScatterAlgorithm::ring
             : ReduceScatterAlgorithm::direct;
}

BarrierAlgorithm choose_barrier(const Tuning& tuning, const Hosts& hosts) {
  if (applies(tuning.barrier, hosts)) return *tuning.barrier;
  return hosts.are_levels() ? BarrierAlgorithm::two_level : BarrierAlgorithm::dissemination;
}

std::string forced_two_level(const Tuning& tuning) {
  std::string operations;
  for_each_forced([&](std::string_view operation, const auto&, auto forced) {
    if (!(tuning.*forced) || !is_two_level(to_string(*(tuning.*forced)))) return;
    (operations += operations.empty() ? "" : ", ") += operation;
  });
  return operations;
}

std::vector<Choices> choices_of(const Tuning& tuning, Reach reach, const Hosts& hosts,
                                const SizeRange& range) {
  std::vector<Choices> all;
  const auto add = [&](std::string_view operation, auto choose) {
    all.push_back({operation, switches(range, choose)});
  };
  if (reach == Reach::boards) {
    add("all_reduce", [&](std::uint64_t size) {
      const auto way = choose_board_all_reduce(tuning, hosts.member_count(), size);
      if (way != BoardAllReduce::pull) return std::string(to_string(way));
      // Used where some member's tensor is in no pool.
      return std::string(hosts.member_count() == 2 ? "pull or symmetric" : "pull or distributed");
    });
    add("all others", [](std::uint64_t) { return "rounds"; });
    return all;
  }
  add("all_reduce", [&](std::uint64_t size) {
    const auto algorithm = choose_all_reduce(tuning, hosts, size);
    std::string text(to_string(algorithm));
    if (algorithm != AllReduceAlgorithm::two_level) return text;
    const TwoLevelAllReduce how = choose_two_level_all_reduce(tuning, hosts, size);
    return text + " (" + std::to_string(how.shards) + (how.shards == 1 ? " shard" : " shards") +
           ", between hosts " + std::string(to_string(how.between)) + ")";
  });
  add("reduce", [&](auto size) { return to_string(choose_reduce(tuning, hosts, size)); });
  add("broadcast", [&](auto size) { return to_string(choose_broadcast(tuning, hosts, size)); });
  add("all_gather", [&](auto size) { return to_string(choose_all_gather(tuning, hosts, size)); });
  add("reduce_scatter",
      [&](auto size) { return to_string(choose_reduce_scatter(tuning, hosts, size)); });
  add("gather, scatter", [](std::uint64_t) { return "straight"; });
  add("all_to_all", [](std::uint64_t) { return "pairwise"; });
  add("barrier", [&](std::uint64_t) { return to_string(choose_barrier(tuning, hosts)); });
  return all;
}

std::string describe_choices(const Tuning& tuning, Reach reach, const Hosts& hosts) {
  std::string text = "  on one host, by shared memory\n";
  if (reach == Reach::links)
    text = "  over links; hosts, by their names: " + std::to_string(hosts.count()) + "\n";
  for (const Choices& row : choices_of(tuning, reach, hosts)) {
    ((text += "    ") += row.operation) += ":";
    for (const Choice& choice : row.by_size) {
      text += &choice == &row.by_size.front() ? " " : ", at ";
      ((text += text_of_size(choice.from_bytes)) += " ") += choice.algorithm;
    }
    text += "\n";
  }
  return text;
}

}  // namespace tendon::v0::detail
