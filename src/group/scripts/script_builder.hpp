// SPDX-License-Identifier: Apache-2.0
// The parts from which the scripts of collectives are built.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "group/scripts/script.hpp"

namespace tendon::v0::detail {

/// The member `distance` after it on the ring; `distance` may be anything up to 2 n.
inline std::uint32_t after(Member member, std::uint32_t distance) {
  return (member.rank + distance) % member.count;
}
inline std::uint32_t before(Member member, std::uint32_t distance) {
  return (member.rank + 2 * member.count - distance) % member.count;
}

inline std::uint64_t round_up(std::uint64_t size_bytes, std::uint64_t grain_bytes) {
  return (size_bytes + grain_bytes - 1) / grain_bytes * grain_bytes;
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// One block of a buffer for each member, without gaps.
class Blocks {
 public:
  explicit Blocks(std::span<const std::uint64_t> counts) : begins_(counts.size() + 1) {
    std::inclusive_scan(counts.begin(), counts.end(), begins_.begin() + 1);
  }
  /// Makes blocks as equal as the grain allows.
  Blocks(std::uint32_t members, std::uint64_t size_bytes, std::uint64_t grain_bytes) {
    const std::uint64_t grains = size_bytes / grain_bytes + (size_bytes % grain_bytes != 0 ? 1 : 0);
    for (std::uint64_t i = 0; i <= members; ++i) {
      const std::uint64_t cut = grains / members * i + std::min(grains % members, i);
      begins_.push_back(std::min(cut * grain_bytes, size_bytes));
    }
  }
  [[nodiscard]] Range operator[](std::uint32_t member) const {
    return {begins_[member], begins_[member + 1]};
  }
  [[nodiscard]] std::uint64_t size(std::uint32_t member) const {
    return begins_[member + 1] - begins_[member];
  }
  [[nodiscard]] std::uint64_t largest() const {
    std::uint64_t most = 0;
    for (std::size_t i = 1; i < begins_.size(); ++i)
      most = std::max(most, begins_[i] - begins_[i - 1]);
    return most;
  }

 private:
  std::vector<std::uint64_t> begins_;
};

/// Bytes that are sent to a peer as soon as they are there, in pieces counted from their beginning.
struct Onward {
  std::uint32_t peer = 0;
  Buffer buffer = Buffer::output;
  Range unsent;
};

/// Writes steps, and cuts those larger than a piece. Both ends of a message use the same size.
class ScriptBuilder {
 public:
  explicit ScriptBuilder(const Cut& cut)
      : piece_bytes_(
            std::max(cut.piece_bytes - cut.piece_bytes % cut.grain_bytes, cut.grain_bytes)) {}

  void send(std::uint32_t peer, Location from, std::uint64_t size_bytes) {
    Onward all{peer, from.buffer, {from.offset, from.offset + size_bytes}};
    send_until(all, all.unsent.end);
  }
  /// Sends the bytes before `end` in whole pieces.
  void send_until(Onward& outgoing, std::uint64_t end) {
    Range& unsent = outgoing.unsent;
    while (unsent.begin < unsent.end) {
      const std::uint64_t size_bytes = std::min(piece_bytes_, unsent.end - unsent.begin);
      if (unsent.begin + size_bytes > end) return;
      script_.steps.push_back({.kind = Step::Kind::send,
                               .peer = outgoing.peer,
                               .from = {outgoing.buffer, unsent.begin},
                               .size_bytes = size_bytes});
      unsent.begin += size_bytes;
    }
  }
  /// Receives; after each piece, sends the `onwards` that waited for it. They are in the buffer of
  /// `to`.
  void receive(std::uint32_t peer, Location to, std::uint64_t size_bytes,
               std::span<Onward> onwards = {}) {
    take({.kind = Step::Kind::receive, .peer = peer, .to = to, .size_bytes = size_bytes}, onwards);
  }
  void reduce(std::uint32_t peer, Operand message, Location from, Location to,
              std::uint64_t size_bytes, std::span<Onward> onwards = {}) {
    take({.kind = Step::Kind::reduce,
          .message = message,
          .peer = peer,
          .from = from,
          .to = to,
          .size_bytes = size_bytes},
         onwards);
  }
  void copy(Location from, Location to, std::uint64_t size_bytes) {
    if (size_bytes != 0)
      script_.steps.push_back({.from = from, .to = to, .size_bytes = size_bytes});
  }
  /// Sends a block that the other side may expect to be of another size: an empty one too.
  void send_block(std::uint32_t peer, Location from, std::uint64_t size_bytes) {
    if (size_bytes == 0) return send_signal(peer);
    send(peer, from, size_bytes);
  }
  void receive_block(std::uint32_t peer, Location to, std::uint64_t size_bytes) {
    if (size_bytes == 0) return receive_signal(peer);
    receive(peer, to, size_bytes);
  }
  /// Sends an empty message.
  void send_signal(std::uint32_t peer) {
    script_.steps.push_back({.kind = Step::Kind::send, .peer = peer});
  }
  void receive_signal(std::uint32_t peer) {
    script_.steps.push_back({.kind = Step::Kind::receive, .peer = peer});
  }
  void use_scratch(std::uint64_t size_bytes) { script_.scratch_bytes = size_bytes; }

  [[nodiscard]] std::uint64_t piece_bytes() const { return piece_bytes_; }
  [[nodiscard]] Script finish() { return std::move(script_); }

 private:
  void take(const Step& whole, std::span<Onward> onwards) {
    for (std::uint64_t done = 0; done < whole.size_bytes;) {
      Step piece = whole;
      if (whole.kind == Step::Kind::reduce) piece.from.offset += done;
      piece.to.offset += done;
      piece.size_bytes = std::min(piece_bytes_, whole.size_bytes - done);
      done += piece.size_bytes;
      script_.steps.push_back(piece);
      for (Onward& onward : onwards) send_until(onward, whole.to.offset + done);
    }
  }

  std::uint64_t piece_bytes_;
  Script script_;
};

/// The place of a member in a tree. It receives its bytes from the parent, or sends its result
/// there; with the children it is the reverse.
struct TreePlace {
  std::optional<std::uint32_t> parent;  ///< none at the root
  std::vector<std::uint32_t> children;  ///< with the smallest subtree first
};
/// The subtree of a member is a run of ranks that begins with it, counted from the root.
TreePlace binomial_tree(Member member, std::uint32_t root);
TreePlace chain(Member member, std::uint32_t root);

/// Sends the root's `output` down the tree.
void tree_broadcast(ScriptBuilder& script, const TreePlace& tree, std::uint64_t size_bytes);
enum class TreeOperands : std::uint8_t {
  kept,      ///< in `input`. Scratch: some pieces at members with a parent and children
  replaced,  ///< in `output`, by the combination of the member and those below it
};
/// Reduces up the tree, to the root's `output`.
void tree_reduce(ScriptBuilder& script, const TreePlace& tree, std::uint64_t size_bytes,
                 TreeOperands operands);

/// The n-1 steps of a ring in which the own block, sent before, and all others travel round.
void ring_all_gather(ScriptBuilder& script, Member member, const Blocks& blocks);

}  // namespace tendon::v0::detail
