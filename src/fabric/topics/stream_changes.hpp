// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/fabric/ended.hpp>
#include <vector>

#include "fabric/keys/publisher_id.hpp"
#include "fabric/samples/gap_finder.hpp"
#include "fabric/topics/feed.hpp"
#include "fabric/topics/stream.hpp"
#include "fabric/ways/peer_name.hpp"

namespace tendon::v0::detail {

/// The links on which samples may arrive, each once.
struct StreamLinks {
  std::vector<std::shared_ptr<Link>> kept;
  std::vector<Link*> links;
};
/// The publisher to be connected.
struct StreamCandidate {
  PublisherId publisher;
  std::string key;
  PeerName node;
  std::uint64_t incarnation = 0;
};
/// A consequence of a change, for the owner to handle without its lock.
struct StreamChanges {
  struct Over {
    std::shared_ptr<Stream> stream;
    GapFinder::Found last;  ///< missing after its last sample
  };
  /// A channel that broke, or for which its publisher has no room: a pause follows.
  struct Broken {
    enum class By : std::uint8_t { violation, limit };
    std::shared_ptr<Stream> stream;
    Error why;
    By by = By::violation;
    bool tell = false;
  };
  std::vector<Ended> told;
  std::vector<Over> over;
  std::vector<Broken> broken;
  std::vector<std::shared_ptr<Feed>> read_out;                ///< to be closed
  std::vector<PublisherId> again;                             ///< to be connected again, now
  std::optional<std::chrono::steady_clock::time_point> next;  ///< the time when settle() has to
                                                              ///< look again
  bool connections_changed = false;                           ///< there are other links
  bool entries_changed = false;                               ///< a result of entry_of() may be old
};

}  // namespace tendon::v0::detail
