// SPDX-License-Identifier: Apache-2.0
// The interest of a node in the announcements of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tendon/fabric/key_expression.hpp>
#include <utility>
#include <vector>

#include "fabric/ports/node_port.hpp"

namespace tendon::v0::detail {

/// The subscribers of a node, by their numbers and by their keys.
///
/// Owns:    none of them.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    takers(): a look-up for subscribers of one key, and a comparison for each with a
///          wildcard.
class OwnSubscribers {
 public:
  using Subscribers = std::vector<std::shared_ptr<Follower>>;

  void add(std::uint32_t number, const KeyExpression& keys, std::weak_ptr<Follower> one);
  /// False: there is none of that number.
  bool remove(std::uint32_t number, const KeyExpression& keys);
  [[nodiscard]] std::shared_ptr<Follower> find(std::uint32_t number) const;
  /// The subscribers of this topic, by their keys alone.
  [[nodiscard]] Subscribers takers(const KeyExpression& topic) const;
  [[nodiscard]] Subscribers all() const;
  void clear();

 private:
  std::map<std::uint32_t, std::weak_ptr<Follower>> all_;
  std::map<std::string, std::set<std::uint32_t>, std::less<>> of_keys_;
  std::map<std::uint32_t, KeyExpression> wild_;
};

/// The announced publishers that subscribers want, and those that people were told are unreachable.
///
/// Owns:    numbers.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    looks into trees.
class Wants {
 public:
  using Want = std::pair<PublisherId, std::uint32_t>;  // a publisher, and a subscriber

  void add(const PublisherId& publisher, std::uint32_t subscriber);
  /// Removes a publisher that is no longer announced. Returns the subscribers that wanted it.
  std::set<std::uint32_t> remove(const PublisherId& publisher);
  void remove(const PublisherId& publisher, std::uint32_t subscriber);
  [[nodiscard]] bool has(const ContextId& context) const;
  [[nodiscard]] bool has(const PublisherId& publisher) const { return wants_.contains(publisher); }

  // The node of a Context may be announced after its publishers
  /// Makes this want wait for the node.
  void wait_for_node(const Want& want) { waiting_.insert(want); }
  /// Takes the wants that wait for a node of this Context; if there is none, any other want of it.
  [[nodiscard]] std::vector<Want> take_waiting(const ContextId& context);

  // Reported to people once, until it is reached
  /// The unreported publishers of the Context; from now on they are reported.
  [[nodiscard]] std::vector<PublisherId> tell_all_of(const ContextId& context);
  /// Notes a report. True: it was not reported before.
  bool tell(const PublisherId& publisher);
  void note_reached(const PublisherId& publisher);

 private:
  std::map<PublisherId, std::set<std::uint32_t>> wants_;  // and the subscribers that want it
  std::set<PublisherId> untold_;
  std::set<Want> waiting_;
};

/// The called keys, and the Contexts that have responders for them.
///
/// Owns:    counts.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    looks into trees.
class CalledKeys {
 public:
  [[nodiscard]] bool has(const KeyExpression& key) const { return keys_.contains(key); }
  /// Begins a call of the key, until end(). The key stays here afterwards.
  void begin(const KeyExpression& key) { ++keys_[key]; }
  void end(const KeyExpression& key);
  /// Removes it, unless a call runs.
  bool forget_unused(const KeyExpression& key);
  /// Removes the keys that no call uses, when there are more than `most` keys.
  [[nodiscard]] std::vector<KeyExpression> take_unused(std::size_t most);

  /// Counts an announced responder of a key that is here; discount() undoes that.
  void count(const ContextId& context);
  void discount(const ContextId& context);
  /// True if the Context has a responder that counts.
  [[nodiscard]] bool wants(const ContextId& context) const { return contexts_.contains(context); }
  /// Takes the Contexts for which that may have changed since the last call.
  [[nodiscard]] std::set<ContextId> take_changed() { return std::exchange(changed_, {}); }

 private:
  std::map<KeyExpression, std::size_t> keys_;  // and the number of running calls
  std::map<ContextId, std::size_t> contexts_;  // and the number of counted responders
  std::set<ContextId> changed_;
};

}  // namespace tendon::v0::detail
