// SPDX-License-Identifier: Apache-2.0
// hop [DRIVER]: what a message on a GPU takes at least, by calls of the driver alone. One process
// copies into memory that the other has mapped, and lets its stream write a word behind the copy;
// the host of the other one waits for that word. A loan is the word alone. The clock stops where
// the host sees the word; its answer is a store.
//
// Prints a JSON document. Its rows are what Tendon is compared with in the same run and mode.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver_of.hpp"

namespace {

namespace cuda = tendon::v0::detail::cuda;

constexpr std::array<std::size_t, 3> kSizes = {std::size_t{1} << 10, std::size_t{1} << 20,
                                               100'000'000};
/// The last of so many messages is compared, and the next one is not counted, because the
/// comparison has used the receiver's GPU. The first turn warms up.
constexpr std::uint64_t kTurn = 8;
constexpr std::uint64_t kTurns = 40;
constexpr std::size_t kCopiesAlone = 50;
constexpr std::chrono::seconds kPatience{20};

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "hop: %s\n", what.c_str());
  std::fflush(stderr);
  _exit(1);
}

void must(cuda::Status status, const char* what) {
  if (status != cuda::Status::success)
    fail(std::string(what) + " answered " + std::to_string(static_cast<int>(status)));
}

double median_us(std::vector<std::int64_t> ns) {
  std::ranges::sort(ns);
  return static_cast<double>(ns[ns.size() / 2]) / 1e3;
}

void fill(std::vector<std::uint32_t>& words, std::uint64_t seed) {
  for (std::size_t at = 0; at < words.size(); ++at)
    words[at] = static_cast<std::uint32_t>(at * 2654435761U + seed * 40503);
}

/// What both processes read and write, each word in a line of its own.
struct Page {
  alignas(256) std::atomic<std::uint64_t> shown;     // by the sender's GPU: messages
  alignas(256) std::atomic<std::uint64_t> answered;  // by the receiver's host
  alignas(256) std::atomic<std::int64_t> arrived_ns;
  alignas(256) std::atomic<std::uint64_t> wrong;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

void wait_until(const std::atomic<std::uint64_t>& word, std::uint64_t value, const char* whose) {
  const std::int64_t last_ns = now_ns() + std::chrono::nanoseconds(kPatience).count();
  for (std::uint64_t looks = 1; word.load(std::memory_order_acquire) < value; ++looks)
    if (looks % 4096 == 0 && now_ns() > last_ns) fail(std::string("no word of the ") + whose);
}

void send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, 0) != 1) fail("sendmsg");
}

int receive_descriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  int descriptor = -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) fail("the other process is gone");
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

