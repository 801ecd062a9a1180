// SPDX-License-Identifier: Apache-2.0
// A simulator that runs the scripts of all members together, interleaves them at random and reads
// sent bytes as late as possible; and plain references for the results.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "group/scripts/script.hpp"

namespace tendon::detail {

using Kind = Step::Kind;
using Memory = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

inline constexpr std::uint64_t kLargeBytes = (std::uint64_t{3} << 20) + 5;
inline constexpr std::uint64_t kSizes[] = {0, 1, 3, 63, 64, 65, 4096, 100003, kLargeBytes};

/// Elements are words; the rest at the end of a block are bytes.
struct Combining {
  const char* name;
  std::uint64_t (*words)(std::uint64_t, std::uint64_t);
  std::uint8_t (*bytes)(std::uint8_t, std::uint8_t);

  void apply(const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* out,
             std::uint64_t size) const {
    std::uint64_t i = 0;
    for (; i + 8 <= size; i += 8) {
      std::uint64_t l = 0;
      std::uint64_t r = 0;
      std::memcpy(&l, left + i, 8);
      std::memcpy(&r, right + i, 8);
      const std::uint64_t result = words(l, r);
      std::memcpy(out + i, &result, 8);
    }
    for (; i < size; ++i) out[i] = bytes(left[i], right[i]);
  }
};

/// The composition of x -> (2a+1)x + b, kept as (a, b) in two halves. It is associative, but not
/// commutative, and keeps every operand. So a result shows the order of operands, but not their
/// grouping.
inline constexpr Combining kCompose{
    "compose",
    [](std::uint64_t left, std::uint64_t right) {
      const auto a1 = static_cast<std::uint32_t>(left >> 32);
      const auto b1 = static_cast<std::uint32_t>(left);
      const auto a2 = static_cast<std::uint32_t>(right >> 32);
      const auto b2 = static_cast<std::uint32_t>(right);
      return std::uint64_t{2 * a1 * a2 + a1 + a2} << 32 | std::uint32_t{(2 * a1 + 1) * b2 + b1};
    },
    [](std::uint8_t left, std::uint8_t right) {
      const unsigned a1 = left >> 4;
      const unsigned b1 = left & 15;
      const unsigned a2 = right >> 4;
      const unsigned b2 = right & 15;
      const unsigned a = (2 * a1 * a2 + a1 + a2) & 15;
      return static_cast<std::uint8_t>(a << 4 | (((2 * a1 + 1) * b2 + b1) & 15));
    }};
/// It is not even associative: a result shows every difference in how operands were combined.
inline constexpr Combining kHash{
    "hash", [](std::uint64_t left, std::uint64_t right) { return left * 31 + right; },
    [](std::uint8_t left, std::uint8_t right) {
      return static_cast<std::uint8_t>(left * 31 + right);
    }};

/// When the bytes of a send are read.
enum class Reads {
  late,        ///< when the receiver takes them, or the sender is about to overwrite them
  any_time,    ///< then or before, at random
  when_taken,  ///< only when the receiver takes them: a step that wants to overwrite them waits
};
inline constexpr Reads kReads[] = {Reads::late, Reads::any_time, Reads::when_taken};

struct Message {
  const std::uint8_t* from = nullptr;
  std::uint64_t size = 0;
  bool is_read = false;
  Memory bytes = {};

  void read() {
    if (!is_read) bytes.assign(from, from + size);
    is_read = true;
  }
};

struct Simulated {
  Script script;
  Memory input;
  Memory output;
  /// `input` is not used; the operand lies in `output` at this offset.
  std::optional<std::uint64_t> in_place = {};

  Memory scratch = {};
  std::size_t done = 0;
  std::vector<std::shared_ptr<Message>> unread = {};
  std::optional<Memory> held = {};  // the message of a reduce that waits
};

/// Runs the simulation; has the text of the fault, or an empty one.
class Simulation {
 public:
  Simulation(std::vector<Simulated>& members, const Combining& operation, Reads reads,
             std::uint64_t seed)
      : members_(members), operation_(operation), reads_(reads), random_(seed) {}

  std::string run() {
    for (Simulated& member : members_) member.scratch.assign(member.script.scratch_bytes, 0xEE);
    const std::size_t count = members_.size();
    for (;;) {
      // One member runs for a while, so that others fall far behind.
      const std::size_t first = random_() % count;
      bool moved = false;
      for (std::size_t i = 0; i < count && !moved; ++i) {
        const auto rank = static_cast<std::uint32_t>((first + i) % count);
        std::uint64_t burst = std::uint64_t{1} << random_() % 7;
        while (burst-- > 0 && step(rank)) moved = true;
        if (!error_.empty()) return error_;
      }
      if (!moved) break;
    }
    return verdict();
  }

 private:
  std::string verdict() const {
    std::ostringstream text;
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (members_[rank].done < members_[rank].script.steps.size())
        text << "rank " << rank << " waits for ever at step " << members_[rank].done << "; ";
    }
    for (const auto& [way, messages] : ways_) {
      if (!messages.empty())
        text << messages.size() << " messages left from " << way.first << " to " << way.second
             << "; ";
    }
    return text.str();
  }

  bool fail(std::uint32_t rank, const char* what) {
    std::ostringstream text;
    text << "rank " << rank << ", step " << members_[rank].done << ": " << what;
    error_ = text.str();
    return false;
  }

