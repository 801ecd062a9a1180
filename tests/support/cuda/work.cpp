// SPDX-License-Identifier: Apache-2.0
// The work of streams on memory: copies, fills and words.
#include <atomic>
#include <chrono>
#include <cstring>

#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};

/// The memory that a stream reads or writes.
struct Place {
  std::byte* memory = nullptr;
  bool is_pageable = false;  ///< memory of the program that is not registered
  std::shared_ptr<PinnedPages> pins{};
  std::size_t offset = 0;  ///< in the pages
};

/// Finds the region of an address, if its access is enough; `status` says why there is none.
Status place_of(const World& all, DeviceAddress address, std::size_t bytes, AccessFlags needed,
                Place& place) {
  const Region* region = all.addresses.find(address, bytes);
  DeviceAddress begin = region != nullptr ? region->address : 0;
  if (region == nullptr) {
    region = all.addresses.find_registered(address, bytes);
    if (region != nullptr) begin = reinterpret_cast<std::uintptr_t>(region->memory);
  }
  if (region != nullptr) {
    const bool is_enough = needed == AccessFlags::read ? region->access != AccessFlags::none
                                                       : region->access == AccessFlags::read_write;
    place = {region->memory + (address - begin), false, region->pins, address - begin};
    return is_enough ? Status::success : Status::invalid_value;
  }
  if (address == 0 || all.addresses.is_reserved(address) || all.settings.strict)
    return Status::invalid_value;
  place = {reinterpret_cast<std::byte*>(address), true, nullptr, 0};
  return Status::success;
}

/// One copy on a stream. It reads pageable memory at the call, like a driver that stages it.
struct Copy {
  Place destination;
  Place source;
  std::size_t bytes = 0;
  std::vector<std::byte> staged;

  void run() const {
    std::memmove(destination.memory, staged.empty() ? source.memory : staged.data(), bytes);
    // The first copy is for the sanitizers, which see no pipe.
    if (source.pins != nullptr) source.pins->read(source.offset, destination.memory, bytes);
  }
};

Status make_copy(const World& all, DeviceAddress destination, DeviceAddress source,
                 std::size_t bytes, Copy& copy) {
  copy.bytes = bytes;
  if (bytes == 0) return Status::success;
  if (const Status status =
          place_of(all, destination, bytes, AccessFlags::read_write, copy.destination);
      status != Status::success)
    return status;
  if (const Status status = place_of(all, source, bytes, AccessFlags::read, copy.source);
      status != Status::success)
    return status;
  if (copy.source.is_pageable) copy.staged.assign(copy.source.memory, copy.source.memory + bytes);
  return Status::success;
}

/// A copy to pageable memory is done when the call returns.
Status enqueue_copies(WorldLock& lock, const std::shared_ptr<Stream>& stream,
                      std::vector<Copy> copies) {
  bool is_awaited = false;
  for (const Copy& copy : copies) is_awaited = is_awaited || copy.destination.is_pageable;
  const Status status = enqueue(lock, stream, [copies = std::move(copies)] {
    for (const Copy& copy : copies)
      if (copy.bytes > 0) copy.run();
  });
  if (status != Status::success || !is_awaited || stream->capture != nullptr) return status;
  return wait_for(lock, {stream, stream->enqueued});
}

std::atomic_ref<std::uint64_t> word_at(std::byte* memory) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory));
}

bool is_met(std::uint64_t word, std::uint64_t value, WaitCondition condition) {
  if (condition == WaitCondition::equal) return word == value;
  return static_cast<std::int64_t>(word - value) >= 0;
}

void wait_for_word(World& all, Context& context, std::byte* memory, std::uint64_t value,
                   WaitCondition condition) {
  while (!is_met(word_at(memory).load(std::memory_order_acquire), value, condition)) {
    WorldLock lock(all.mutex);
    if (context.lost) return;
    all.changed.wait_for(lock, kBetweenLooks);  // nobody reports a word that the host writes
  }
}

/// Finds a word that streams wait for or write: registered or of the device, and aligned.
Status word_place(const World& all, DeviceAddress address, AccessFlags needed, Place& place) {
  if (address % sizeof(std::uint64_t) != 0 ||
      all.addresses.find(address, sizeof(std::uint64_t)) == nullptr)
    return Status::invalid_value;
  return place_of(all, address, sizeof(std::uint64_t), needed, place);
}

}  // namespace

Status copy_async(DeviceAddress destination, DeviceAddress source, std::size_t bytes,
                  StreamHandle handle) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  std::vector<Copy> copies(1);
  status = make_copy(all, destination, source, bytes, copies.front());
  if (status != Status::success) return status;
  return enqueue_copies(lock, stream, std::move(copies));
}

Status copy_batch_async(DeviceAddress* destinations, DeviceAddress* sources, std::size_t* sizes,
                        std::size_t count, CopyAttributes* attributes,
                        std::size_t* first_of_attributes, std::size_t attribute_count,
                        std::size_t* failed, StreamHandle handle) {
  World& all = world();
  WorldLock lock(all.mutex);
  *failed = count;
  const bool has_attributes = attributes != nullptr && first_of_attributes != nullptr &&
                              attribute_count > 0 && attribute_count <= count &&
                              first_of_attributes[0] == 0;
  // The legacy default stream has no batches.
  if (!has_attributes || reinterpret_cast<std::uintptr_t>(handle) <= kLegacyStream)
    return Status::invalid_value;
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  std::vector<Copy> copies(count);
  for (std::size_t at = 0; at < count; ++at) {
    status = make_copy(all, destinations[at], sources[at], sizes[at], copies[at]);
    if (status == Status::success) continue;
    *failed = at;
    return status;
  }
  return enqueue_copies(lock, stream, std::move(copies));
}

Status set_bytes_async(DeviceAddress destination, unsigned char value, std::size_t bytes,
                       StreamHandle handle) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  if (bytes == 0) return Status::success;
  Place place;
  status = place_of(all, destination, bytes, AccessFlags::read_write, place);
  if (status != Status::success) return status;
  if (place.is_pageable) return Status::invalid_value;
  return enqueue(lock, stream, [place, value, bytes] { std::memset(place.memory, value, bytes); });
}

Status stream_wait_value64(StreamHandle handle, DeviceAddress address, std::uint64_t value,
                           WaitCondition condition) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  Place place;
  status = word_place(all, address, AccessFlags::read, place);
  if (status != Status::success) return status;
  Context* const context = &stream->context;
  return enqueue(lock, stream, [&all, context, place, value, condition] {
    wait_for_word(all, *context, place.memory, value, condition);
  });
}

Status stream_write_value64(StreamHandle handle, DeviceAddress address, std::uint64_t value,
                            WriteOrder) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  Place place;
  status = word_place(all, address, AccessFlags::read_write, place);
  if (status != Status::success) return status;
  return enqueue(lock, stream,
                 [place, value] { word_at(place.memory).store(value, std::memory_order_release); });
}

}  // namespace tendon::cuda_double
