// SPDX-License-Identifier: Apache-2.0
// Sequences of driver calls that a driver and its double must answer equally. Both print the lines
// of tests/gpu/driver_sequences.txt.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <tendon/core/version.hpp>
#include <utility>
#include <vector>

#include "cuda/driver_table.hpp"

namespace tendon::test {

namespace cuda = v0::detail::cuda;

/// Runs the sequences on the first GPU of a driver, in order.
///
/// Owns:    what it makes on the GPU, until the end of run().
/// Threads: one.
/// Errors:  none: each answer is a line. Numbers that drivers may choose are `refused`.
/// Blocks:  for the GPU.
/// Cost:    that of some hundred calls.
class DriverSequences {
 public:
  /// Tells each line as soon as its call returns: a driver may end the process at the next one.
  DriverSequences(const cuda::DriverTable& table, std::function<void(const std::string&)> tell)
      : table_(table), tell_(std::move(tell)) {}

  void run() {
    if (!begin()) return;
    share();
    map();
    copy_and_order();
    words();
    events();
    registrations();
    end();
  }

 private:
  using Status = cuda::Status;
  static constexpr std::size_t kSegment = std::size_t{2} << 20;
  static constexpr std::size_t kPage = 4096;

  void say(const std::string& what, const std::string& answer) { tell_(what + ": " + answer); }
  bool say(const std::string& what, Status status) {
    say(what, std::to_string(static_cast<int>(status)));
    return status == Status::success;
  }
  void say_whether(const std::string& what, bool is_so) { say(what, is_so ? "yes" : "no"); }
  void say_refused(const std::string& what, Status status) {
    say(what, status == Status::success ? "taken" : "refused");
  }
  static cuda::DeviceAddress address(const void* memory) {
    return reinterpret_cast<cuda::DeviceAddress>(memory);
  }
  [[nodiscard]] cuda::AllocationProperties properties(cuda::HandleType type) const {
    cuda::AllocationProperties made{};
    made.type = cuda::AllocationType::pinned;
    made.handle_types = type;
    made.location = {cuda::LocationType::device, device_};
    return made;
  }

  bool begin() {
    int version = 0;
    int count = 0;
    if (!say("init", table_.init(0))) return false;
    table_.driver_get_version(&version);
    say_whether("version is 12.0 or later", version >= cuda::kOldestDriver);
    say("count", table_.device_get_count(&count));
    say("GPU behind the last", table_.device_get(&device_, count));
    if (!say("first GPU", table_.device_get(&device_, 0))) return false;
    if (!say("retain", table_.primary_context_retain(&context_, device_))) return false;
    say("push", table_.context_push(context_));
    return say("stream", table_.stream_create(&stream_, cuda::StreamFlags::non_blocking));
  }

  void share() {
    std::size_t granularity = 0;
    const auto exportable = properties(cuda::HandleType::posix_descriptor);
    const auto kept = properties(cuda::HandleType::none);
    say("granularity",
        table_.memory_get_granularity(&granularity, &exportable, cuda::GranularityKind::minimum));
    say_whether("it divides 2 MiB", granularity > 0 && kSegment % granularity == 0);
    say("create", table_.memory_create(&own_, kSegment, &exportable, 0));
    cuda::MemoryHandle other = 0;
    say_refused("create half a granule", table_.memory_create(&other, granularity / 2, &kept, 0));
    int descriptor = -1;
    say("export", table_.memory_export(&descriptor, own_, exportable.handle_types, 0));
    say("create without a type of handle", table_.memory_create(&other, kSegment, &kept, 0));
    int none = -1;
    say_refused("export that", table_.memory_export(&none, other, exportable.handle_types, 0));
    table_.memory_release(other);
    say("import", import(&imported_, descriptor));
    cuda::AllocationProperties told{};
    say("properties of the import", table_.memory_get_properties(&told, imported_));
    say_whether("it is on that GPU",
                told.location.type == cuda::LocationType::device && told.location.id == device_);
    close(descriptor);
    say_refused("import a closed descriptor", import(&other, descriptor));
    const int file = memfd_create("no-handle", MFD_CLOEXEC);
    const bool is_sized = ftruncate(file, kSegment) == 0;
    say_refused("import a file in memory", is_sized ? import(&other, file) : Status::success);
    close(file);
  }
  Status import(cuda::MemoryHandle* handle, int descriptor) const {
    return table_.memory_import(handle, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                                cuda::HandleType::posix_descriptor);
  }

  void map() {
    table_.address_reserve(&writable_, 2 * kSegment, 0, 0, 0);
    say("reserve for the import", table_.address_reserve(&readable_, kSegment, 0, 0, 0));
    say_refused("map more than there is", table_.memory_map(writable_, 2 * kSegment, 0, own_, 0));
    say("map", table_.memory_map(writable_, kSegment, 0, own_, 0));
    say("map the import", table_.memory_map(readable_, kSegment, 0, imported_, 0));
    say("release, mapped", table_.memory_release(own_));
    say("release the import, mapped", table_.memory_release(imported_));
    cuda::AccessDescription access{{cuda::LocationType::device, device_},
                                   cuda::AccessFlags::read_write};
    say("let it be written", table_.memory_set_access(writable_, kSegment, &access, 1));
    access.flags = cuda::AccessFlags::read;
    say("let the import be read", table_.memory_set_access(readable_, kSegment, &access, 1));
    std::uint32_t type = 0;
    void* answer = &type;
    auto attribute = cuda::PointerAttribute::memory_type;
    say("ask what an address is", table_.pointer_get_attributes(1, &attribute, &answer, readable_));
    say_whether("it is memory of the GPU",
                type == static_cast<std::uint32_t>(cuda::MemoryType::device));
    table_.pointer_get_attributes(1, &attribute, &answer, address(&type));
    say("type of the stack", std::to_string(type));
  }

