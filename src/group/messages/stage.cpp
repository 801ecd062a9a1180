// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <tendon/group/stage.hpp>
#include <utility>
#include <vector>

#include "group/operands/share.hpp"
#include "tensor/copy.hpp"

namespace tendon::v0 {
namespace {

// Long enough that a chunk is worth a gather, short enough that the last one hides little.
constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;
// Beside the tags that programs usually take.
constexpr std::uint32_t kTag = 0x7464'7374;

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

// Chunk k of a member's share; empty behind its end.
Range chunk_of(std::uint32_t member, std::uint32_t members, std::uint64_t size_bytes,
               std::uint64_t k) {
  const detail::Share share = detail::share_of(member, members, size_bytes);
  const std::uint64_t from = std::min(share.end, share.begin + k * kChunkBytes);
  return {from, std::min(kChunkBytes, share.end - from)};
}

std::uint64_t chunk_count(std::uint32_t members, std::uint64_t size_bytes) {
  return (detail::largest_share(members, size_bytes) + kChunkBytes - 1) / kChunkBytes;
}

Result<Tensor> bytes_of(const Tensor& tensor, const Range& range) {
  auto* const data = const_cast<std::byte*>(tensor.data());
  const Storage& whole = tensor.storage();
  return Tensor::view(Storage(whole.owner(), data, tensor.size_bytes(), whole.access()),
                      range.begin, DType::u8, Shape({static_cast<std::int64_t>(range.size_bytes)}));
}

using Words = std::array<std::int64_t, 2 + 16 + 1>;
constexpr std::size_t kWay = 2 + 16;  ///< the last word: does the sender send all of it?

// Dtype and shape.
Words words_of(const Tensor& tensor) {
  Words words{};
  words[0] = static_cast<std::int64_t>(tensor.dtype());
  words[1] = static_cast<std::int64_t>(tensor.dimension_count());
  std::copy(tensor.shape().begin(), tensor.shape().end(), words.begin() + 2);
  return words;
}

std::string text_of(const Words& words) {
  const auto dtype = dtype_from_number(static_cast<std::uint8_t>(words[0]));
  std::string text = dtype ? std::string(to_string(*dtype)) : "an unknown dtype";
  text += " [";
  const auto count = std::clamp<std::int64_t>(words[1], 0, 16);
  for (std::int64_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(words[static_cast<std::size_t>(2 + i)]);
  return text + "]";
}

Tensor tensor_of(const Words& words) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(words.size())},
                                  std::span<const std::int64_t>(words));
}

bool by_shared_memory(const GroupMember& member) {
  return !member.path || member.path->kind == PathKind::shm;
}

bool on_one_host(const Group& group) {
  const auto members = group.members();
  return std::all_of(members.begin(), members.end(), by_shared_memory);
}

// For a peer to give back what it was about to do.
constexpr auto kTakeBack = std::chrono::seconds(1);

/// The outcome of a step. What is not done by the deadline of the call is taken back: the tensor is
/// the caller's again.
template <class T>
Result<T> settle(Completion<T>& step, Deadline deadline, const std::string& what) {
  Result<T> outcome = step.wait(deadline);
  if (outcome || !is_pending(outcome.error())) return outcome;
  step.expire();
  outcome = step.wait(kTakeBack);
  if (outcome || outcome.error().where != "completion.cancel") return outcome;
  return Error{ErrorCode::timeout, "group.stage", what};
}

std::string peer_text(const Group& stages, GroupRank peer) {
  return "rank " + std::to_string(peer.value) + " of group \"" + stages.name() + "\"";
}

