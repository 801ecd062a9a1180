// SPDX-License-Identifier: Apache-2.0
// Pages where publishers state their positions, for readers that outlive them: docs/protocol.md,
// "Heads".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "memory/segment.hpp"
#include "runtime/publishing.hpp"

namespace tendon::v0::detail {

/// A page of words, one for each publisher, which only the publisher's process can write.
struct HeadPage {
  static constexpr std::uint32_t kWords = 4096;
  static constexpr std::uint64_t kBytes = kWords * sizeof(std::uint64_t);

  std::shared_ptr<Segment> segment;
  std::uint32_t name = 0;  ///< by Publishing
};

/// The word of one publisher. It is stored before the sample is shown to the first reader, so that
/// a reader that knows of the process's death knows how many samples there were.
///
/// Owns:    a share of its page.
/// Threads: store() by one thread at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a store.
class HeadWord {
 public:
  HeadWord(HeadPage page, std::uint32_t number) : page_(std::move(page)), number_(number) {}

  [[nodiscard]] const HeadPage& page() const noexcept { return page_; }
  /// Its number in SampleHeader::head.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  void store(std::uint64_t sequence) const noexcept {
    std::atomic_ref(words(*page_.segment)[number_ - 1]).store(sequence, std::memory_order_release);
  }
  /// Reads a peer's word. Empty for an invalid number. The value is a claim of the peer.
  [[nodiscard]] static std::optional<std::uint64_t> load(const Segment& page,
                                                         std::uint64_t number) {
    if (number == 0 || number > HeadPage::kWords) return std::nullopt;
    return std::atomic_ref(words(page)[number - 1]).load(std::memory_order_acquire);
  }

 private:
  [[nodiscard]] static std::uint64_t* words(const Segment& page) noexcept {
    return reinterpret_cast<std::uint64_t*>(page.data());
  }

  HeadPage page_;
  std::uint32_t number_;
};

/// The head pages of a Context. A word is never used again: a reader may look at it long after its
/// publisher ended.
///
/// Owns:    the page that has free words; publishers keep theirs.
/// Threads: thread-safe.
/// Errors:  those of Segment.
/// Blocks:  never.
/// Cost:    a page of 32 KiB for each 4096 declared publishers.
class HeadPages {
 public:
  explicit HeadPages(Publishing& publishing) : publishing_(publishing) {}
  HeadPages(const HeadPages&) = delete;
  HeadPages& operator=(const HeadPages&) = delete;

  [[nodiscard]] Result<HeadWord> take();

 private:
  Publishing& publishing_;
  Mutex mutex_;
  HeadPage page_ TENDON_GUARDED_BY(mutex_);
  std::uint32_t used_ TENDON_GUARDED_BY(mutex_) = HeadPage::kWords;
};

}  // namespace tendon::v0::detail
