// SPDX-License-Identifier: Apache-2.0
#include "runtime/redial.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "pipe.connect";
constexpr std::chrono::seconds kToldAfter{1};
// Near the deadline, each pause is half of the remaining time, but at least this.
constexpr std::chrono::microseconds kLeastPause{1000};

}  // namespace

Result<Redial> Redial::make(const ContextCore& context, std::string_view address, Absent absent,
                            Deadline deadline) {
  const auto bounds = absent == Absent::wait ? Backoff::kAbsent : Backoff::kAtTheDoor;
  TENDON_TRY(backoff, Backoff::seeded(bounds));
  return Redial(context, address, absent, deadline, backoff);
}

bool Redial::is_worth_another(const Error& failed, Heard heard) const {
  const bool is_busy = failed.code == ErrorCode::server_busy;
  // A listener that sent nothing may soon have a place, and every dial waits for that. A crowded
  // listener also closes connections whose TLS handshake has begun.
  if (is_busy && heard == Heard::nothing) return true;
  if (failed.code == ErrorCode::peer_lost && heard == Heard::handshake) return true;
  return absent_ == Absent::wait &&
         (is_busy || failed.code == ErrorCode::unreachable || failed.system_errno == ETIMEDOUT);
}

Error Redial::give_up() const {
  Error error = *last_;
  if (error.code != ErrorCode::server_busy && error.code != ErrorCode::peer_lost)
    error.code = ErrorCode::unreachable;
  if (try_count_ > 1)
    error.detail += "; tried " + std::to_string(try_count_) + " times until the deadline";
  return error;
}

void Redial::tell_once() {
  if (told_ || absent_ == Absent::fail) return;
  if (std::chrono::steady_clock::now() - began_ < kToldAfter) return;
  told_ = true;
  std::string until = "for ever";
  if (!deadline_.is_never()) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(deadline_.remaining());
    until = "for " + std::to_string(left.count()) + " s more";
  }
  context_->log(
      LogLevel::warn, kWhere,
      "nobody listens at " + address_ + " yet (" + last_->detail + "); dialling " + until);
}

Result<std::chrono::microseconds> Redial::after(Error failed, Heard heard) {
  ++try_count_;
  if (!is_worth_another(failed, heard)) {
    // A try cut short by the deadline explains nothing, so the cause is that of an earlier one.
    return failed.code == ErrorCode::timeout && last_ ? give_up() : std::move(failed);
  }
  last_ = std::move(failed);
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline_.remaining());
  if (left <= kLeastPause) return give_up();
  tell_once();
  return std::min(backoff_.next(), std::max(left / 2, kLeastPause));
}

}  // namespace tendon::v0::detail
