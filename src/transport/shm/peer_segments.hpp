// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/session/limits.hpp>
#include <utility>
#include <vector>

#include "core/fd.hpp"
#include "transport/link.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// The memory that a peer lets this process map: segments of slots for its messages, and segments
/// that it shows to one sink. A segment shown to several is mapped once, as long as one of them has
/// it. A segment that cannot be mapped costs the messages in it, not the link, and is tried again
/// with the next message. If this process has no free descriptor for one, it stays on the socket.
///
/// Owns:    the mappings; the descriptor of a segment until it is mapped.
/// Threads: the link's receive lock is held for every call.
/// Errors:  protocol_violation for words that no honest peer sends, which ends the link.
/// Blocks:  never.
/// Cost:    two system calls an announcement, three a mapping.
class PeerSegments {
 public:
  /// `sink_of` finds the sink of a pipe, which sees the peer's published segments; null: none.
  /// `on_device` handles announcements with a descriptor that are no host memory.
  PeerSegments(std::string peer_name, std::uint64_t peer_cap_bytes,
               std::shared_ptr<ShmMemory> memory,
               std::function<MessageSink*(std::uint32_t)> sink_of,
               std::function<Result<void>(const Descriptor&, OwnedFd)> on_device);

  /// Begins a turn of the link: kMostAnnouncements may be read until the next one begins.
  void begin_turn() noexcept { taken_in_turn_ = 0; }
  /// True if the turn is used up: more may be on the socket, also announcements made before a
  /// message.
  [[nodiscard]] bool turn_is_spent() const noexcept { return taken_in_turn_ == kMostAnnouncements; }
  /// Reads announcements on the link's socket. `socket` may be -1: nothing arrives then.
  [[nodiscard]] Result<void> read(int socket);
  /// True if the last read() found one that got no descriptor here: read() again.
  [[nodiscard]] bool lacks_descriptor() const noexcept { return lacks_descriptor_; }
  /// True if the body of this message can be found without another read().
  [[nodiscard]] bool knows(std::uint32_t segment) const noexcept {
    return segment < announced_.size() || shared_.contains(segment);
  }
  /// The body of a checked message that lies in a slot. Without memory for it the body has a
  /// failure(), and its slot returns to the peer.
  [[nodiscard]] Result<IncomingBody> body_of(const Descriptor& descriptor);
  /// Sets the function that asks the peer whether the pages of the link's slots stay, once GPUs
  /// here shall read them. It is called in the device thread. Pages of the publish pool stay by
  /// their seal.
  void start(std::function<void()> ask_for_pages) { pages_->start(std::move(ask_for_pages)); }
  /// Handles the peer's answer. Returns its fault, or an empty text.
  [[nodiscard]] std::string_view note_pages_stay() noexcept {
    return pages_->note_answer() ? "" : "it said that pages stay, which nobody asked";
  }

  /// The most announcements of one turn, so that a flood does not delay others.
  static constexpr std::uint32_t kMostAnnouncements = 1024;
  /// The most published segments of one peer that are mapped here, counted for each sink that has
  /// them.
  static constexpr std::uint32_t kMaxPublished = 32768;
  static_assert(kMaxPublished >= 2 * kMaxPipesPerLink, "a pipe may have some");
  /// All segments of one peer together: an eighth of the bytes that a process can address.
  static constexpr std::uint64_t kMostMappedBytes = std::uint64_t{1} << 44;

 private:
  [[nodiscard]] Result<void> add(const Descriptor& descriptor, OwnedFd fd);
  [[nodiscard]] Result<void> add_published(const Descriptor& descriptor, OwnedFd fd);
  /// The mapping that another sink has of it, or a new one.
  [[nodiscard]] Result<std::shared_ptr<Segment>> map_published(OwnedFd fd,
                                                               std::uint64_t size_bytes);
  void forget_unmapped();
  /// Identifies a file: two descriptors of it are equal, whatever its name was, as long as it
  /// exists.
  using File = std::pair<dev_t, ino_t>;
  struct Announced {
    std::shared_ptr<AttachedSegment> segment;
    OwnedFd fd;  // until it is mapped
  };
  /// resource_exhausted beyond kMostMappedBytes.
  [[nodiscard]] Result<void> has_room(std::uint64_t size_bytes);
  /// Maps it unless it is mapped. An error other than protocol_violation may pass.
  [[nodiscard]] Result<void> map(Announced& announced);
  [[nodiscard]] bool is_legal(const Descriptor& descriptor) const;

  const std::string peer_name_;
  const std::uint64_t peer_cap_bytes_;
  const std::shared_ptr<ShmMemory> memory_;
  const std::function<MessageSink*(std::uint32_t)> sink_of_;
  const std::function<Result<void>(const Descriptor&, OwnedFd)> on_device_;
  const std::shared_ptr<cuda::KeptPages> pages_ = std::make_shared<cuda::KeptPages>();
  std::uint32_t taken_in_turn_ = 0;
  bool lacks_descriptor_ = false;
  std::uint64_t mapped_bytes_ = 0;                       // of slots
  std::uint64_t published_bytes_ = 0;                    // of files_, or more
  std::vector<Announced> announced_;                     // by the peer's number
  std::map<std::uint32_t, Announced> shared_;            // of its publish pool, by its number
  std::map<File, std::weak_ptr<Segment>> files_;         // published and still mapped, or more
  std::vector<std::weak_ptr<const Segment>> published_;  // those that sinks still have, or more
};

}  // namespace tendon::v0::detail
