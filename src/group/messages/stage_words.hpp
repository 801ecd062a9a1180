// SPDX-License-Identifier: Apache-2.0
// The messages between two pipeline stages, and the cut of a tensor between their members.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor.hpp>

#include "group/epochs/group_core.hpp"

namespace tendon::v0::detail {

/// Sent before a tensor: its type, and how it is sent. Packed as int64, with the tag kStageTag.
struct StageHeader {
  static constexpr std::size_t kMostDimensions = 16;
  static constexpr std::size_t kTensorWords = 2 + kMostDimensions;
  static constexpr std::size_t kWords = kTensorWords + 2;

  std::array<std::int64_t, kTensorWords> tensor{};  ///< dtype, dimensions, shape
  std::int64_t whole = 0;   ///< the sender sends all of it to its counterpart, in one message
  std::int64_t number = 0;  ///< of this send among those of its process

  [[nodiscard]] static StageHeader of(const Tensor& tensor);
  /// A tensor of kWords words, with these in it.
  [[nodiscard]] Tensor packed() const;
  [[nodiscard]] static StageHeader unpacked(const Tensor& words);
  /// "f32 [4, 2]"
  [[nodiscard]] std::string tensor_text() const;
};

// Tags outside the range that programs usually take. Two transfers of one pair have different tags,
// so either of them may be ahead.
inline constexpr std::uint32_t kStageTag = 0x7464'7374;
/// The tag of the data after a header, from stage to stage.
[[nodiscard]] constexpr std::uint32_t stage_tag(std::int64_t number) {
  return 0x7465'0000 | (static_cast<std::uint32_t>(number) & 0xffff);
}
/// The tag of chunks between the members of the receiving stage.
[[nodiscard]] constexpr std::uint32_t gather_tag(std::uint32_t number) {
  return 0x7466'0000 | (number & 0xffff);
}

/// Chunk k of the share of `member` in all bytes of `packed`; empty after the share's end.
[[nodiscard]] Result<Tensor> stage_chunk(const Tensor& packed, std::uint32_t member,
                                         std::uint32_t members, std::uint64_t k);
/// The number of chunks of the largest share.
[[nodiscard]] std::uint64_t stage_chunk_count(std::uint32_t members, std::uint64_t size_bytes);

[[nodiscard]] bool by_shared_memory(const Epoch& epoch, GroupRank rank);
/// True if all members share memory.
[[nodiscard]] bool on_one_host(const Epoch& epoch);
/// "rank 2 of group "world""
[[nodiscard]] std::string stage_peer_text(const GroupCore& stages, GroupRank peer);

/// Waits for a transfer, which ends with the deadline; at most a second more, while a peer
/// withdraws its unsent part.
[[nodiscard]] Result<void> wait_for_stage(Completion<void> transfer, Deadline deadline);

}  // namespace tendon::v0::detail
