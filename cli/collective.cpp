// SPDX-License-Identifier: Apache-2.0
#include "cli/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <tendon/group/stage.hpp>
#include <utility>
#include <vector>

#include "cli/benchmark.hpp"

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.bench.collective";
/// The longest time that the ranks of a stage may wait for each other.
constexpr std::chrono::seconds kStageJoinLimit{30};
/// The numbers of a check are not larger, so that they fit in an integer of eight bits.
constexpr std::int64_t kMaxNumber = 100;

/// How a float stores a whole number: the bits of its mantissa and the bias of its exponent.
struct FloatFormat {
  int mantissa_bits;
  int bias;
};
std::optional<FloatFormat> float_format(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return FloatFormat{10, 15};
    case DType::bf16:
      return FloatFormat{7, 127};
    case DType::f32:
      return FloatFormat{23, 127};
    case DType::f64:
      return FloatFormat{52, 1023};
    case DType::f8_e4m3fn:
      return FloatFormat{3, 7};
    case DType::f8_e5m2:
      return FloatFormat{2, 15};
    default:
      return {};
  }
}

/// The bits of `number` in this type. Floats take 0 to 2^(mantissa_bits + 1), which are all exact,
/// and powers of two.
std::uint64_t encode(DType dtype, std::int64_t number) {
  const auto format = float_format(dtype);
  const auto bits = static_cast<std::uint64_t>(number);
  if (!format || number == 0) return bits;
  const int exponent = std::bit_width(bits) - 1;
  const std::uint64_t fraction = bits - (std::uint64_t{1} << exponent);
  const int shift = format->mantissa_bits - exponent;
  return (static_cast<std::uint64_t>(exponent + format->bias) << format->mantissa_bits) |
         (shift >= 0 ? fraction << shift : fraction >> -shift);
}

/// Bits that depend on all of the arguments. Source of the mixing: splitmix64 by S. Vigna.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) {
  std::uint64_t bits = (seed << 56) ^ (rank << 44) ^ index;
  bits = (bits + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

/// The largest number of a check, below 1 where no check is possible.
std::int64_t largest_number(DType dtype, ReduceKind op, std::uint32_t ranks) {
  const auto format = float_format(dtype);
  const std::int64_t exact = format ? std::int64_t{2} << format->mantissa_bits : INT64_MAX;
  switch (op) {
    case ReduceKind::sum:
      return std::min<std::int64_t>(kMaxNumber, exact / ranks);
    case ReduceKind::avg:
      // number_of() adds 0, 2, ... 2 * (ranks - 1) to it, which adds ranks * (ranks - 1) to the
      // sum. Over links that sum is rounded to the type before it is divided.
      return std::min<std::int64_t>(kMaxNumber, exact / ranks - (std::int64_t{ranks} - 1));
    default:
      return std::min<std::int64_t>(kMaxNumber, exact);
  }
}

/// The number that `rank` contributes to a reduction.
std::int64_t number_of(const CollectiveCall& call, std::uint32_t ranks, std::uint64_t seed,
                       std::uint32_t rank, std::uint64_t index) {
  const auto limit = static_cast<std::uint64_t>(largest_number(call.dtype, call.op, ranks)) + 1;
  switch (call.op) {
    case ReduceKind::product:
      // The product is 16 at most, which every type holds.
      return rank < 4 ? static_cast<std::int64_t>(1 + mixed(seed, rank, index) % 2) : 1;
    case ReduceKind::avg:
      // The sum is a multiple of the number of ranks.
      return static_cast<std::int64_t>(mixed(seed, 0, index) % limit +
                                       2 * ((index + rank) % ranks));
    default:
      return static_cast<std::int64_t>(mixed(seed, rank, index) % limit);
  }
}

std::int64_t combined(const CollectiveCall& call, std::uint32_t ranks, std::uint64_t seed,
                      std::uint64_t index) {
  std::int64_t result = number_of(call, ranks, seed, 0, index);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    const std::int64_t number = number_of(call, ranks, seed, rank, index);
    switch (call.op) {
      case ReduceKind::product:
        result *= number;
        break;
      case ReduceKind::min:
        result = std::min(result, number);
        break;
      case ReduceKind::max:
        result = std::max(result, number);
        break;
      case ReduceKind::bit_and:
        result &= number;
        break;
      case ReduceKind::bit_or:
        result |= number;
        break;
      case ReduceKind::bit_xor:
        result ^= number;
        break;
      default:
        result += number;
        break;
    }
  }
  return call.op == ReduceKind::avg ? result / ranks : result;
}

