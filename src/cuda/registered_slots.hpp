// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/memory/storage.hpp>
#include <vector>

#include "cuda/gpu.hpp"
#include "cuda/kept_pages.hpp"
#include "cuda/registered_memory.hpp"
#include "memory/segment.hpp"

namespace tendon::v0::detail::cuda {

/// The slots of one mapping of shared memory from which, or to which, GPUs of this process copy. A
/// slot is registered with the driver after its first use, so that later copies run at full rate
/// and do not block. All mappings with such slots are in one table of the process, by address.
///
///   slot: plain -> under way    behind the work that used it
///               -> registered
///               -> refused      the driver did not take it: it is copied as before
///
/// A slot is registered as a whole: the driver refuses a copy if only a part of it lies in one
/// registration, and programs make their own copies from their views.
///
/// Owns:    the registrations, each with a share of the mapping. They end when the last share of
///          this object and of the work that uses them is dropped.
/// Threads: thread-safe, by short locks under which no call of the driver is made.
/// Errors:  none: the first slot that the driver refuses is in the log.
/// Blocks:  never. The device thread registers.
/// Cost:    a lookup in the table, a lock, an entry for each slot that was used. A registration
///          stops every launch of the process, 50 us and more for each MiB, once for each slot.
class RegisteredSlots : public std::enable_shared_from_this<RegisteredSlots> {
 public:
  /// Smaller slots are never registered: that costs more than their copies.
  static constexpr std::uint64_t kLeastSlotBytes = std::uint64_t{256} << 10;

  /// Null: the slots are too small. `access` is that of the mapping here.
  [[nodiscard]] static std::shared_ptr<RegisteredSlots> add(std::shared_ptr<Segment> memory,
                                                            std::uint64_t slot_bytes, Access access,
                                                            std::shared_ptr<KeptPages> pages);
  /// The slots that contain an address; null: none.
  [[nodiscard]] static std::shared_ptr<RegisteredSlots> find(DeviceAddress address);

  RegisteredSlots(const RegisteredSlots&) = delete;
  RegisteredSlots& operator=(const RegisteredSlots&) = delete;
  ~RegisteredSlots();

  /// A part of the host's side of a copy, in which no registration begins or ends.
  struct Part {
    DeviceAddress address = 0;
    std::uint64_t size_bytes = 0;
  };
  struct Use {
    std::vector<Part> parts;
    /// Kept by the work until it is done: registrations, and an object that begins one then.
    std::vector<std::shared_ptr<const void>> kept;
  };
  /// The parts of a copy by `gpu` that begins in these slots at `address`.
  [[nodiscard]] Use use(DeviceAddress address, std::uint64_t size_bytes,
                        const std::shared_ptr<Gpu>& gpu);

 private:
  class Behind;
  struct Slot {
    enum class State : std::uint8_t { plain, under_way, registered, refused };
    State state = State::plain;
    std::shared_ptr<const RegisteredMemory> memory{};  // registered
  };

  RegisteredSlots(std::shared_ptr<Segment> memory, std::uint64_t slot_bytes, Access access,
                  std::shared_ptr<KeptPages> pages);
  void use_slot(std::uint64_t number, std::uint64_t offset, std::uint64_t size_bytes,
                const std::shared_ptr<Gpu>& gpu, Use& use) TENDON_REQUIRES(mutex_);
  /// Lets the device thread register a slot that is under way.
  void go_on(std::uint64_t number, const std::shared_ptr<Gpu>& gpu);
  void register_slot(std::uint64_t number, const std::shared_ptr<Gpu>& gpu);

  const std::shared_ptr<Segment> memory_;
  const std::uint64_t slot_bytes_;
  const Access access_;
  const std::shared_ptr<KeptPages> pages_;
  Mutex mutex_;
  std::map<std::uint64_t, Slot> slots_ TENDON_GUARDED_BY(mutex_);  // by number: the used ones
};

}  // namespace tendon::v0::detail::cuda
