// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "core/fd.hpp"
#include "cuda/device_segment.hpp"
#include "cuda/gpu.hpp"
#include "cuda/uuid.hpp"
#include "memory/segment.hpp"
#include "session/features.hpp"
#include "transport/device_body.hpp"
#include "transport/device_word.hpp"
#include "transport/message.hpp"
#include "transport/shm/ready_words.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// A segment on a GPU of the peer.
///
///   kept -> under way -> mapped
///                     -> refused
///   kept: this process has not used that GPU, and no peer makes it use it.
struct PeerDeviceSegment {
  std::uint32_t number = 0;
  std::uint32_t device = 0;  ///< in the offers of the peer
  cuda::Uuid gpu_uuid{};
  std::uint64_t slot_bytes = 0;
  std::uint32_t slot_count = 0;
  OwnedFd descriptor;  ///< while it is kept; then the device thread's

  enum class State : std::uint8_t { kept, under_way, mapped, refused };
  std::atomic<State> state{State::kept};
  bool is_seen = false;  ///< by the link, which answers the first one of a GPU

  std::shared_ptr<cuda::Gpu> gpu;  ///< from `under way` on
  // The device thread writes these, then sets the state.
  std::shared_ptr<cuda::DeviceSegment> memory;
  std::optional<Error> error;
};

/// A GPU in the offers of the peer, and this side's last answer about its memory.
struct PeerGpu {
  cuda::Uuid uuid{};
  std::optional<DeviceAnswer> answer;
};

/// Memory of a peer that the GPUs of this process may read: its segments, and the messages in them
/// (docs/protocol.md, "GPUs"). The first segment of each GPU decides whether the peer may send so
/// at all: this side answers once it has tried to map it.
///
/// Owns:    the mappings, until the last message in them is dropped; the ready words.
/// Threads: the link's receive lock is held for every call but has_input().
/// Errors:  protocol_violation for words that no honest peer sends, which ends the link.
/// Blocks:  never. The device thread maps.
/// Cost:    an allocation for each message, and a look at its word.
class PeerDevices {
 public:
  PeerDevices(std::string peer_name, std::shared_ptr<ShmMemory> memory);

  /// `told` is called in the device thread when a segment was mapped, or was not: call
  /// note_mapped() then, and collect(). Call it once, first.
  void start(std::function<void()> told) { told_ = std::move(told); }
  /// Handles the word `segment`, with its descriptor.
  [[nodiscard]] Result<void> announce(const Descriptor& word, OwnedFd descriptor,
                                      Features features);
  /// Handles the words `gone` and `incomplete`. Returns their fault, or an empty text.
  [[nodiscard]] std::string_view take_in(const Descriptor& word);
  /// Called a few times a second: maps kept segments of GPUs that this process uses now, and
  /// answers anew for a GPU that it has lost.
  void tick();
  void note_mapped() noexcept { mapped_.store(true); }
  /// Handles the results of the device thread since the last call.
  [[nodiscard]] Result<void> collect();

  /// The answer that is due; null: none. `direct` has the descriptor of words().
  [[nodiscard]] const Descriptor* next_answer() const noexcept {
    return answers_.empty() ? nullptr : &answers_.front();
  }
  void answered() { answers_.pop_front(); }
  [[nodiscard]] const Segment& words() const noexcept { return *words_; }

  /// The device part of a message that has just arrived; null: it has none. The slot of an
  /// unreadable one returns only with the link.
  [[nodiscard]] Result<std::shared_ptr<DeviceBody>> body_of(const Descriptor& descriptor,
                                                            const IncomingBody& body,
                                                            Features features);
  /// Takes the pipes of messages whose memory was not tried when they arrived, and now is.
  [[nodiscard]] std::vector<std::uint32_t> take_tried();
  /// True if look() may find an arrival.
  [[nodiscard]] bool has_input() const noexcept;
  /// Called once a turn: returns whether something has arrived since the last call.
  bool look() noexcept {
    const bool was_mapped = mapped_.load(std::memory_order_relaxed) && mapped_.exchange(false);
    return note_arrivals() || was_mapped;
  }
  /// Handles the end of the link: messages that have not arrived are incomplete.
  void end() noexcept;

  /// The most segments of one peer at a time, and of them those that it has not tried to map yet:
  /// each keeps a descriptor.
  static constexpr std::size_t kMostSegments = 4096;
  static constexpr std::uint32_t kMostUntried = 256;
  /// The most bytes of all segments of one peer together.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 44;

 private:
  class Body;
  struct UnderWay {
    std::uint64_t number;
    std::weak_ptr<Body> body;
  };

  [[nodiscard]] Result<void> is_legal(const Descriptor& word) const;
  using Untried = std::pair<std::uint32_t, std::weak_ptr<Body>>;  // its pipe first
  [[nodiscard]] Result<void> is_legal(const DevicePart& part, Features features) const;
  [[nodiscard]] Result<std::shared_ptr<Body>> body_of(const DevicePart& part, Features features);
  [[nodiscard]] bool try_map(const std::shared_ptr<PeerDeviceSegment>& segment);
  bool note_arrivals() noexcept;
  void answer(std::uint32_t device, DeviceAnswer answer);
  [[nodiscard]] bool make_words();
  [[nodiscard]] const ReadyWords* ready() const noexcept {
    return ready_.load(std::memory_order_acquire);
  }

  const std::string peer_name_;
  const std::shared_ptr<ShmMemory> memory_;
  std::function<void()> told_;
  std::map<std::uint32_t, PeerGpu> gpus_;  // by number
  std::map<std::uint32_t, std::shared_ptr<PeerDeviceSegment>> segments_;
  std::uint64_t announced_bytes_ = 0;
  std::deque<Descriptor> answers_;
  std::uint64_t answer_count_ = 0;
  std::shared_ptr<Segment> words_;
  std::atomic<const ReadyWords*> ready_{nullptr};  // in words_
  std::uint64_t last_number_ = 0;
  // In the order of their numbers: the first has not arrived, others may have.
  std::deque<UnderWay> under_way_;
  std::vector<Untried> untried_bodies_;                  // the peer considers their bytes sent
  std::atomic<std::uint64_t> awaited_{0};                // the number of the first; 0: none
  std::atomic<std::uint64_t> seen_told_{0};              // at the last look
  std::atomic<bool> mapped_{false};                      // since the last look of a turn
  std::shared_ptr<std::atomic<std::uint32_t>> untried_;  // segments that wait for the device thread
};

}  // namespace tendon::v0::detail