Result<Tensor> touched_tensor(Context& context, const CollectiveCall& call, std::uint64_t count) {
  const Shape shape{static_cast<std::int64_t>(count)};
  Tensor tensor;
  if (call.memory == BenchMemory::pool) {
    TENDON_TRY(storage, context.pool().allocate(count * item_size_bytes(call.dtype)));
    TENDON_TRY(view, Tensor::view(std::move(storage), 0, call.dtype, shape));
    tensor = std::move(view);
  } else {
    TENDON_TRY(fresh, Tensor::empty(call.dtype, shape));
    tensor = std::move(fresh);
  }
  // Zeros stay zeros, however often they are combined in place.
  TENDON_TRY(bytes, tensor.try_mutable_bytes());
  std::memset(bytes.data(), 0, bytes.size());
  return tensor;
}

/// Writes the low bytes of `make_bits(i)` to each element.
template <class MakeBits>
void fill(const Tensor& tensor, MakeBits&& make_bits) {
  const std::uint64_t item = item_size_bytes(tensor.dtype());
  std::byte* at = tensor.mutable_bytes().data();
  const auto count = static_cast<std::uint64_t>(tensor.element_count());
  for (std::uint64_t i = 0; i < count; ++i, at += item) {
    const std::uint64_t bits = make_bits(i);
    std::memcpy(at, &bits, item);
  }
}

}  // namespace

double bus_factor(Collective collective, std::uint32_t ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == Collective::all_reduce) return 2 * others;
  return has_blocks(collective) ? others : 1;
}

Result<void> check_is_exact(const CollectiveCall& call, std::uint32_t ranks) {
  if (!reduces(call.collective) || largest_number(call.dtype, call.op, ranks) >= 1) return {};
  return Error{ErrorCode::invalid_argument, kWhere,
               fmt::format("the {} of {} ranks is not exact in {}, so it cannot be checked; give "
                           "-c 0, another -d or fewer ranks",
                           to_string(call.op), ranks, to_string(call.dtype))};
}

Result<CollectiveRun> CollectiveRun::make(Context& context, Group& group,
                                          const CollectiveCall& call) {
  CollectiveRun run(group, call);
  const std::uint64_t whole = call.element_count(run.ranks_);
  const Collective op = call.collective;
  TENDON_TRY(input,
             touched_tensor(context, call, op == Collective::all_gather ? call.count : whole));
  run.input_ = std::move(input);
  run.output_ = run.input_;
  if (op == Collective::all_reduce || op == Collective::broadcast) return run;
  if (is_between_stages(op)) {
    std::vector<GroupRank> mine;
    for (std::uint32_t i = 0; i < run.ranks_ / 2; ++i)
      mine.push_back(GroupRank{(run.is_sender() ? 0 : run.ranks_ / 2) + i});
    TENDON_TRY(stage, group.subgroup(mine, kStageJoinLimit, run.is_sender() ? "first" : "second"));
    run.stage_ = std::make_shared<Group>(std::move(stage));
    TENDON_TRY(answer, Tensor::zeros(DType::u8, Shape{1}));
    run.answer_ = std::move(answer);
    return run;
  }
  TENDON_TRY(output,
             touched_tensor(context, call, op == Collective::reduce_scatter ? call.count : whole));
  run.output_ = std::move(output);
  return run;
}