  void copy_and_order() {
    std::vector<std::uint32_t> sent(kSegment / 4);
    std::vector<std::uint32_t> got(kSegment / 4);
    for (std::size_t at = 0; at < sent.size(); ++at)
      sent[at] = static_cast<std::uint32_t>(at * 2654435761U);
    say("copy in", table_.copy_async(writable_, address(sent.data()), kSegment, stream_));
    say("copy out of the import",
        table_.copy_async(address(got.data()), readable_, kSegment, stream_));
    say("wait", table_.stream_synchronize(stream_));
    say_whether("both are the same memory", sent == got);
    say_refused("fill the import", table_.set_bytes_async(readable_, 1, kPage, stream_));
    bool is_enqueued = true;
    for (unsigned char step = 1; step <= 64; ++step)
      is_enqueued = table_.set_bytes_async(writable_, step, kSegment, stream_) == Status::success &&
                    is_enqueued;
    say_whether("fill 64 times", is_enqueued);
    say("copy behind it", table_.copy_async(address(got.data()), readable_, kSegment, stream_));
    table_.stream_synchronize(stream_);
    say_whether("the last one stays", got.front() == 0x40404040U && got.back() == 0x40404040U);
    say("is the stream done", table_.stream_query(stream_));
  }

  void words() {
    void* const memory =
        mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    word_ = static_cast<std::uint64_t*>(memory);
    say("register", table_.host_register(word_, kPage, kRegister));
    say("its address", table_.host_get_device_address(&word_there_, word_, 0));
    say("write a word",
        table_.stream_write_value64(stream_, word_there_, 7, cuda::WriteOrder::fenced));
    say("wait for it", table_.stream_synchronize(stream_));
    say("the word", std::to_string(load()));
    say_refused("write a word that is not aligned",
                table_.stream_write_value64(stream_, word_there_ + 4, 7, cuda::WriteOrder::fenced));
  }
  [[nodiscard]] std::uint64_t load() const {
    return std::atomic_ref<std::uint64_t>(*word_).load(std::memory_order_acquire);
  }

  void events() {
    cuda::EventHandle event = nullptr;
    cuda::StreamHandle second = nullptr;
    say("event", table_.event_create(&event, cuda::EventFlags::untimed));
    say("event that was never recorded", table_.event_query(event));
    say("second stream", table_.stream_create(&second, cuda::StreamFlags::non_blocking));
    say("wait for word 8 on the GPU",
        table_.stream_wait_value64(stream_, word_there_, 8, cuda::WaitCondition::at_least));
    say("fill behind it", table_.set_bytes_async(writable_, 5, kPage, stream_));
    table_.event_record(event, stream_);
    say("second stream behind the event", table_.stream_wait_event(second, event, 0));
    say("write word 9 there",
        table_.stream_write_value64(second, word_there_ + 8, 9, cuda::WriteOrder::fenced));
    say("the event before the word", table_.event_query(event));
    say("the stream before the word", table_.stream_query(second));
    std::atomic_ref<std::uint64_t>(*word_).store(8, std::memory_order_release);
    say("wait for the second stream", table_.stream_synchronize(second));
    say("the event behind the word", table_.event_query(event));
    say("word 9", std::to_string(word_[1]));
    say("query no event", table_.event_query(nullptr));
    say("destroy the event", table_.event_destroy(event));
    table_.stream_destroy(second);
  }

  void registrations() {
    say("register twice", table_.host_register(word_, kPage, kRegister));
    say("unregister", table_.host_unregister(word_));
    say("unregister twice", table_.host_unregister(word_));
    mprotect(word_, kPage, PROT_READ);
    say_refused("register what may be read alone, to be written",
                table_.host_register(word_, kPage, kRegister));
    say("register it to be read",
        table_.host_register(word_, kPage, kRegister | cuda::kRegisterReadOnly));
    say("copy out of it",
        table_.copy_async(writable_, address(word_), sizeof(std::uint64_t), stream_));
    std::uint64_t got = 0;
    say("copy it back", table_.copy_async(address(&got), readable_, sizeof got, stream_));
    table_.stream_synchronize(stream_);
    say("what it was", std::to_string(got));
    table_.host_unregister(word_);
    munmap(word_, kPage);
  }

  void end() {
    say("unmap", table_.memory_unmap(writable_, kSegment));
    say("unmap the import", table_.memory_unmap(readable_, kSegment));
    say("free the addresses", table_.address_free(writable_, 2 * kSegment));
    say("free those of the import", table_.address_free(readable_, kSegment));
    say("the context is sound", table_.stream_synchronize(stream_));
    say("destroy the stream", table_.stream_destroy(stream_));
    table_.context_pop(nullptr);
    say("release the context", table_.primary_context_release(device_));
  }

  static constexpr unsigned kRegister = cuda::kRegisterPortable | cuda::kRegisterMapped;

  const cuda::DriverTable& table_;
  std::function<void(const std::string&)> tell_;
  cuda::DeviceOrdinal device_ = 0;
  cuda::ContextHandle context_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  cuda::MemoryHandle own_ = 0;
  cuda::MemoryHandle imported_ = 0;
  cuda::DeviceAddress writable_ = 0;
  cuda::DeviceAddress readable_ = 0;  // the same memory, imported
  std::uint64_t* word_ = nullptr;
  cuda::DeviceAddress word_there_ = 0;
};

}  // namespace tendon::test
