// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/ways/asker_rates.hpp"
#include "fabric/ways/cables.hpp"
#include "fabric/ways/dialler.hpp"
#include "fabric/ways/peer_question.hpp"
#include "fabric/zenoh/zenoh_port.hpp"
#include "runtime/acceptor.hpp"
#include "runtime/context_core.hpp"
#include "runtime/reach.hpp"

namespace tendon::v0::detail {

/// Says whether nodes of this Context may have links through routers.
enum class Routed : std::uint8_t { no, yes };

/// A Context that discovery announced, and the node here that wants a link to it.
struct PeerTarget {
  ContextId context;
  std::vector<std::string> addresses;  ///< its addresses, as this host may dial them
  NodeAnnouncement asker;              ///< the announcement of this node
  Routed routed = Routed::yes;
};

/// The outcome of one attempt.
struct Approach {
  enum class Next : std::uint8_t {
    other_way,  ///< time ran out before all ways were tried: the next attempt continues
    again,      ///< all ways failed
  };
  Result<std::shared_ptr<Link>> link;
  std::vector<Tried> tried{};  ///< every way, with its error
  Next next = Next::again;     ///< after a failure
};

/// The ways to a Context that do not use its addresses. Both are requested through Zenoh: the peer
/// dials back, or takes the other end of a cable. This side does the same for others.
///
///   direct -> dialled_back   the peer was not reached at its addresses
///   dialled_back -> routed   the peer does not reach our addresses, or there are none
///   routed -> direct         no cable was laid either: the peer is not reached
///
/// Strangers answer questions too: the first `done` counts, and a "no" ends nothing before the time
/// is over. Strangers also ask questions. Each asker is served so often in a second, learns of a
/// dial only whether it was done, and makes this Context dial nothing on its own host.
///
/// Owns:    the cables of this session, an acceptor for their links, and what an unfinished attempt
///          has tried.
/// Threads: thread-safe. The thread of the cables answers questions; the Dialler dials back.
/// Errors:  those of reach(); unreachable with what the peer says.
/// Blocks:  reach() until the deadline; stop() as that of Cables.
/// Cost:    a query for each attempt; for cables, see there.
class Detours : public std::enable_shared_from_this<Detours> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Detours>> create(
      const std::shared_ptr<ContextCore>& context, const Security& security,
      const std::weak_ptr<OpenHandler>& handler, const std::shared_ptr<Dialler>& dialler,
      std::shared_ptr<ZenohPort> port);
  Detours(std::shared_ptr<ContextCore> context, Security security, std::shared_ptr<Dialler> dialler,
          std::shared_ptr<ZenohPort> port)
      : context_(std::move(context)),
        security_(std::move(security)),
        dialler_(std::move(dialler)),
        port_(std::move(port)) {}
  Detours(const Detours&) = delete;
  Detours& operator=(const Detours&) = delete;
  ~Detours() = default;

  /// Lets others lay cables to this Context from now on.
  void let_in_cables() noexcept { lets_in_cables_.store(true); }
  /// Closes routed links and cables. Call it while the Context's nodes still exist.
  void stop();
  /// Cables::dropped_frames().
  [[nodiscard]] std::uint64_t dropped_frames() const noexcept {
    return cables_ == nullptr ? 0 : cables_->dropped_frames();
  }

  /// Counts the questions of others that this Context dropped or refused.
  [[nodiscard]] std::uint64_t refused_questions() const noexcept {
    return refused_questions_.load();
  }

  [[nodiscard]] Approach reach(const PeerTarget& target, Deadline deadline);
  /// Returns what the unfinished attempt has tried so far.
  [[nodiscard]] std::vector<Tried> tried_so_far(const ContextId& peer) const;

 private:
  enum class Way : std::uint8_t { direct, dialled_back, routed };
  struct Attempt {
    Way way = Way::direct;
    std::vector<Tried> tried;
  };
  struct Answered {
    PeerAnswer answer;
    std::chrono::microseconds round_trip{0};
  };

  [[nodiscard]] Result<void> listen();
  [[nodiscard]] Result<std::shared_ptr<Link>> go(Way way, const PeerTarget& target,
                                                 std::vector<Tried>& tried, Deadline deadline);
  [[nodiscard]] Result<std::shared_ptr<Link>> dial_back(const PeerTarget& target,
                                                        Deadline deadline);
  [[nodiscard]] Result<std::shared_ptr<Link>> route(const PeerTarget& target,
                                                    const std::vector<Tried>& tried,
                                                    Deadline deadline);
  [[nodiscard]] Result<std::unique_ptr<ByteStream>> open_cable(const PeerTarget& target,
                                                               const std::string& why, Lane lane,
                                                               Deadline deadline);
  [[nodiscard]] Result<Answered> ask(const PeerTarget& target, const PeerQuestion& question,
                                     Deadline deadline);
  // Questions of others
  void on_question(std::unique_ptr<ZenohQuestion> question);
  void answer(const std::shared_ptr<ZenohQuestion>& question);
  [[nodiscard]] PeerAnswer take(const CableQuestion& asked, const std::string& domain);
  void dial_for(const DialBackQuestion& asked, const std::shared_ptr<ZenohQuestion>& question);
  /// Returns the addresses that an asker names and this Context may dial. An asker on another host
  /// gets no dial to a loopback or link-local address, which does not lead to it.
  [[nodiscard]] static std::vector<std::string> dialable_for(const NodeAnnouncement& asker);
  [[nodiscard]] PeerAnswer refuse(std::string why);
  static void say(ZenohQuestion& question, const PeerAnswer& answer);

  /// The limit of dials for others at a time: they take places of the Dialler, which this Context
  /// needs too.
  static constexpr std::size_t kMostDialsForOthers = 4;
  static constexpr std::size_t kMostWaitingQuestions = 64;
  static constexpr std::size_t kMostAttempts = 1024;

  const std::shared_ptr<ContextCore> context_;
  const Security security_;
  const std::shared_ptr<Dialler> dialler_;
  const std::shared_ptr<ZenohPort> port_;
  std::shared_ptr<Cables> cables_;
  std::shared_ptr<Acceptor> acceptor_;
  std::atomic<bool> lets_in_cables_{false};
  std::atomic<std::size_t> waiting_questions_{0};
  std::atomic<std::size_t> dials_for_others_{0};
  std::atomic<std::uint64_t> refused_questions_{0};
  AskerRates dials_back_{kMaxDialsBackPerSecond};
  AskerRates cable_requests_{kMaxCableRequestsPerSecond};
  mutable Mutex mutex_;
  std::map<ContextId, Attempt> attempts_ TENDON_GUARDED_BY(mutex_);
  ZenohPort::Handle questions_;  // declared last, so that it ends first
};

}  // namespace tendon::v0::detail
