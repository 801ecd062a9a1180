// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "core/failpoint.hpp"
#include "core/pause.hpp"
#include "group/boards/rounds.hpp"
#include "group/epochs/call_queue.hpp"
#include "group/epochs/collectives.hpp"
#include "group/epochs/tuning.hpp"
#include "group/reduce/reduce.hpp"

namespace tendon::v0::detail {
namespace {

// Beyond it the copy costs more than this saves.
constexpr std::uint64_t kMostBytes = 8192;
// Looks at the others' lines, as many as a waiting thread takes before it yields. A member that has
// a CPU of its own and is on time arrives within them. More looks would keep the others from their
// CPUs.
constexpr int kLooks = 8;

}  // namespace

std::optional<Result<void>> CallQueue::reduce_at_once(const Tensor& tensor, const ReduceOp& op,
                                                      Deadline deadline) {
  const std::uint64_t size = tensor.size_bytes();
  if (size > kMostBytes || !tensor.is_contiguous() || tensor.device() != cpu() ||
      tensor.access() == Access::read_only || deadline.is_poll())
    return {};
  context_->note_activity();
  if (!mutex_.try_lock()) return {};
  Lock lock(mutex_, kAdoptLock);
  if (!calls_.empty() || context_->unusable() || issued_ + 1 >= end_.first()) return {};
  Epoch& epoch = *epoch_;
  if (epoch.board == nullptr || !check_reduce(op, tensor.dtype(), "group.collective")) return {};
  Board& board = *epoch.board;
  const std::uint64_t round = epoch.board_round;
  const std::uint32_t count = board.member_count();
  // A late member makes an operation, which uses the way of the table.
  if (choose_board_all_reduce(Tuning::get(), count, size) != BoardAllReduce::symmetric) return {};
  if (board.holds_back(round) != board.self()) return {};

  auto* const data = const_cast<std::byte*>(tensor.data());
  const auto dtype = static_cast<std::uint8_t>(tensor.dtype());
  Fingerprint mine{.op = CollectiveOp::all_reduce,
                   .dtype = size == 0 ? std::uint8_t{0} : dtype,
                   .reduce = static_cast<std::uint8_t>(op.kind()),
                   .history = epoch.history.mark(),
                   .root = 0,
                   .size_bytes = size,
                   .shape_hash = Flat::hash_of(tensor),
                   .sequence = static_cast<std::uint32_t>(issued_ + 1)};
  mix_factor(mine, op);
  Board::Line& line = board.mine(round);
  line.fingerprint = mine;
  const bool small = size <= Board::kSmallBytes;
  if (size != 0) std::memcpy(small ? line.small.data() : board.my_slot(round).data(), data, size);
  (void)TENDON_FAILPOINT("group.board.before_publish");
  board.publish(round);
  ++issued_;
  epoch.history.add(mine);
  ring_members(epoch);
  (void)TENDON_FAILPOINT("group.board.after_publish");

  std::uint32_t arrived = 0;
  for (int look = 0; look < kLooks && arrived < count; ++look) {
    while (arrived < count && (arrived == board.self() || board.arrived(arrived, round))) ++arrived;
    if (arrived < count) pause_briefly();
  }
  bool alike = arrived == count;
  std::array<const std::byte*, kMaxPlaces> inputs;
  for (std::uint32_t m = 0; alike && m < count; ++m) {
    if (m == board.self()) {
      inputs[m] = data;
      continue;
    }
    const Board::Line& theirs = board.theirs(m, round);
    alike = theirs.fingerprint == mine;
    inputs[m] = small ? theirs.small.data() : board.slot(m, round);
  }
  if (!alike) {
    // A member is late, or does something else: an operation waits for it, or reports it.
    auto flat = Flat::make(tensor, Use::write, Hold::borrow, "group.collective");
    auto queued = std::make_shared<Queued>();
    FlatSummary given = flat->take_summary();
    queued->operation = make_board_operation(
        mine, issued_,
        all_reduce_rounds(*std::move(flat), op, count, BoardAllReduce::symmetric, {}, {}), {},
        Staged::first_round);
    queued->operation->set_given(std::move(given));
    note_begun(*queued);
    calls_.push_back(queued);
    lock.unlock();
    return finish(queued, deadline);
  }
  reduce(op, tensor.dtype(), {data, size}, std::span(inputs).first(count));
  ++epoch.board_round;
  last_complete_.store(issued_, std::memory_order_relaxed);
  return Result<void>();
}

}  // namespace tendon::v0::detail
