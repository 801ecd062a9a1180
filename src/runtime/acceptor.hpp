// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "core/fd.hpp"
#include "runtime/engine.hpp"
#include "session/resolve.hpp"

namespace tendon::inline v0::detail {

class Admission;

/// A listening socket: lets peers through the handshake, makes their links, hands out tickets for
/// pipes.
///
/// Owns:    the socket, the handshakes under way (kHalfOpenPerListener at most, kHandshakeTimeout
///          each).
/// Threads: thread-safe; works on whichever thread leads.
/// Errors:  of bind(); a failed handshake is logged and ends that connection only.
/// Blocks:  never, but for looking up a name in bind().
class Acceptor final : public FdHandler,
                       public Timed,
                       public std::enable_shared_from_this<Acceptor> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Acceptor>> bind(std::shared_ptr<Engine> engine,
                                                              std::string_view address,
                                                              Profile profile,
                                                              std::weak_ptr<OpenHandler> handler);
  Acceptor(std::shared_ptr<Engine> engine, Profile profile, std::weak_ptr<OpenHandler> handler);
  ~Acceptor() override;

  /// With the port that was chosen.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void close();

  void on_ready(int fd, std::uint32_t events) override;
  /// Listens again after a rest for want of descriptors.
  void on_time() override;

 private:
  friend class Admission;
  [[nodiscard]] Result<void> open(const Address& address);
  /// The next connection, or nothing and errno.
  [[nodiscard]] OwnedFd accept_one();
  void admit(OwnedFd fd, std::shared_ptr<Admission> parent, bool is_unix);
  void finished(const Admission* admission);
  /// A lane ticket that admits one connection to `link`.
  [[nodiscard]] Result<Token> issue_lane(std::weak_ptr<class TcpLink> link);
  [[nodiscard]] std::shared_ptr<class TcpLink> take_lane(const Token& ticket);

  const std::shared_ptr<Engine> engine_;
  const Profile profile_;
  const std::weak_ptr<OpenHandler> handler_;
  std::string address_;
  std::string unix_path_;  // to be unlinked
  OwnedFd socket_;

  std::mutex mutex_;
  std::vector<std::shared_ptr<Admission>> admissions_;
  std::vector<std::pair<Token, std::weak_ptr<class TcpLink>>> lanes_;
  bool closed_ = false;
};

}  // namespace tendon::inline v0::detail
