// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/connect_options.hpp>
#include <tendon/session/profile.hpp>

#include "runtime/context_core.hpp"
#include "runtime/lane.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// A link to the Context that listens at an address, and the right to open one pipe there.
struct Connected {
  std::shared_ptr<Link> link;
  Nonce128 ticket;
  /// This side's host of the connection, without a port: that of the interface that reaches the
  /// peer. Empty for a unix socket.
  std::string local_host;
};

/// Connections to one peer that another layer opens in place of a dialled address. They carry plain
/// bytes; TLS runs over them where it is asked for.
struct Carrier {
  std::string name;   ///< of the peer, for errors
  ContextId context;  ///< the one that must answer; another is `unreachable`, and no link to it is
                      ///< made
  std::function<Result<std::unique_ptr<ByteStream>>(Lane, Deadline)> open;
};

/// Finds or makes the link. Runs in the calling thread, which makes progress meanwhile, so that
/// connecting to a listener of the same Context works.
[[nodiscard]] Result<Connected> connect(ContextCore& context, std::string_view address,
                                        const ConnectOptions& options, Deadline deadline);
/// The same for the library's own dials, which do not wait for a listener: Absent::fail.
[[nodiscard]] Result<Connected> connect(ContextCore& context, std::string_view address,
                                        Profile profile, Deadline deadline);
/// The same for one particular Context: another one that listens there is `unreachable`, and no
/// link to it is made.
[[nodiscard]] Result<Connected> connect(ContextCore& context, const ContextId& expected,
                                        std::string_view address, Security security,
                                        Deadline deadline);
/// The same over the streams of `carrier`. Returns a link to the Context there that either side has
/// made already, else a new one. No name was dialled, so a certificate of any name is accepted
/// where `security` names none.
[[nodiscard]] Result<Connected> connect(ContextCore& context, const Carrier& carrier,
                                        Security security, Deadline deadline);

}  // namespace tendon::v0::detail
