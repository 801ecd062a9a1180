// SPDX-License-Identifier: Apache-2.0
// A stream in steady state allocates nothing: the global operator new of this program counts.
#include "support/sanitizer.hpp"

#if TENDON_SANITIZED

#include <gtest/gtest.h>

TEST(LinkAllocation, IsNotCounted) {
  GTEST_SKIP() << "the sanitizer has an operator new of its own";
}

#else

#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "link_pair.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocation_count{0};

void* allocate(std::size_t size_bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) ++allocation_count;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)),
                     std::max<std::size_t>(size_bytes, 1)) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// The program replaces both sides of the pair, but g++ 12 checks each alone.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t size_bytes) {
  return allocate(size_bytes, alignof(std::max_align_t));
}
void* operator new[](std::size_t size_bytes) {
  return allocate(size_bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
  return allocate(size_bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size_bytes, std::align_val_t alignment) {
  return allocate(size_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tendon::test {
namespace {

// A sink that keeps the last body only. RecordingSink itself allocates.
class LastBodySink final : public MessageSink {
 public:
  bool admits(const Descriptor&) override { return true; }
  void on_message(Incoming&& incoming) override {
    if (incoming.transfer == nullptr) ++complete_count;
    body = std::move(incoming.body);
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>& pieces) override {
    if (!claims) return false;
    for (std::size_t i = 0; i < 4; ++i)
      pieces.push_back(MutableBytes(place).subspan(i * place.size() / 4, place.size() / 4));
    return true;
  }
  void on_transfer_ended(const Transfer& transfer) override { complete_count += transfer.complete; }
  void on_link_failed(const Error&) override {}

  IncomingBody body;
  std::size_t complete_count = 0;
  bool claims = false;
  std::vector<std::byte> place;
};

class LinkAllocation : public testing::TestWithParam<LinkFactory> {};

TEST_P(LinkAllocation, ASteadyStreamAllocatesNothing) {
  LinkPair pair;
  GetParam().make(pair, 64ull << 20);
  const auto sink = std::make_shared<LastBodySink>();
  {
    std::lock_guard lock(pair.b.link->receive_mutex());
    pair.b.link->attach(1, sink);
  }
  std::uint64_t sequence = 0;
  for (const bool claims : {false, true}) {
    for (const std::uint64_t size : {100u, 1024u, 8192u, 8196u, 3u << 20}) {
      SCOPED_TRACE(std::to_string(size) + (claims ? " bytes, claimed" : " bytes"));
      sink->claims = claims && size > 8192 && GetParam().cuts_frames;
      sink->place.resize(size);
      OutgoingMessage message(1, 1, size, 1);
      std::size_t rounds = 0;
      const auto round = [&] {
        message.op().descriptor.sequence = ++sequence;
        message.op().done = false;
        message.op().filled_bytes = 0;
        const std::size_t before = sink->complete_count;
        while (*pair.a.link->send(message.op(), Deadline::never()) == Sent::later) pair.turn();
        while (sink->complete_count == before) pair.turn();
        ++rounds;
      };
      while (rounds < 20) round();
      allocation_count = 0;
      counting = true;
      while (rounds < 60) round();
      counting = false;
      EXPECT_EQ(allocation_count, 0u) << "in 40 messages";
    }
  }
}

// Proves that the counter counts: the test above would also pass if it did not.
TEST(LinkAllocationCounter, Counts) {
  allocation_count = 0;
  counting = true;
  const auto one = std::make_unique<std::vector<int> >(10);
  counting = false;
  EXPECT_EQ(allocation_count, 2u);
}

// Leaves out TLS, where a record that arrives in parts takes an allocation: a stream that waits has
// no memory.
std::vector<LinkFactory> links_without_tls() {
  auto links = links_of_the_product();
  std::erase_if(links, [](const LinkFactory& link) { return link.name == "tls"; });
  return links;
}

INSTANTIATE_TEST_SUITE_P(Links, LinkAllocation, testing::ValuesIn(links_without_tls()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tendon::test

#endif