Result<void> CollectiveRun::run(Deadline deadline) {
  switch (call_.collective) {
    case Collective::all_reduce:
      return group_->all_reduce(output_, ReduceOp(call_.op), deadline);
    case Collective::all_gather:
      return group_->all_gather(input_, output_, deadline);
    case Collective::reduce_scatter:
      return group_->reduce_scatter(input_, output_, ReduceOp(call_.op), deadline);
    case Collective::all_to_all:
      return group_->all_to_all(input_, output_, deadline);
    case Collective::broadcast:
      return group_->broadcast(output_, GroupRank{call_.root}, deadline);
    case Collective::stage:
    case Collective::stage_whole:
    case Collective::stage_first:
      return run_between_stages(deadline);
    case Collective::send_recv:
      break;
  }
  const GroupRank next{(rank_ + 1) % ranks_};
  const GroupRank previous{(rank_ + ranks_ - 1) % ranks_};
  auto incoming = group_->recv_async(output_, {.rank = previous});
  TENDON_CHECK(group_->send(input_, {.rank = next}, deadline));
  auto received = incoming.wait(deadline);
  return received ? Result<void>() : Result<void>(std::move(received).error());
}

Result<void> CollectiveRun::run_between_stages(Deadline deadline) {
  const std::uint32_t half = ranks_ / 2;
  const GroupRank peer{is_sender() ? rank_ + half : rank_ - half};
  const bool is_first = rank_ % half == 0;
  if (is_sender()) {
    if (call_.collective == Collective::stage)
      TENDON_CHECK(send_to_stage(*group_, *stage_, input_, peer, deadline));
    else if (call_.collective == Collective::stage_whole || is_first)
      TENDON_CHECK(group_->send(input_, {.rank = peer}, deadline));
  } else if (call_.collective == Collective::stage) {
    TENDON_CHECK(recv_from_stage(*group_, *stage_, output_, peer, deadline));
  } else {
    if (call_.collective == Collective::stage_whole || is_first)
      TENDON_CHECK(group_->recv(output_, {.rank = peer}, deadline));
    if (call_.collective == Collective::stage_first)
      TENDON_CHECK(stage_->broadcast(output_, GroupRank{0}, deadline));
  }
  // A sender returns when its tensor has left, before it has arrived: so the receiver answers it.
  if (!is_sender()) return group_->send(answer_, {.rank = peer, .tag = 1}, deadline);
  TENDON_CHECK(group_->recv(answer_, {.rank = peer, .tag = 1}, deadline));
  return {};
}

void CollectiveRun::fill_input(std::uint64_t seed) {
  if (is_between_stages(call_.collective)) {
    if (is_sender()) fill(input_, [&](std::uint64_t i) { return mixed(seed, 0, i); });
    return;
  }
  const bool gives = call_.collective != Collective::broadcast || rank_ == call_.root;
  if (reduces(call_.collective)) {
    fill(input_, [&](std::uint64_t i) {
      return encode(call_.dtype, number_of(call_, ranks_, seed, rank_, i));
    });
  } else if (gives) {
    fill(input_, [&](std::uint64_t i) { return mixed(seed, rank_, i); });
  }
}

std::uint64_t CollectiveRun::expected(std::uint64_t seed, std::uint64_t index) const {
  const std::uint64_t block = call_.count;
  switch (call_.collective) {
    case Collective::all_reduce:
      return encode(call_.dtype, combined(call_, ranks_, seed, index));
    case Collective::reduce_scatter:
      return encode(call_.dtype, combined(call_, ranks_, seed, rank_ * block + index));
    case Collective::all_gather:
      return mixed(seed, index / block, index % block);
    case Collective::all_to_all:
      return mixed(seed, index / block, rank_ * block + index % block);
    case Collective::broadcast:
      return mixed(seed, call_.root, index);
    case Collective::stage:
    case Collective::stage_whole:
    case Collective::stage_first:
      return mixed(seed, 0, index);
    case Collective::send_recv:
      break;
  }
  return mixed(seed, (rank_ + ranks_ - 1) % ranks_, index);
}

Result<std::uint64_t> CollectiveRun::run_checked(std::uint64_t seed, Deadline deadline) {
  // An element that nobody writes is detected by this pattern.
  fill(output_, [](std::uint64_t) { return 0xa5a5a5a5a5a5a5a5; });
  fill_input(seed);
  TENDON_CHECK(run(deadline));
  const std::uint64_t item = item_size_bytes(call_.dtype);
  const std::byte* at = output_.data();
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(output_.element_count());
       ++i, at += item) {
    const std::uint64_t bits = expected(seed, i);
    wrong += std::memcmp(at, &bits, item) != 0 ? 1 : 0;
  }
  return wrong;
}

}  // namespace tendon::cli
