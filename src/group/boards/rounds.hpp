// SPDX-License-Identifier: Apache-2.0
// The collectives of the members of one host, as rounds on a Board.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tendon/group/reduce_op.hpp>
#include <vector>

#include "group/boards/board.hpp"
#include "group/operands/flat.hpp"

namespace tendon::v0::detail {

/// One member's part in the rounds of one operation; `i` counts them from 0, `round` is the board's
/// number.
class Rounds {
 public:
  virtual ~Rounds() = default;
  /// Writes this member's data for the others to its line and slot.
  virtual void stage(std::uint64_t i, Board& board, std::uint64_t round) = 0;
  /// True if round i reads from `member`, another one.
  [[nodiscard]] virtual bool reads(std::uint64_t i, std::uint32_t member) const = 0;
  /// Reads, when all the members that it reads have published. False: the name of a memory that it
  /// reads is still on its way; call again.
  [[nodiscard]] virtual Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) = 0;
  /// True if i, which has ended, is not the last round.
  [[nodiscard]] virtual bool more(std::uint64_t i) const = 0;
  /// True if the slots carry the reduced or moved data.
  [[nodiscard]] virtual bool shows_tensors() const { return true; }
  /// Writes the results to tensors with gaps.
  virtual void finish() {}
  /// The member whose block take() has refused.
  [[nodiscard]] std::optional<std::uint32_t> misfit() const noexcept { return misfit_; }

 protected:
  std::optional<std::uint32_t> misfit_;
};

/// Memory of this member's pool, as others of its host find it.
struct PoolPlace {
  std::uint32_t segment_id = 0;  ///< 0: the tensor is not in a pool
  std::uint64_t offset = 0;
};
/// Another member's pool memory, to be read; null while its segment is on its way, an error when it
/// cannot be mapped here. It stays mapped as long as this share of it: its owner may die, or show
/// another segment by the same name.
using PoolReader = std::function<Result<std::shared_ptr<const std::byte>>(
    std::uint32_t member, PoolPlace place, std::uint64_t size_bytes)>;

/// The algorithm of an all-reduce; see docs/collectives.md.
enum class BoardAllReduce : std::uint8_t {
  symmetric,    ///< every member shows all and reduces all: one round a chunk
  distributed,  ///< every member reduces a share of each chunk and shows the result: two rounds
                ///< each
  pull,         ///< in pool memory: no staging; falls back to `distributed` if a member's is not
};

[[nodiscard]] std::unique_ptr<Rounds> barrier_rounds();
[[nodiscard]] std::unique_ptr<Rounds> all_reduce_rounds(Flat tensors, ReduceOp op,
                                                        std::uint32_t members, BoardAllReduce way,
                                                        PoolPlace mine, PoolReader read_pool);
[[nodiscard]] std::unique_ptr<Rounds> reduce_rounds(Flat tensors, ReduceOp op, std::uint32_t root,
                                                    std::uint32_t self);
[[nodiscard]] std::unique_ptr<Rounds> broadcast_rounds(Flat tensors, std::uint32_t root,
                                                       std::uint32_t self);
/// `outputs` are the same on all members: all know the sizes.
[[nodiscard]] std::unique_ptr<Rounds> all_gather_rounds(Flat input, std::vector<Flat> outputs,
                                                        std::uint32_t self);
/// Only the root has `outputs`.
[[nodiscard]] std::unique_ptr<Rounds> gather_rounds(Flat input, std::vector<Flat> outputs,
                                                    std::uint32_t root, std::uint32_t self);
/// Only the root has `inputs`.
[[nodiscard]] std::unique_ptr<Rounds> scatter_rounds(std::vector<Flat> inputs, Flat output,
                                                     std::uint32_t root, std::uint32_t self);
[[nodiscard]] std::unique_ptr<Rounds> reduce_scatter_rounds(std::vector<Flat> inputs, Flat output,
                                                            ReduceOp op, std::uint32_t self);
[[nodiscard]] std::unique_ptr<Rounds> all_to_all_rounds(std::vector<Flat> inputs,
                                                        std::vector<Flat> outputs,
                                                        std::uint32_t self);

}  // namespace tendon::v0::detail
