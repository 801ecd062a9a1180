// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/tensor/schema.hpp>
#include <utility>

#include "fabric/keys/publisher_id.hpp"

namespace tendon::v0::detail {

/// The refusals of a subscriber: the differences of schemas that were reported to its program, and
/// the reason of the last one.
///
/// Owns:    kMaxAnnouncements differences at most.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look into a tree.
class RefusedSchemas {
 public:
  /// True if it is the first of its kind, and may be reported to the program.
  [[nodiscard]] bool is_news(const PublisherId& publisher, const SchemaHash& schema) {
    return told_.size() < kMaxAnnouncements && told_.emplace(publisher, schema).second;
  }
  void note_last(std::string why) { last_ = std::move(why); }
  /// The reason for recv() when nothing arrives; empty: nothing was refused.
  [[nodiscard]] const std::string& last() const noexcept { return last_; }

 private:
  std::set<std::pair<PublisherId, SchemaHash>> told_;
  std::string last_;
};

}  // namespace tendon::v0::detail
