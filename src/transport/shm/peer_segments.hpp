// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "transport/link.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// The memory that a peer lets this process map: segments of slots for its messages, and segments
/// that it shows to one sink. A segment that cannot be mapped costs the messages in it, not the
/// link, and is tried again with the next message.
///
/// Owns:    the mappings; the descriptor of a segment until it is mapped.
/// Threads: the link's receive lock is held for every call.
/// Errors:  protocol_violation for what no honest peer sends, too_many_open_files: both end the
///          link.
/// Blocks:  never.
/// Cost:    a system call an announcement, four a mapping.
class PeerSegments {
 public:
  /// `sink_of` finds the sink of a pipe, which is shown what the peer publishes; null: none.
  PeerSegments(std::string peer_name, std::uint64_t peer_cap_bytes,
               std::shared_ptr<ShmMemory> memory,
               std::function<MessageSink*(std::uint32_t)> sink_of);

  /// Takes in what was announced on the link's socket, at most kMostAnnouncements. `socket` may be
  /// -1: nothing comes then.
  [[nodiscard]] Result<void> read(int socket);
  /// The body of a checked message that lies in a slot. When there is no memory for it the body has
  /// a failure(), and its slot goes back to the peer.
  [[nodiscard]] Result<IncomingBody> body_of(const Descriptor& descriptor, int socket);

  /// What one call takes in, so that a flood does not keep others waiting.
  static constexpr int kMostAnnouncements = 1024;
  /// Segments published by one peer that are mapped here.
  static constexpr std::uint32_t kMaxPublished = 16384;

 private:
  [[nodiscard]] Result<void> add(const Descriptor& descriptor, OwnedFd fd);
  [[nodiscard]] Result<void> add_published(const Descriptor& descriptor, OwnedFd fd);
  /// Maps it unless it is mapped. An error other than protocol_violation may pass.
  [[nodiscard]] Result<void> map(std::uint32_t id);

  struct Announced {
    std::shared_ptr<AttachedSegment> segment;
    OwnedFd fd;  // until it is mapped
  };

  const std::string peer_name_;
  const std::uint64_t peer_cap_bytes_;
  const std::shared_ptr<ShmMemory> memory_;
  const std::function<MessageSink*(std::uint32_t)> sink_of_;
  std::vector<Announced> announced_;                     // by the peer's number
  std::vector<std::weak_ptr<const Segment>> published_;  // those that are still mapped, or more
};

}  // namespace tendon::v0::detail
