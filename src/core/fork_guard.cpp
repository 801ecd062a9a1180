// SPDX-License-Identifier: Apache-2.0
#include "core/fork_guard.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace tendon::v0::detail {
namespace {

// Descriptors above this number are not closed in a child (they still close on exec).
constexpr std::size_t kTrackedDescriptors = 65536;
constinit std::array<std::atomic<std::uint64_t>, kTrackedDescriptors / 64> tracked{};
// Survives fork as a copy: the number of the process from which it was copied.
constinit std::atomic<std::uint32_t> last_number{0};

// The word of process_number(). Each call of a handle reads it, some of them several times.
using ProcessWord = std::atomic<std::uint32_t>;
constinit ProcessWord no_page_word{0};
constinit ProcessWord* process_word = &no_page_word;

void enter_child() noexcept;

class WipedPage {
 public:
  WipedPage() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Without the page the handler alone still works; a fallback word keeps the reader free of
    // branches.
    if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0)
      word_ = static_cast<ProcessWord*>(page);
    pthread_atfork(nullptr, nullptr, &enter_child);
    word_->store(last_number.fetch_add(1) + 1);
    process_word = word_;
  }
  std::uint32_t renew() noexcept {
    // Several threads of a child may be here at once: the first one counts.
    std::uint32_t none = 0;
    word_->compare_exchange_strong(none, last_number.load() + 1);
    last_number.store(word_->load());
    return word_->load();
  }
  void wipe() noexcept { word_->store(0); }

 private:
  ProcessWord* word_ = &no_page_word;
};

// Not a function's static: a child forked by another thread while that is being made would wait for
// ever for a thread that it does not have. Leaked on purpose: destructors of statics may close
// descriptors.
constinit WipedPage* instance = nullptr;

WipedPage& page() {
  if (instance == nullptr) [[unlikely]]
    instance = new WipedPage;
  return *instance;
}

// Made while the program or library is loaded, so that no threads race for it.
[[maybe_unused]] const bool kMadeAtLoad = (page(), true);

void enter_child() noexcept {
  page().wipe();
  page().renew();
  for (std::size_t word = 0; word < tracked.size(); ++word) {
    std::uint64_t bits = tracked[word].exchange(0);
    for (int bit = 0; bits != 0; ++bit, bits >>= 1)
      if ((bits & 1) != 0) close(static_cast<int>(word * 64) + bit);
  }
}

}  // namespace

std::uint32_t process_number() noexcept {
  const std::uint32_t number = process_word->load(std::memory_order_relaxed);
  if (number != 0) [[likely]]
    return number;
  return page().renew();
}

void close_in_child(int fd) noexcept {
  page();
  const auto n = static_cast<std::size_t>(fd);
  if (n < kTrackedDescriptors) tracked[n / 64].fetch_or(std::uint64_t{1} << (n % 64));
}

void forget_in_child(int fd) noexcept {
  const auto n = static_cast<std::size_t>(fd);
  if (n < kTrackedDescriptors) tracked[n / 64].fetch_and(~(std::uint64_t{1} << (n % 64)));
}

}  // namespace tendon::v0::detail
