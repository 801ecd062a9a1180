// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/tensor/schema.hpp>
#include <utility>

#include "fabric/keys/publisher_id.hpp"

namespace tendon::v0::detail {

/// The refusals of a subscriber: the differences of schemas that its program was told of, and the
/// reason of the last one.
///
/// Owns:    kMaxAnnouncements differences at most.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look into a tree.
class RefusedSchemas {
 public:
  /// Is it the first of its kind, and may the program be told of it?
  [[nodiscard]] bool is_news(const PublisherId& publisher, const SchemaHash& schema) {
    return told_.size() < kMaxAnnouncements && told_.emplace(publisher, schema).second;
  }
  void note_last(std::string why) { last_ = std::move(why); }
  /// For recv() when nothing arrives; empty: nothing was refused.
  [[nodiscard]] const std::string& last() const noexcept { return last_; }

 private:
  std::set<std::pair<PublisherId, SchemaHash>> told_;
  std::string last_;
};

}  // namespace tendon::v0::detail
