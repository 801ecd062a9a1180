// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "memory/publish_pool.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

/// A sample on its way to one reader over a socket, and the memory that it keeps meanwhile.
///
///   waiting -> begun   its first byte is about to go to the kernel
///           -> over    nobody had the sample any more when its turn came
///   begun   -> over    its last byte is with the kernel, or it was taken back
///
/// While it waits it keeps nothing, so a reader that is stopped pins no sample that is queued for
/// it. What `Keeps::until_sent` asks for is kept from the beginning.
///
/// Owns:    a hold of its slot or, where the pool gives none, a copy of the body.
/// Threads: thread-safe. Its lock comes after a link's sending lock and before that of the pool.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    two locks when it begins, two when it ends.
class LentSample {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Keeps : std::uint8_t { until_sent, once_begun };
  /// The reader in the publish pool, and how much its link may have of it.
  struct Reader {
    std::shared_ptr<PublishPool> pool;
    PublishPool::LinkNumber number = 0;
    std::uint64_t share_bytes = PublishPool::kWholeShare;
    std::shared_ptr<std::atomic<std::uint64_t>> copied{};  ///< counts copies of slots; or null
  };

  /// `body` lies in `slot`, or is to be copied: then `slot` is null.
  LentSample(Reader reader, const std::shared_ptr<const PublishedSlot>& slot, Bytes body,
             Keeps keeps);
  LentSample(const LentSample&) = delete;
  LentSample& operator=(const LentSample&) = delete;
  ~LentSample();

  /// Names the body in an op that has its descriptor.
  void describe(SendOp& op);
  /// The slot that it keeps; null: none, or a copy.
  [[nodiscard]] const PublishedSlot* slot() const;
  /// From here on it keeps what it has begun, and nothing else.
  void wait_no_more();

  // From its link, under the sending lock
  /// Its turn has come: names the body in `op`. False: there is no body any more.
  [[nodiscard]] bool begin(SendOp& op);
  /// Bytes of it went to the kernel.
  void note_moved();
  /// The link is done with it.
  void end();

  /// Since when nothing of it has moved, if it is begun and may be taken back.
  [[nodiscard]] std::optional<Clock::time_point> still_since() const;

 private:
  enum class State : std::uint8_t { waiting, begun, over };
  [[nodiscard]] bool keeps_body() const TENDON_REQUIRES(mutex_) {
    return kept_ != nullptr || copied_;
  }
  void keep(std::shared_ptr<const PublishedSlot> slot) TENDON_REQUIRES(mutex_);
  void copy() TENDON_REQUIRES(mutex_);
  void let_go() TENDON_REQUIRES(mutex_);

  const Reader reader_;
  const std::weak_ptr<const PublishedSlot> slot_;
  const Bytes lent_;  // in the slot
  const std::uint32_t process_ = process_number();
  mutable Mutex mutex_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::waiting;
  Keeps keeps_ TENDON_GUARDED_BY(mutex_);
  Bytes body_ TENDON_GUARDED_BY(mutex_);  // lent_, or copy_
  BodyPart payload_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<const PublishedSlot> kept_ TENDON_GUARDED_BY(mutex_);
  bool counted_ TENDON_GUARDED_BY(mutex_) = false;  // kept_ in the pool's ledger
  bool copied_ TENDON_GUARDED_BY(mutex_) = false;
  std::vector<std::byte> copy_ TENDON_GUARDED_BY(mutex_);
  Clock::time_point moved_at_ TENDON_GUARDED_BY(mutex_){};
};

}  // namespace tendon::v0::detail
