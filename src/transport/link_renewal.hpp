// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/renewal.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

class ByteStream;

/// How a link over TLS renews its session.
struct LinkRenewalOptions {
  secure::RenewalTerms terms{};  ///< null credentials: the link has no TLS
  /// So many bulk lanes belong to the link: no renewal before they are there.
  std::uint32_t lanes = 0;
  /// Told of each new session, under the receive lock. It is destroyed when the link ends.
  std::function<void(const secure::TlsSession&)> on_agreed{};
};

/// The link around it, under its receive lock.
struct LinkRenewalHooks {
  std::function<void(const Descriptor&, Bytes)> post{};
  /// Calls this for the control lane's stream and those of all bulk lanes. Left out: memory that is
  /// shared has no keys.
  std::function<void(const std::function<void(ByteStream&)>&)> each_stream{};
  /// False: the peer progresses manually, and renews when its program likes.
  bool expects_signs_of_life = true;
};

/// The renewals of a link: says the words of secure::Renewal on pipe 0, and takes its streams over
/// to new keys. docs/protocol.md, "Renewal".
///
/// Owns:    the renewal; what a peer has said before the lanes were there.
/// Threads: under the link's receive lock, but for look() and the counters.
/// Errors:  what the link ends with, where the peer proved another identity or broke the rules.
/// Blocks:  look(): on the disk. Else never.
/// Cost:    nothing on a link without TLS; else a comparison, but for a renewal.
class LinkRenewal {
 public:
  using TimePoint = secure::Renewal::TimePoint;

  LinkRenewal(LinkRenewalOptions options, LinkRenewalHooks hooks, TimePoint now);

  [[nodiscard]] bool is_of_tls() const noexcept { return renewal_.has_value(); }
  /// Reads files of credentials that have changed.
  void look(TimePoint now) const {
    if (credentials_ != nullptr) credentials_->look(now);
  }
  /// A word of kind `secure`, which check_descriptor() has seen. Errors: protocol_violation;
  /// authentication_failed, after which the link says goodbye before it ends.
  [[nodiscard]] Result<void> take(const Descriptor& descriptor, Bytes body, TimePoint now);
  /// Goes on where it may: begins one when the link has carried so many bytes in all.
  [[nodiscard]] Result<void> go_on(std::uint64_t bytes, TimePoint now);

  /// The link has ended: drops a handshake that is under way, and on_agreed.
  void end() noexcept {
    renewal_.reset();
    on_agreed_ = nullptr;
  }

  /// From any thread.
  [[nodiscard]] std::uint64_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t refused_count() const noexcept {
    return refused_count_.load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] bool has_lanes() const;
  [[nodiscard]] bool has_switched() const;
  void use_latest() { renewal_->use(secure::Credentials::latest(credentials_)); }
  [[nodiscard]] Result<void> act(secure::RenewalStep step);
  [[nodiscard]] Result<void> agree();
  [[nodiscard]] Result<void> note_switched();
  void say(secure::RenewalWord word, Bytes body = {});

  const std::shared_ptr<const secure::Credentials> credentials_;
  const std::uint32_t lanes_;
  std::function<void(const secure::TlsSession&)> on_agreed_;
  const LinkRenewalHooks hooks_;
  std::optional<secure::Renewal> renewal_;  // nothing: no TLS, or the link has ended
  std::vector<std::byte> held_;             // a client's hello, until the lanes are there
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> refused_count_{0};
};

}  // namespace tendon::v0::detail