/// The first GPU in one of the two processes. Nothing is given back: the process ends.
class Gpu {
 public:
  Gpu(const cuda::DriverTable& table, Page& page) : table_(table) {
    must(table_.init(0), "cuInit");
    must(table_.device_get(&device_, 0), "cuDeviceGet");
    must(table_.primary_context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    must(table_.context_push(context_), "cuCtxPushCurrent");
    must(table_.stream_create(&stream_, cuda::StreamFlags::non_blocking), "cuStreamCreate");
    must(table_.host_register(&page, sizeof page, cuda::kRegisterMapped), "cuMemHostRegister");
    cuda::DeviceAddress start = 0;
    must(table_.host_get_device_address(&start, &page, 0), "cuMemHostGetDevicePointer");
    shown_ = start + offsetof(Page, shown);
  }

  /// Memory for the largest message; `descriptor`: for the other process, where it is wanted.
  [[nodiscard]] cuda::DeviceAddress create(int* descriptor = nullptr) {
    const auto wanted = properties();
    cuda::MemoryHandle handle = 0;
    must(table_.memory_create(&handle, bytes(), &wanted, 0), "cuMemCreate");
    if (descriptor != nullptr) {
      must(table_.memory_export(descriptor, handle, wanted.handle_types, 0),
           "cuMemExportToShareableHandle");
    }
    return map(handle, cuda::AccessFlags::read_write);
  }
  [[nodiscard]] cuda::DeviceAddress import(int descriptor) {
    cuda::MemoryHandle handle = 0;
    must(table_.memory_import(&handle, reinterpret_cast<void*>(std::intptr_t{descriptor}),
                              cuda::HandleType::posix_descriptor),
         "cuMemImportFromShareableHandle");
    return map(handle, cuda::AccessFlags::read);
  }

  void copy(cuda::DeviceAddress to, cuda::DeviceAddress from, std::size_t size) {
    must(table_.copy_async(to, from, size, stream_), "cuMemcpyAsync");
  }
  void show(std::uint64_t number) {
    must(table_.stream_write_value64(stream_, shown_, number, cuda::WriteOrder::fenced),
         "cuStreamWriteValue64");
  }
  void wait() { must(table_.stream_synchronize(stream_), "cuStreamSynchronize"); }
  void write(cuda::DeviceAddress to, const std::vector<std::uint32_t>& words) {
    copy(to, reinterpret_cast<cuda::DeviceAddress>(words.data()), words.size() * sizeof words[0]);
    wait();
  }
  [[nodiscard]] bool holds(cuda::DeviceAddress from, std::size_t size, std::uint64_t seed) {
    std::vector<std::uint32_t> there(size / sizeof(std::uint32_t));
    std::vector<std::uint32_t> expected(there.size());
    copy(reinterpret_cast<cuda::DeviceAddress>(there.data()), from, size);
    wait();
    fill(expected, seed);
    return there == expected;
  }

 private:
  [[nodiscard]] cuda::AllocationProperties properties() const {
    cuda::AllocationProperties wanted{};
    wanted.type = cuda::AllocationType::pinned;
    wanted.handle_types = cuda::HandleType::posix_descriptor;
    wanted.location = {cuda::LocationType::device, device_};
    return wanted;
  }
  [[nodiscard]] std::size_t bytes() const {
    const auto wanted = properties();
    std::size_t granule = 0;
    must(table_.memory_get_granularity(&granule, &wanted, cuda::GranularityKind::minimum),
         "cuMemGetAllocationGranularity");
    return (kSizes.back() + granule - 1) / granule * granule;
  }
  [[nodiscard]] cuda::DeviceAddress map(cuda::MemoryHandle handle, cuda::AccessFlags flags) {
    cuda::DeviceAddress address = 0;
    must(table_.address_reserve(&address, bytes(), 0, 0, 0), "cuMemAddressReserve");
    must(table_.memory_map(address, bytes(), 0, handle, 0), "cuMemMap");
    const cuda::AccessDescription access{{cuda::LocationType::device, device_}, flags};
    must(table_.memory_set_access(address, bytes(), &access, 1), "cuMemSetAccess");
    return address;
  }

  const cuda::DriverTable& table_;
  cuda::DeviceOrdinal device_ = 0;
  cuda::ContextHandle context_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  cuda::DeviceAddress shown_ = 0;
};

bool is_compared(std::uint64_t step) { return step % kTurn == kTurn - 1; }

/// Messages of this size so far are numbered by both processes alike: a number is never used twice.
struct Row {
  bool is_loan = false;
  std::size_t size_bytes = 0;
  std::uint64_t first = 1;
  std::uint64_t turns = kTurns;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  std::uint64_t first = 1;
  for (const bool is_loan : {false, true}) {
    for (const std::size_t size : kSizes) {
      // The comparison of a large message takes the host a while.
      const std::uint64_t turns = size < (std::size_t{16} << 20) ? kTurns : 4;
      all.push_back({is_loan, size, first, turns});
      first += turns * kTurn;
    }
  }
  return all;
}

void be_receiver(const cuda::DriverTable& table, Page& page, int socket) {
  Gpu gpu(table, page);
  const cuda::DeviceAddress slot = gpu.import(receive_descriptor(socket));
  page.answered.store(1, std::memory_order_release);
  for (const Row& row : rows()) {
    for (std::uint64_t step = 0; step < row.turns * kTurn; ++step) {
      const std::uint64_t number = row.first + step;
      wait_until(page.shown, number, "sender");
      page.arrived_ns.store(now_ns(), std::memory_order_relaxed);
      if (is_compared(step) && !gpu.holds(slot, row.size_bytes, number))
        page.wrong.fetch_add(1, std::memory_order_relaxed);
      page.answered.store(number + 1, std::memory_order_release);
    }
  }
}

class Sender {
 public:
  Sender(const cuda::DriverTable& table, Page& page, int socket) : gpu_(table, page), page_(page) {
    int descriptor = -1;
    slot_ = gpu_.create(&descriptor);
    source_ = gpu_.create();
    send_descriptor(socket, descriptor);
    wait_until(page_.answered, 1, "receiver");
  }

