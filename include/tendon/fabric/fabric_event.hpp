// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/ended.hpp>
#include <tendon/fabric/gap.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The events that a node reports to its program. A MemberEvent of its Context reports changes of
/// peers themselves.
enum class FabricEventKind : std::uint8_t {
  gap,              ///< a subscriber of this node will not get these samples
  lagging,          ///< a publish() with Overflow::block no longer waits for a subscriber
  schema_mismatch,  ///< a publisher has another schema than a subscriber of this node
  duplicate_name,   ///< two live nodes of the domain have one name
  undiscoverable,   ///< discovery lost a node with which a subscriber still has a channel
  unreachable,      ///< a publisher is announced, and a subscriber of this node has no link to it
  plain_refused,    ///< a plain Zenoh peer put a message on a key that is no sample
  came,             ///< a subscriber of this node is connected to a publisher, at first or again
  ended,            ///< the samples of a publisher ended at a subscriber of this node
  unsent,           ///< a publisher was closed before a subscriber was shown all samples
  plain_deleted,   ///< a plain Zenoh peer deleted a key: Zenoh's word that it has no value any more
  discovery_lost,  ///< no router answers for half a second: no news, links stay
  discovery_found,  ///< a router answers, after `discovery_lost` or first in the background
  /// Newcomers of this host find the nodes of this Context in another runtime directory
  runtime_directory_changed,
  plain_dropped,  ///< a subscriber of this node missed messages of a plain Zenoh peer on a key
  /// A subscriber cannot take some samples of a publisher of this node, and gets a gap for them.
  /// They are tensors on a GPU, for an older Tendon. Once for each connection.
  not_taken,
};
TENDON_WORDS(FabricEventKind, gap, lagging, schema_mismatch, duplicate_name, undiscoverable,
             unreachable, plain_refused, came, ended, unsent, plain_deleted, discovery_lost,
             discovery_found, runtime_directory_changed, plain_dropped, not_taken);

/// One try to reach a node, and why it failed. The address that was dialled, or another way:
/// "direct" for a node that announces no address, "dial-back", "routed".
struct DialAttempt {
  std::string address;
  std::string error;

  friend bool operator==(const DialAttempt&, const DialAttempt&) = default;
};

struct TENDON_API FabricEvent {
  FabricEventKind kind = FabricEventKind::gap;
  std::string key;     ///< of the topic; empty for an event about a node, discovery or a directory
  std::string node;    ///< the other one, or this one if its directory changed; empty: none
  std::string reason;  ///< how this end knows, and what was tried
  std::optional<Gap> gap{};
  std::vector<DialAttempt> tried{};  ///< of `unreachable`: each address, in the order of dialling
  std::chrono::steady_clock::time_point when{};
  std::uint32_t entity = 0;  ///< the publisher, as in Sample::entity; 0: it is about none
  std::optional<Ended> ended{};
  /// The subscriber of this node that the event is about, as Subscriber::entity(); 0: about none.
  std::uint32_t subscriber = 0;
  /// Set for `runtime_directory_changed`. Both alike: it was made anew. An empty one: no directory,
  /// because none is this user's alone.
  std::string old_directory{};
  std::string new_directory{};

  /// "lagging: motor (host b, pid 4711) on vision/frames: sample 17 waited for it ...".
  friend TENDON_API std::ostream& operator<<(std::ostream& out, const FabricEvent& event);
};

}  // namespace v0
}  // namespace tendon
