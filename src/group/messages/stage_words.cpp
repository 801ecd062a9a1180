// SPDX-License-Identifier: Apache-2.0
#include "group/messages/stage_words.hpp"

#include <algorithm>
#include <chrono>
#include <span>

#include "group/operands/share.hpp"

namespace tendon::v0::detail {
namespace {

// Long enough that a chunk is worth a message to each, short enough that the last one hides little.
constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

constexpr std::chrono::seconds kTakeBack{1};

}  // namespace

StageHeader StageHeader::of(const Tensor& tensor) {
  StageHeader header;
  header.tensor[0] = static_cast<std::int64_t>(tensor.dtype());
  header.tensor[1] = static_cast<std::int64_t>(tensor.dimension_count());
  std::copy(tensor.shape().begin(), tensor.shape().end(), header.tensor.begin() + 2);
  return header;
}

Tensor StageHeader::packed() const {
  std::array<std::int64_t, kWords> words{};
  std::copy(tensor.begin(), tensor.end(), words.begin());
  words[kTensorWords] = whole;
  words[kTensorWords + 1] = number;
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(kWords)},
                                  std::span<const std::int64_t>(words));
}

StageHeader StageHeader::unpacked(const Tensor& words) {
  const auto all = words.span<const std::int64_t>();
  StageHeader header;
  std::copy_n(all.begin(), kTensorWords, header.tensor.begin());
  header.whole = all[kTensorWords];
  header.number = all[kTensorWords + 1];
  return header;
}

std::string StageHeader::tensor_text() const {
  const auto dtype = dtype_from_number(static_cast<std::uint8_t>(tensor[0]));
  std::string text = dtype ? std::string(to_string(*dtype)) : "an unknown dtype";
  text += " [";
  const auto count = std::clamp<std::int64_t>(tensor[1], 0, kMostDimensions);
  for (std::int64_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor[static_cast<std::size_t>(2 + i)]);
  return text + "]";
}

Result<Tensor> stage_chunk(const Tensor& packed, std::uint32_t member, std::uint32_t members,
                           std::uint64_t k) {
  const Share share = share_of(member, members, packed.size_bytes());
  const std::uint64_t begin = std::min(share.end, share.begin + k * kChunkBytes);
  const std::uint64_t size = std::min(kChunkBytes, share.end - begin);
  const Storage& whole = packed.storage();
  const auto offset = static_cast<std::uint64_t>(packed.data() - whole.data());
  return Tensor::view(whole, offset + begin, DType::u8, Shape({static_cast<std::int64_t>(size)}));
}

std::uint64_t stage_chunk_count(std::uint32_t members, std::uint64_t size_bytes) {
  return (largest_share(members, size_bytes) + kChunkBytes - 1) / kChunkBytes;
}

bool by_shared_memory(const Epoch& epoch, GroupRank rank) {
  return rank == epoch.self || epoch.channels[rank]->link().path().kind == PathKind::shm;
}

bool on_one_host(const Epoch& epoch) {
  return std::ranges::all_of(epoch.ranks(),
                             [&](GroupRank rank) { return by_shared_memory(epoch, rank); });
}

std::string stage_peer_text(const GroupCore& stages, GroupRank peer) {
  return "rank " + std::to_string(peer.value) + " of group \"" + stages.name() + "\"";
}

Result<void> wait_for_stage(Completion<void> transfer, Deadline deadline) {
  Result<void> outcome = transfer.wait(deadline);
  if (outcome || !is_pending(outcome.error())) return outcome;
  transfer.expire();
  return transfer.wait(kTakeBack);
}

}  // namespace tendon::v0::detail
