// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/limits.hpp>
#include <vector>

#include "core/fd.hpp"
#include "core/thread.hpp"
#include "fabric/ways/cable.hpp"
#include "fabric/ways/laid_cable.hpp"
#include "fabric/zenoh/zenoh_port.hpp"
#include "runtime/connect.hpp"
#include "runtime/user_event.hpp"

namespace tendon::v0::detail {

/// The terms of a new cable, on either side.
struct CableTerms {
  std::string domain;
  ContextId peer;
  Nonce128 connection{};
  CableKey key{};
  CableEnd end = CableEnd::asker;
  Lane lane = Lane::control;
};

/// The cables of one Context on one session of Zenoh. Each is a socketpair: a link has one end of
/// it, and one thread moves bytes between the other end and the session.
///
/// The reader grants what may be on its way: kCableWindowBytes for all cables that end here. Each
/// kind of lane has a part of it, which its cables share.
///
/// Owns:    the far ends, the frames that arrived for them, and the thread, from the first cable
///          on.
/// Threads: thread-safe. Callbacks of the session only queue.
/// Errors:  of a cable: its link sees a connection that breaks, and the reason is logged.
/// Blocks:  stop() and the destructor, for a put: as ZenohPort::put_patiently().
/// Cost:    of 48 KiB: some system calls, a pass for the tag, a put. A frame a second for each
///          cable.
class Cables : public std::enable_shared_from_this<Cables> {
 public:
  /// Listens for the frames of `self`.
  [[nodiscard]] static Result<std::shared_ptr<Cables>> create(std::shared_ptr<ZenohPort> port,
                                                              const ContextId& self);
  explicit Cables(std::shared_ptr<ZenohPort> port) : port_(std::move(port)) {}
  Cables(const Cables&) = delete;
  Cables& operator=(const Cables&) = delete;
  ~Cables() { stop(); }

  /// Lays a cable, as the peer does with the same terms, and returns the near end for a link.
  /// Errors: limit_exceeded beyond kMaxCables; those of the system.
  [[nodiscard]] Result<OwnedFd> lay(const CableTerms& terms) TENDON_EXCLUDES(mutex_);
  /// Runs the task on the thread, or drops it if no thread can run.
  void post(std::function<void()> task) TENDON_EXCLUDES(mutex_);
  /// Sends what the links have written, for two seconds at most. Then it cuts all cables and ends
  /// the thread.
  void stop() TENDON_EXCLUDES(mutex_);

  /// Counts the frames that belonged to no cable here, or arrived again.
  [[nodiscard]] std::uint64_t dropped_frames() const noexcept { return dropped_frames_.load(); }

  /// The bytes that both ends grant before the first frame: kMaxCables such grants fill the window.
  [[nodiscard]] static std::uint64_t first_grant(Lane lane) noexcept;
  /// The part of the window that one of `count` cables in its lane may have.
  [[nodiscard]] static std::uint64_t share(Lane lane, std::size_t count) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  using Laid = LaidCable;
  using Every = std::map<Nonce128, std::unique_ptr<Laid>>;
  /// A frame that arrived, and the memory that it lies in.
  struct Came {
    Storage bytes;
    CableFrame frame;
  };
  /// Work that other threads have left for this one.
  struct Work {
    std::vector<std::pair<Nonce128, std::unique_ptr<Laid>>> laid;
    std::vector<Came> frames;
    std::vector<std::function<void()>> tasks;
    std::string why_cut_all;
  };

  [[nodiscard]] Result<void> listen(const ContextId& self);
  void on_frame(const Storage& payload) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> need_thread() TENDON_REQUIRES(mutex_);
  void run() TENDON_EXCLUDES(mutex_);
  void work_once() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool is_stopped() TENDON_EXCLUDES(mutex_);
  /// True if nothing that the links here have written waits to be sent.
  [[nodiscard]] bool is_drained() const;
  void cut_all(const std::string& why);
  [[nodiscard]] Work take_work() TENDON_EXCLUDES(mutex_);
  void hear(const Came& came);
  /// Serves each cable once. True: there is more to do at once.
  [[nodiscard]] bool serve_all();
  [[nodiscard]] bool serve(Laid& laid, Clock::time_point now);
  void write_what_came(Laid& laid);
  [[nodiscard]] bool read_and_send(Laid& laid, Clock::time_point now);
  void note_hung_up(Laid& laid, Clock::time_point now);
  void grant(Laid& laid);
  void put(Laid& laid, Result<Storage> frame);
  void cut(Laid& laid, std::string why);
  void wait(Clock::time_point until);

  static constexpr std::chrono::seconds kBeat{1};
  static constexpr std::chrono::seconds kLinger{2};
  /// The limit of queued frames, more than all windows: beyond it, which only strangers can cause,
  /// frames are dropped.
  static constexpr std::uint64_t kMaxQueuedBytes = 16 * kCableWindowBytes;

  const std::shared_ptr<ZenohPort> port_;
  std::atomic<std::uint64_t> dropped_frames_{0};
  UserEvent wake_;
  Mutex mutex_;
  std::set<Nonce128> known_ TENDON_GUARDED_BY(mutex_);
  Work work_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t queued_bytes_ TENDON_GUARDED_BY(mutex_) = 0;
  Thread thread_ TENDON_GUARDED_BY(mutex_);
  bool stopped_ TENDON_GUARDED_BY(mutex_) = false;
  Every every_;  // used by the thread only
  // Declared last, so that these end first.
  ZenohPort::Handle frames_;
  ZenohPort::Handle state_;
};

}  // namespace tendon::v0::detail
