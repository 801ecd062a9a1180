// SPDX-License-Identifier: Apache-2.0
// What a node wants of what others announce.
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

/// The subscribers of a node, by their numbers and by what they take.
///
/// Owns:    none of them.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    takers(): a look-up for those of one key, and a comparison for each with a wildcard.
class OwnSubscribers {
 public:
  using Subscribers = std::vector<std::shared_ptr<Follower>>;

  void add(std::uint32_t number, const KeyExpression& keys, std::weak_ptr<Follower> one);
  /// False: there is none of that number.
  bool remove(std::uint32_t number, const KeyExpression& keys);
  [[nodiscard]] std::shared_ptr<Follower> find(std::uint32_t number) const;
  /// Those that take this topic, as far as it alone says.
  [[nodiscard]] Subscribers takers(const KeyExpression& topic) const;
  [[nodiscard]] Subscribers all() const;
  void clear();

 private:
  std::map<std::uint32_t, std::weak_ptr<Follower>> all_;
  std::map<std::string, std::set<std::uint32_t>, std::less<>> of_keys_;
  std::map<std::uint32_t, KeyExpression> wild_;
};

/// Which of the publishers that are announced is wanted by which subscribers, and which of them
/// people were told of as unreachable.
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
  /// It is announced no more. Returns which subscribers wanted it.
  std::set<std::uint32_t> remove(const PublisherId& publisher);
  void remove(const PublisherId& publisher, std::uint32_t subscriber);
  [[nodiscard]] bool has(const ContextId& context) const;
  [[nodiscard]] bool has(const PublisherId& publisher) const { return wants_.contains(publisher); }

  // The node of a Context may be announced after its publishers
  /// This want waits for it.
  void wait_for_node(const Want& want) { waiting_.insert(want); }
  /// Those that wait for a node of this Context; where none does, any other want of it.
  [[nodiscard]] std::vector<Want> take_waiting(const ContextId& context);

  // What people are told once, until it is reached
  /// Those of the Context that they were not told of; now they are.
  [[nodiscard]] std::vector<PublisherId> tell_all_of(const ContextId& context);
  /// True: they were not told of it.
  bool tell(const PublisherId& publisher);
  void note_reached(const PublisherId& publisher);

 private:
  std::map<PublisherId, std::set<std::uint32_t>> wants_;  // and the subscribers that want it
  std::set<PublisherId> untold_;
  std::set<Want> waiting_;
};

/// The keys that are called, and the Contexts that have responders of them.
///
/// Owns:    counts.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    looks into trees.
class CalledKeys {
 public:
  [[nodiscard]] bool has(const KeyExpression& key) const { return keys_.contains(key); }
  /// A call of the key runs, until end(). It stays here afterwards.
  void begin(const KeyExpression& key) { ++keys_[key]; }
  void end(const KeyExpression& key);
  /// Takes it out, unless a call runs.
  bool forget_unused(const KeyExpression& key);
  /// Takes out those that no call uses, when there are more than `most` keys.
  [[nodiscard]] std::vector<KeyExpression> take_unused(std::size_t most);

  /// A responder of a key that is here is announced; of one that is or was, it is not any more.
  void count(const ContextId& context);
  void discount(const ContextId& context);
  /// Has the Context a responder that counts?
  [[nodiscard]] bool wants(const ContextId& context) const { return contexts_.contains(context); }
  /// The Contexts for which that may have changed since the last call.
  [[nodiscard]] std::set<ContextId> take_changed() { return std::exchange(changed_, {}); }

 private:
  std::map<KeyExpression, std::size_t> keys_;  // and how many calls run
  std::map<ContextId, std::size_t> contexts_;  // and how many responders count
  std::set<ContextId> changed_;
};

}  // namespace tendon::v0::detail
