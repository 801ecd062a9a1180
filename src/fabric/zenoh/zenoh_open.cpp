// SPDX-License-Identifier: Apache-2.0
// Opens sessions of Zenoh: a client in rounds, with a reason if it fails.
#include <algorithm>
#include <chrono>
#include <thread>

#include "core/environment.hpp"
#include "fabric/zenoh/endpoint_look.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "session/bind_permission.hpp"
#include "session/holder.hpp"

namespace tendon::v0::detail {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::Clock;
/// Whether any endpoint used up its whole time.
enum class Silence : std::uint8_t { none, some };

constexpr milliseconds kPause{50};
/// The time for the kernel's word, after each round.
constexpr milliseconds kLook{100};
/// After so many rounds each further one doubles the time of a try, so often: a busy or distant
/// router gets its time.
constexpr int kShortRounds = 2;
constexpr int kDoublings = 3;

/// True if the variable may name other places, which are not known here.
bool is_overridden() { return !environment_variable("ZENOH_CONFIG_OVERRIDE").empty(); }

/// The time of one endpoint in this round.
milliseconds try_of(const ZenohOptions& options, int round, Deadline deadline) {
  const int doublings = std::clamp(round - kShortRounds + 1, 0, kDoublings);
  const milliseconds wanted = std::min(options.patience, kRouterTry) * (1 << doublings);
  if (deadline.is_never()) return wanted;
  const auto left = std::chrono::floor<milliseconds>(deadline.remaining()) - kLook;
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(options.connect.size(), 1));
  return std::max(std::min(wanted, left / count), kLeastRouterTry);
}

std::string reason_of(const EndpointLook& look, Silence silence, milliseconds patience) {
  if (look.state != EndpointLook::State::taken) return look.why;
  const std::string who = look.holder ? process_text(*look.holder) + ',' : "a program";
  if (silence == Silence::none) return who + " takes the connection, and is no router of Zenoh";
  return who + " takes the connection, and did not finish Zenoh's handshake within " +
         std::to_string(patience.count()) + " ms";
}

bool all_refuse(const std::vector<EndpointLook>& looks) {
  return !looks.empty() && std::ranges::all_of(looks, [](const EndpointLook& look) {
    return look.state == EndpointLook::State::refused;
  });
}

Error nobody_answers(const ZenohOptions& options, const std::vector<EndpointLook>& looks,
                     Silence silence, milliseconds patience) {
  std::string detail = options.nobody;
  for (std::size_t i = 0; i < options.connect.size(); ++i) {
    detail += (i == 0 ? " " : "; ") + options.connect_names()[i] + ": ";
    detail += reason_of(looks[i], silence, patience);
  }
  if (is_overridden()) detail += "; ZENOH_CONFIG_OVERRIDE is set, and may name other places";
  return Error{ErrorCode::unreachable, "fabric.zenoh", std::move(detail)};
}

/// One round: a try for each endpoint, and the reason for a missing session.
struct Round {
  Result<std::unique_ptr<ZenohPort>> opened;
  Silence silence = Silence::none;
};
Round try_all(const ZenohOptions& options) {
  const auto begun = Clock::now();
  auto opened = try_zenoh(options);
  const bool was_short = Clock::now() - begun < options.patience;
  return {std::move(opened), was_short ? Silence::none : Silence::some};
}

bool is_final(const Result<std::unique_ptr<ZenohPort>>& opened) {
  return opened || opened.error().code != ErrorCode::unreachable;
}

Result<std::unique_ptr<ZenohPort>> open_client(const ZenohOptions& options, Deadline deadline) {
  ZenohOptions one_round = options;
  std::vector<EndpointLook> looks;
  Silence silence = Silence::none;
  for (int number = 0;;) {
    // A session that nobody will answer is not even made.
    const bool tries = is_overridden() || !all_refuse(looks);
    if (tries) {
      one_round.patience = try_of(options, number++, deadline);
      Round round = try_all(one_round);
      if (is_final(round.opened)) return std::move(round.opened);
      silence = round.silence;
    }
    looks = look_at_endpoints(options.connect, kLook);
    const bool has_time =
        deadline.is_never() || deadline.remaining() > kPause + kLook + kLeastRouterTry;
    if (all_refuse(looks) ? deadline.has_passed() : tries && !has_time)
      return nobody_answers(options, looks, silence, one_round.patience);
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kPause, deadline.remaining()));
  }
}

Result<void> may_listen(const std::string& endpoint, Profile profile) {
  constexpr std::string_view kUnix = "unixsock-stream/";
  if (endpoint.starts_with(kUnix)) return {};
  // The port, and "#iface=eth0" behind it, do not matter here.
  const std::string place = endpoint.substr(endpoint.find('/') + 1);
  return may_bind_host({profile}, place.substr(0, place.rfind(':')), "fabric.zenoh");
}

}  // namespace

Result<std::unique_ptr<ZenohPort>> open_zenoh_once(const ZenohOptions& options) {
  std::vector<EndpointLook> looks = look_at_endpoints(options.connect, kLook);
  if (all_refuse(looks) && !is_overridden())
    return nobody_answers(options, looks, Silence::none, options.patience);
  Round round = try_all(options);
  if (is_final(round.opened)) return std::move(round.opened);
  looks = look_at_endpoints(options.connect, kLook);
  return nobody_answers(options, looks, round.silence, options.patience);
}

Result<std::unique_ptr<ZenohPort>> open_zenoh(const ZenohOptions& options, Deadline deadline) {
  if (options.mode == ZenohMode::client) return open_client(options, deadline);
  for (const std::string& endpoint : options.listen)
    TENDON_CHECK(may_listen(endpoint, options.profile));
  auto opened = try_zenoh(options);
  if (is_final(opened)) return opened;
  for (const std::string& endpoint : options.listen)
    if (auto why = why_not_listening(endpoint)) return *std::move(why);
  return opened;
}

}  // namespace tendon::v0::detail