  void run() {
    std::printf("{\"results\": [");
    for (const Row& row : rows()) print(row.is_loan ? "loan" : "copy", row.size_bytes, hop(row));
    for (const std::size_t size : kSizes) print("copy alone", size, copy_alone(size));
    std::printf("], \"wrong\": %llu}\n",
                static_cast<unsigned long long>(page_.wrong.load(std::memory_order_acquire)));
  }

 private:
  void print(const char* way, std::size_t size, double us) {
    std::printf("%s{\"way\": \"%s\", \"size_bytes\": %zu, \"us_p50\": %.3f}", separator_, way, size,
                us);
    separator_ = ", ";
  }

  double hop(const Row& row) {
    std::vector<std::uint32_t> words(row.size_bytes / sizeof(std::uint32_t));
    std::vector<std::int64_t> took;
    for (std::uint64_t step = 0; step < row.turns * kTurn; ++step) {
      const std::uint64_t number = row.first + step;
      if (is_compared(step)) {
        fill(words, number);
        gpu_.write(row.is_loan ? slot_ : source_, words);
      }
      const std::int64_t start = now_ns();
      if (!row.is_loan) gpu_.copy(slot_, source_, row.size_bytes);
      gpu_.show(number);
      wait_until(page_.answered, number + 1, "receiver");
      if (step >= kTurn && step % kTurn != 0)
        took.push_back(page_.arrived_ns.load(std::memory_order_relaxed) - start);
    }
    return median_us(std::move(took));
  }

  /// In one process, which waits for it.
  double copy_alone(std::size_t size) {
    std::vector<std::uint32_t> words(size / sizeof(std::uint32_t));
    fill(words, size);
    gpu_.write(source_, words);
    std::vector<std::int64_t> took;
    for (std::size_t round = 0; round < kCopiesAlone; ++round) {
      const std::int64_t start = now_ns();
      gpu_.copy(slot_, source_, size);
      gpu_.wait();
      took.push_back(now_ns() - start);
    }
    if (!gpu_.holds(slot_, size, size)) page_.wrong.fetch_add(1, std::memory_order_relaxed);
    return median_us(std::move(took));
  }

  Gpu gpu_;
  Page& page_;
  cuda::DeviceAddress slot_ = 0;
  cuda::DeviceAddress source_ = 0;
  const char* separator_ = "";
};

}  // namespace

int main(int argument_count, char** arguments) {
  const auto driver = tendon::test::driver_of(argument_count, arguments);
  if (!driver) return 1;
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  std::array<int, 2> sockets{};
  if (memory == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0)
    fail("no memory, or no sockets");
  Page& page = *new (memory) Page{};
  // Nothing of CUDA is used before: a child of a process that uses it may make no call.
  const pid_t child = fork();
  if (child == 0) {
    close(sockets[0]);
    be_receiver(*driver, page, sockets[1]);
    _exit(0);
  }
  close(sockets[1]);
  Sender(*driver, page, sockets[0]).run();
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0 && page.wrong.load() == 0 ? 0 : 1;
}
