// SPDX-License-Identifier: Apache-2.0
#include "cuda/registered_slots.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/process_wide.hpp"
#include "cuda/address.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kRegister = "cuda.register";

/// All slots of the process, by the address of their first byte.
struct Table {
  struct Entry {
    const RegisteredSlots* slots = nullptr;
    std::uint64_t size_bytes = 0;
    std::weak_ptr<RegisteredSlots> share;
  };
  Mutex mutex;
  std::map<DeviceAddress, Entry> entries TENDON_GUARDED_BY(mutex);
  std::atomic<std::size_t> count{0};
};

Table& table() {
  static constinit PerProcess<Table> made;
  return made.get();
}

void log_refusal(const Error& why) {
  static constinit std::atomic<bool> is_logged{false};
  if (is_logged.exchange(true)) return;
  log(LogLevel::warn, kRegister,
      "a slot of shared memory cannot be registered with the driver, which copies it by a buffer "
      "of its own, at a lower rate: " +
          why.detail + "; further ones are not logged");
}

}  // namespace

/// Dropped when the work that used a slot is done.
class RegisteredSlots::Behind {
 public:
  Behind(std::weak_ptr<RegisteredSlots> slots, std::uint64_t number, std::shared_ptr<Gpu> gpu)
      : slots_(std::move(slots)), number_(number), gpu_(std::move(gpu)) {}
  Behind(const Behind&) = delete;
  Behind& operator=(const Behind&) = delete;
  ~Behind() {
    if (!gpu_->context()->is_of_this_process()) return;
    if (const auto slots = slots_.lock()) slots->go_on(number_, gpu_);
  }

 private:
  const std::weak_ptr<RegisteredSlots> slots_;
  const std::uint64_t number_;
  const std::shared_ptr<Gpu> gpu_;
};

RegisteredSlots::RegisteredSlots(std::shared_ptr<Segment> memory, std::uint64_t slot_bytes,
                                 Access access, std::shared_ptr<KeptPages> pages)
    : memory_(std::move(memory)),
      slot_bytes_(slot_bytes),
      access_(access),
      pages_(std::move(pages)) {}

std::shared_ptr<RegisteredSlots> RegisteredSlots::add(std::shared_ptr<Segment> memory,
                                                      std::uint64_t slot_bytes, Access access,
                                                      std::shared_ptr<KeptPages> pages) {
  if (slot_bytes < kLeastSlotBytes) return nullptr;
  std::shared_ptr<RegisteredSlots> slots(
      new RegisteredSlots(std::move(memory), slot_bytes, access, std::move(pages)));
  const Segment& segment = *slots->memory_;
  Table& all = table();
  const Lock lock(all.mutex);
  all.entries.insert_or_assign(address_of(segment.data()),
                               Table::Entry{slots.get(), segment.size_bytes(), slots});
  all.count.store(all.entries.size(), std::memory_order_relaxed);
  return slots;
}

std::shared_ptr<RegisteredSlots> RegisteredSlots::find(DeviceAddress address) {
  Table& all = table();
  if (all.count.load(std::memory_order_relaxed) == 0) return nullptr;
  const Lock lock(all.mutex);
  const auto after = all.entries.upper_bound(address);
  if (after == all.entries.begin()) return nullptr;
  const auto& [begin, entry] = *std::prev(after);
  return address - begin < entry.size_bytes ? entry.share.lock() : nullptr;
}

RegisteredSlots::~RegisteredSlots() {
  Table& all = table();
  const Lock lock(all.mutex);
  const auto entry = all.entries.find(address_of(memory_->data()));
  if (entry == all.entries.end() || entry->second.slots != this) return;
  all.entries.erase(entry);
  all.count.store(all.entries.size(), std::memory_order_relaxed);
}

RegisteredSlots::Use RegisteredSlots::use(DeviceAddress address, std::uint64_t size_bytes,
                                          const std::shared_ptr<Gpu>& gpu) {
  Use use;
  const Lock lock(mutex_);
  for (std::uint64_t offset = address - address_of(memory_->data()); size_bytes != 0;) {
    const std::uint64_t in_slot = offset % slot_bytes_;
    const std::uint64_t here = std::min(size_bytes, slot_bytes_ - in_slot);
    use_slot(offset / slot_bytes_, in_slot, here, gpu, use);
    offset += here;
    size_bytes -= here;
  }
  return use;
}

void RegisteredSlots::use_slot(std::uint64_t number, std::uint64_t offset, std::uint64_t size_bytes,
                               const std::shared_ptr<Gpu>& gpu, Use& use) {
  Slot& slot = slots_[number];
  DeviceAddress address = address_of(memory_->data() + number * slot_bytes_ + offset);
  if (slot.memory != nullptr) {
    // Another GPU knows it by the host's address.
    if (slot.memory->is_of(*gpu->context())) address = slot.memory->address() + offset;
    use.kept.push_back(slot.memory);
  }
  use.parts.push_back({address, size_bytes});
  if (slot.state != Slot::State::plain) return;
  if (!pages_->are_kept()) {
    if (pages_->want()) (void)gpu->thread().post([pages = pages_] { pages->ask(); });
    return;
  }
  slot.state = Slot::State::under_way;
  use.kept.push_back(std::make_shared<Behind>(weak_from_this(), number, gpu));
}

void RegisteredSlots::go_on(std::uint64_t number, const std::shared_ptr<Gpu>& gpu) {
  const auto posted = gpu->thread().post([self = weak_from_this(), number, gpu] {
    if (const auto slots = self.lock()) slots->register_slot(number, gpu);
  });
  if (posted) return;
  const Lock lock(mutex_);
  slots_[number].state = Slot::State::plain;
}

void RegisteredSlots::register_slot(std::uint64_t number, const std::shared_ptr<Gpu>& gpu) {
  const unsigned access_flag = access_ == Access::read_only ? kRegisterReadOnly : 0;
  auto registered = RegisteredMemory::create(gpu->context(), gpu->thread(), memory_,
                                             memory_->data() + number * slot_bytes_, slot_bytes_,
                                             kRegisterMapped | kRegisterPortable | access_flag);
  if (!registered) log_refusal(registered.error());
  const Lock lock(mutex_);
  Slot& slot = slots_[number];
  slot.state = registered ? Slot::State::registered : Slot::State::refused;
  if (registered) slot.memory = *std::move(registered);
}

}  // namespace tendon::v0::detail::cuda