Result<void> receive_from_stage(Group& stages, Group& tensor_group, const Tensor& tensor,
                                GroupRank peer, Deadline deadline) {
  // The arguments of this member: nobody else has to hear of it.
  if (peer.value >= stages.size() || peer == stages.rank()) {
    return Error{
        ErrorCode::invalid_argument, "group.recv_from_stage",
        peer_text(stages, peer) +
            (peer == stages.rank() ? " is this member itself"
                                   : ", which has " + std::to_string(stages.size()) + " members")};
  }
  std::optional<Completion<void>> gathering;
  // The others of this stage would wait in the gather for the share that does not come.
  const auto not_received = [&](Error error) {
    tensor_group.abort("recv_from_stage: " + error.detail);
    if (gathering) (void)gathering->wait(kTakeBack);
    return error;
  };
  const From from{peer, kTag};
  const Words mine = words_of(tensor);
  Words theirs = mine;
  const Tensor said = tensor_of(theirs);
  if (auto come = stages.recv(said, from, deadline); !come)
    return not_received(std::move(come).error());
  const auto words = said.span<const std::int64_t>();
  std::copy(words.begin(), words.end(), theirs.begin());
  const bool whole = std::exchange(theirs[kWay], 0) != 0;
  if (theirs != mine) {
    return not_received(Error{ErrorCode::mismatch, "group.recv_from_stage",
                              peer_text(stages, peer) + " sends " + text_of(theirs) +
                                  ", this member expects " + text_of(mine)});
  }
  Tensor packed = tensor;
  if (!tensor.is_contiguous()) {
    TENDON_TRY(fresh, Tensor::empty(tensor.dtype(), tensor.shape()));
    packed = std::move(fresh);
  }
  const std::uint32_t members = tensor_group.size();
  const std::uint32_t rank = tensor_group.rank().value;
  const std::uint64_t size = packed.size_bytes();
  if (whole && size != 0) {
    if (auto come = stages.recv(packed, from, deadline); !come)
      return not_received(std::move(come).error());
  }
  // Others of this stage may have got their shares alone.
  const bool gather = !whole || !on_one_host(tensor_group);
  const std::uint64_t chunks = gather ? chunk_count(members, size) : 0;
  const auto receive = [&](std::uint64_t k) -> Result<std::optional<Completion<Received>>> {
    const Range range = k < chunks ? chunk_of(rank, members, size, k) : Range{};
    if (whole || range.size_bytes == 0) return std::optional<Completion<Received>>();
    TENDON_TRY(bytes, bytes_of(packed, range));
    return std::optional(stages.recv_async(bytes, from));
  };
  const auto gathered = [&]() -> Result<void> {
    if (!gathering) return {};
    return settle(*gathering, deadline, "the gather of this stage's members is not complete");
  };
  TENDON_TRY(receiving, receive(0));
  for (std::uint64_t k = 0; k < chunks; ++k) {
    if (receiving) {
      auto come = settle(*receiving, deadline,
                         "chunk " + std::to_string(k) + " of " + std::to_string(chunks) + " from " +
                             peer_text(stages, peer) + " has not come");
      if (!come) return not_received(std::move(come).error());
    }
    TENDON_TRY(next, receive(k + 1));
    receiving = std::move(next);
    std::vector<Tensor> blocks;
    for (std::uint32_t member = 0; member < members; ++member) {
      TENDON_TRY(block, bytes_of(packed, chunk_of(member, members, size, k)));
      blocks.push_back(std::move(block));
    }
    TENDON_CHECK(gathered());
    gathering.emplace(tensor_group.all_gather_async(blocks[rank], blocks));
  }
  TENDON_CHECK(gathered());
  if (!tensor.is_contiguous()) detail::copy_strided(tensor, packed);
  return {};
}

}  // namespace

Result<void> send_to_stage(Group& stages, const Group& tensor_group, const Tensor& tensor,
                           GroupRank peer, Deadline deadline) {
  TENDON_TRY(packed, tensor.contiguous());
  const To to{peer, kTag};
  Words words = words_of(tensor);
  // Within one host there is no link between the stages to spare: a gather would move the same
  // bytes in more steps. A member that shares memory with all of its stage and with its counterpart
  // sends all. If the counterpart shares memory with all of its own stage, every member there has
  // got all.
  const auto there = stages.members();
  const bool whole =
      on_one_host(tensor_group) && peer.value < there.size() && by_shared_memory(there[peer.value]);
  words[kWay] = whole ? 1 : 0;
  TENDON_CHECK(stages.send(tensor_of(words), to, deadline));
  if (whole) return packed.size_bytes() == 0 ? Result<void>() : stages.send(packed, to, deadline);
  const std::uint32_t members = tensor_group.size();
  const std::uint64_t size = packed.size_bytes();
  std::vector<Completion<void>> sends;
  for (std::uint64_t k = 0; k < chunk_count(members, size); ++k) {
    const Range mine = chunk_of(tensor_group.rank().value, members, size, k);
    if (mine.size_bytes == 0) break;
    TENDON_TRY(bytes, bytes_of(packed, mine));
    sends.push_back(stages.send_async(bytes, to));
  }
  Result<void> outcome;
  for (auto& send : sends) {
    if (!outcome) send.cancel();
    auto sent = settle(send, deadline, peer_text(stages, peer) + " has not taken what was sent");
    if (outcome && !sent) outcome = std::move(sent);
  }
  return outcome;
}

Result<void> recv_from_stage(Group& stages, Group& tensor_group, const Tensor& tensor,
                             GroupRank peer, Deadline deadline) {
  if (tensor.access() == Access::read_only) {
    return Error{ErrorCode::read_only, "group.recv_from_stage",
                 "the tensor to be received into may only be read"};
  }
  return receive_from_stage(stages, tensor_group, tensor, peer, deadline);
}

}  // namespace tendon::v0
