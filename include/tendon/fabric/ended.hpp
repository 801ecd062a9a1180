// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// How the samples of a publisher ended, and how this end knows.
enum class EndReason : std::uint8_t {
  closed,   ///< the publisher closed its topic in order
  died,     ///< the kernel says that its process is dead
  lost,     ///< its link was lost a lease ago, and no new one was made
  refused,  ///< its link lives, but the channel ended with an error and was not opened again
};
TENDON_WORDS(EndReason, closed, died, lost, refused);

/// The end of one publisher's samples at one subscriber. After `lost` and `refused` the publisher
/// may return: the event `came` says so, and the gap before its next sample has the reason
/// `reconnect`.
struct TENDON_API Ended {
  std::string publisher;     ///< the node, as in Sample::publisher
  std::uint32_t entity = 0;  ///< as in Sample::entity
  std::string key;
  std::uint64_t incarnation = 0;  ///< of the node
  /// The last sample that reached this subscriber, even if not taken yet; 0: none did.
  std::uint64_t last_seen = 0;
  /// The last sample that was published, exactly if `exact`, else at least. A process that was
  /// killed may have counted one sample whose publish() had not returned.
  std::uint64_t last_published = 0;
  bool exact = false;
  EndReason reason = EndReason::closed;

  friend bool operator==(const Ended&, const Ended&) = default;
  /// "camera ended on vision/frames (died): sample 24 is the last that arrived here, and 100 were
  /// published".
  friend TENDON_API std::ostream& operator<<(std::ostream& out, const Ended& ended);
};

}  // namespace v0
}  // namespace tendon
