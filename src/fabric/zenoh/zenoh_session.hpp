// SPDX-License-Identifier: Apache-2.0
// Sessions of the real Zenoh, by rust/tendon-zenoh.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A client talks through the one router, or listening peer, to which it is connected; a peer with
/// all that it names and that name it. A router passes on the words of its peers and clients.
enum class ZenohMode : std::uint8_t { client, peer, router };
TENDON_WORDS(ZenohMode, client, peer, router);

/// Room for the rest of a message: key, encoding, attachment and Zenoh's own words.
inline constexpr std::uint64_t kZenohExtraBytes = std::uint64_t{64} << 10;
/// ZenohOptions::most_bytes of a session that takes plain samples, or passes them on.
inline constexpr std::uint64_t kMaxZenohBytes = kMaxPlainBytes + kZenohExtraBytes;
/// The same of a session only for tokens, questions and cables.
inline constexpr std::uint64_t kMaxQuietZenohBytes = kZenohExtraBytes;

/// The options of a session. Endpoints are Zenoh's:
/// "unixsock-stream//run/user/1000/tendon/x.zenoh", "tcp/10.0.0.7:7447".
struct ZenohOptions {
  ZenohMode mode = ZenohMode::client;
  std::vector<std::string> connect = {};  ///< a client names one or more
  /// Names of these endpoints in errors and in absence(); empty: as they are.
  std::vector<std::string> connect_as = {};
  std::vector<std::string> listen = {};  ///< nothing listens unasked
  Profile profile = Profile::local;      ///< `plaintext`: they may be routable
  /// The time of one endpoint for its handshake, at first and whenever a session connects again. A
  /// client that open_zenoh() opens has at most this at first.
  std::chrono::milliseconds patience{10'000};
  /// After so long a silence the others consider the session dead.
  std::chrono::milliseconds lease{10'000};
  /// The longest pause between tries to connect again; they begin with 0.1 s and become rarer.
  std::chrono::milliseconds last_retry{2000};
  /// The beginning of an error, which then lists the endpoints with their reasons.
  std::string nobody = "no router answers at";
  /// The largest message that arrives. Zenoh drops a larger one during its arrival, without a
  /// report; the connection stays. A message that fits one of its batches, 64 KiB, always arrives.
  std::uint64_t most_bytes = kMaxZenohBytes;

  [[nodiscard]] const std::vector<std::string>& connect_names() const noexcept {
    return connect_as.empty() ? connect : connect_as;
  }
};

/// A client allows each of its endpoints a try of this length at first; if no endpoint answered,
/// the next tries are longer.
inline constexpr std::chrono::milliseconds kRouterTry{1000};
/// The least time of an endpoint, however little is left: the session connects again with it.
inline constexpr std::chrono::milliseconds kLeastRouterTry{200};

/// Opens a session. It neither sends nor answers multicast, and follows no gossip: it connects only
/// to the given endpoints. Entries of the environment variable ZENOH_CONFIG_OVERRIDE,
/// "connect/endpoints=[...];mode=...", override the options.
///
/// A client tries each endpoint, in turn and again until the deadline. An endpoint that refuses
/// costs nothing, a silent one kRouterTry in the first round, or its share of the deadline. When
/// its connection is lost, it tries all of them in the same way.
///
/// A router that closes in order withdraws all that it passed on, piece by piece, before its
/// connections end. A get() or query() of that moment may end as complete without a part of it.
///
/// Threads: a thread for callbacks, and those of Zenoh, which all sessions of the process share.
/// Errors:  unreachable (a client that reaches nobody until the deadline, with a reason for each
///          endpoint); address_in_use, permission_denied and invalid_argument for places to listen
///          at, those of may_bind() too; invalid_argument; not_supported if Tendon was built
///          without Zenoh. A session whose connection is lost later is down, and connects again by
///          itself. Zenoh's own words are logged, at `info`.
/// Blocks:  a client until it is connected; the destructor of the session for two seconds at most.
///          A session must be closed before the process ends: never keep one in a static.
/// Cost:    about 10 MB and some threads.
[[nodiscard]] Result<std::unique_ptr<ZenohPort>> open_zenoh(const ZenohOptions& options,
                                                            Deadline deadline);

/// Opens a client by one round of tries. Blocks: for at most `patience` for each endpoint, and a
/// moment.
[[nodiscard]] Result<std::unique_ptr<ZenohPort>> open_zenoh_once(const ZenohOptions& options);
/// The same for every kind of session, without reasons.
[[nodiscard]] Result<std::unique_ptr<ZenohPort>> try_zenoh(const ZenohOptions& options);

/// The version of Zenoh; not_supported says why there is none.
[[nodiscard]] Result<std::string> zenoh_version();

/// `forked` if the process from which this one was forked had a session: the threads of Zenoh,
/// which a process has once, cannot be forked.
[[nodiscard]] Result<void> check_zenoh_can_run();

/// The number of messages of this process that Zenoh took, in all its sessions.
[[nodiscard]] std::uint64_t zenoh_puts();

}  // namespace tendon::v0::detail
