// SPDX-License-Identifier: Apache-2.0
#include "group/membership/attempts.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";
constexpr std::chrono::milliseconds kLongestPiece{8000};
constexpr std::chrono::milliseconds kLongestPause{200};

// True if a later attempt may succeed.
bool may_come_yet(ErrorCode code) {
  return code == ErrorCode::unreachable || code == ErrorCode::peer_lost ||
         code == ErrorCode::end_of_stream || code == ErrorCode::server_busy ||
         code == ErrorCode::timeout;
}

// True for the word of a Tendon that listens there. Another service may have an address that the
// member also has, on another network.
bool is_refusal(ErrorCode code) {
  return code == ErrorCode::permission_denied || code == ErrorCode::version_mismatch ||
         code == ErrorCode::not_supported;
}

}  // namespace

void Attempts::note(const std::string& address, Error error) {
  const auto found = std::ranges::find(tried_, address, &Tried::address);
  if (found != tried_.end())
    found->error = std::move(error);
  else
    tried_.push_back({address, std::move(error)});
}

void Attempts::begin_round() {
  piece_ = std::min(piece_ * 2, kLongestPiece);
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Attempts::keep_only(std::span<const std::string> addresses) {
  std::erase_if(tried_, [&](const Tried& one) {
    return std::ranges::find(addresses, one.address) == addresses.end();
  });
}

std::string Attempts::causes() const {
  std::string causes;
  for (const Tried& one : tried_) {
    if (!causes.empty()) causes += "; ";
    // Most errors name the address themselves.
    if (one.error.detail.find(one.address) == std::string::npos) causes += one.address + ": ";
    causes += one.error.detail;
  }
  return causes;
}

std::optional<Error> Attempts::final_answer() const {
  const auto said = [&](const Tried& one) {
    Error error = one.error;
    error.detail = causes();
    return error;
  };
  for (const Tried& one : tried_)
    if (is_refusal(one.error.code)) return said(one);
  for (const Tried& one : tried_)
    if (may_come_yet(one.error.code)) return {};
  if (tried_.empty()) return {};
  return said(tried_.front());
}

Error Attempts::nobody_answered(std::string_view more) const {
  std::string places;
  for (const Tried& one : tried_) places += (places.empty() ? "" : ", ") + one.address;
  return Error{ErrorCode::timeout, kWhere,
               "nobody answered at " + places + " before the deadline: " + causes() + "; " +
                   std::string(more)};
}

}  // namespace tendon::v0::detail
