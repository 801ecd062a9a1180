// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/keys/publisher_id.hpp"
#include "fabric/samples/pending_gaps.hpp"
#include "fabric/topics/feed.hpp"
#include "fabric/ways/peer_name.hpp"

namespace tendon::v0::detail {

/// The samples of one publisher at one subscriber, over all links on which they arrive.
///
///   open -> parted    its link is lost, or its channel broke: a new one continues after it
///   parted -> open    there is a new channel
///   open, parted -> told    the end is known: the publisher said so, its process died, or it has
///                           been parted for a lease. Earlier samples are still to be read
///   told -> over      all of that was read
struct Stream {
  enum class State : std::uint8_t { open, parted, told };

  PublisherId publisher;
  std::string key;
  PeerName node;
  std::uint64_t incarnation = 0;
  std::shared_ptr<Feed> feed;                     ///< the newest
  std::vector<std::shared_ptr<Feed>> channels{};  ///< not read to the end, in order
  PendingGaps gaps{};                             ///< of the receiver
  State state = State::open;
  std::chrono::steady_clock::time_point parted_at{};
  Feed::Ending ending{};        ///< when told
  std::uint64_t last_seen = 0;  ///< likewise
  std::uint64_t told_as = 0;    ///< its number among all ends that were reported

  /// Its end, as reported to the program.
  [[nodiscard]] Ended ended() const;
  /// The gaps before the program's next item.
  [[nodiscard]] std::vector<Gap> take_gaps(std::uint64_t of_incarnation);
};

/// A channel to read.
struct StreamEntry {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Feed> feed;
  /// With `newest_only`: feeds that are followed instead of this one while their links live.
  std::vector<std::shared_ptr<Feed>> newer{};
  /// Feeds that are read to the end before this one, once they are over.
  std::vector<std::shared_ptr<Feed>> older{};

  /// True if it may be read. An end waits for that of an older incarnation which was reported
  /// before it. The samples after that end wait for both.
  [[nodiscard]] bool has_its_turn() const;
};

}  // namespace tendon::v0::detail