  std::uint8_t* at(std::uint32_t rank, const Location& location, std::uint64_t size) {
    Simulated& member = members_[rank];
    Memory* memory = &member.output;
    std::uint64_t offset = location.offset;
    if (location.buffer == Buffer::scratch) memory = &member.scratch;
    if (location.buffer == Buffer::input && !member.in_place) memory = &member.input;
    if (location.buffer == Buffer::input && member.in_place) offset += *member.in_place;
    if (offset > memory->size() || size > memory->size() - offset) {
      fail(rank, "outside of its buffer");
      return nullptr;
    }
    return memory->data() + offset;
  }

  /// Whether the member may write there.
  bool make_way(Simulated& member, const std::uint8_t* to, std::uint64_t size) {
    std::erase_if(member.unread, [](const auto& message) { return message->is_read; });
    for (const auto& message : member.unread) {
      if (message->from >= to + size || to >= message->from + message->size) continue;
      if (reads_ == Reads::when_taken) return false;
      message->read();
    }
    return true;
  }

  bool step(std::uint32_t rank) {
    Simulated& member = members_[rank];
    if (!error_.empty() || member.done == member.script.steps.size()) return false;
    const Step& step = member.script.steps[member.done];
    const std::uint64_t size = step.size_bytes;
    if (step.kind != Kind::copy && (step.peer >= members_.size() || step.peer == rank))
      return fail(rank, "no such peer");
    const std::uint8_t* from = step.kind == Kind::receive ? nullptr : at(rank, step.from, size);
    std::uint8_t* to = step.kind == Kind::send ? nullptr : at(rank, step.to, size);
    if (!error_.empty()) return false;

    if (step.kind == Kind::send) {
      auto message = std::make_shared<Message>(Message{.from = from, .size = size});
      ways_[{rank, step.peer}].push_back(message);
      member.unread.push_back(message);
      if (reads_ == Reads::any_time && random_() % 2 == 0)
        member.unread[random_() % member.unread.size()]->read();
    } else if (step.kind == Kind::copy) {
      if (from != to) {
        if (!make_way(member, to, size)) return false;
        std::memmove(to, from, size);
      }
    } else {
      // A receive has no memory for a message that it may not write yet; a reduce has.
      if (step.kind == Kind::receive && !make_way(member, to, size)) return false;
      if (!member.held) {
        auto& way = ways_[{step.peer, rank}];
        if (way.empty()) return false;
        if (way.front()->size != size) return fail(rank, "a message of another size");
        way.front()->read();
        member.held = std::move(way.front()->bytes);
        way.pop_front();
      }
      if (!make_way(member, to, size)) return false;
      if (step.kind == Kind::receive)
        std::copy(member.held->begin(), member.held->end(), to);
      else if (step.message == Operand::left)
        operation_.apply(member.held->data(), from, to, size);
      else
        operation_.apply(from, member.held->data(), to, size);
      member.held.reset();
    }
    ++member.done;
    return true;
  }

  std::vector<Simulated>& members_;
  const Combining& operation_;
  Reads reads_;
  Random random_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::shared_ptr<Message>>> ways_;
  std::string error_;
};

inline Memory random_memory(Random& random, std::uint64_t size) {
  Memory memory(size + 8);
  for (std::uint64_t i = 0; i < size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(memory.data() + i, &word, 8);
  }
  memory.resize(size);
  return memory;
}

/// memories[order[0]] op memories[order[1]] op ..., from the left, of [begin, end).
inline Memory fold(const Combining& operation, const std::vector<Memory>& memories,
                   const std::vector<std::uint32_t>& order, std::uint64_t begin,
                   std::uint64_t end) {
  const auto part = [&](std::uint32_t rank) { return memories[rank].data() + begin; };
  Memory result(part(order[0]), part(order[0]) + (end - begin));
  for (std::size_t i = 1; i < order.size(); ++i)
    operation.apply(result.data(), part(order[i]), result.data(), end - begin);
  return result;
}

/// first, first + 1, ... modulo count.
inline std::vector<std::uint32_t> ranks_from(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t i = 0; i < count; ++i) order[i] = (first + i) % count;
  return order;
}

/// The order of the ring: each block has its own. The blocks are computed independently.
inline Memory ring_fold(const Combining& operation, const std::vector<Memory>& memories,
                        std::uint64_t size) {
  const std::uint64_t count = memories.size();
  const std::uint64_t grains = (size + 63) / 64;
  Memory result;
  for (std::uint32_t block = 0; block < count; ++block) {
    const std::uint64_t mine = grains / count + (block < grains % count ? 1 : 0);
    const std::uint64_t begin = result.size();
    const Memory part =
        fold(operation, memories, ranks_from(block + 1, static_cast<std::uint32_t>(count)), begin,
             std::min(begin + mine * 64, size));
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

inline bool cut_well(const Script& script, std::uint64_t size, const Cut& cut) {
  const auto good = [&](const Location& location, std::uint64_t bytes) {
    return location.offset % cut.grain_bytes == 0 &&
           (bytes % cut.grain_bytes == 0 || location.buffer == Buffer::scratch ||
            location.offset + bytes == size);
  };
  return std::all_of(script.steps.begin(), script.steps.end(), [&](const Step& step) {
    return step.size_bytes > 0 && (step.kind == Kind::copy || step.size_bytes <= cut.piece_bytes) &&
           (step.kind == Kind::receive || good(step.from, step.size_bytes)) &&
           (step.kind == Kind::send || good(step.to, step.size_bytes));
  });
}

inline std::uint64_t bytes_sent(const Script& script) {
  std::uint64_t bytes = 0;
  for (const Step& step : script.steps)
    if (step.kind == Kind::send) bytes += step.size_bytes;
  return bytes;
}

/// One case of many: its description and its seed.
inline std::string say(std::uint64_t seed, const std::string& what) {
  return what + ", seed " + std::to_string(seed);
}

}  // namespace tendon::detail
