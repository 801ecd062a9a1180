// SPDX-License-Identifier: Apache-2.0
// What comes of Node::call() and Node::call_all().
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The answer of one responder.
///
/// Owns:    a share of the memory it lies in, which is read-only where the responder is on this
///          host.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    on one host nothing is copied while a caller keeps few answers of a responder.
struct Reply {
  std::string node;  ///< whose responder it is
  TensorDict tensors;
};

/// A responder without an answer, and why there is none: `timeout`, or what became of it.
struct Unanswered {
  std::string node;
  Error error;
};

/// What came until all responders had answered, or the deadline had passed.
struct CallAllReplies {
  std::vector<Reply> replies;          ///< in the order in which they came
  std::vector<Unanswered> unanswered;  ///< sorted by node
};

/// The calls of one node.
struct CallStats {
  std::uint64_t calls = 0;
  std::uint64_t answers = 0;       ///< that were taken
  std::uint64_t late_answers = 0;  ///< that came when nobody waited for them any more: dropped
};

}  // namespace v0
}  // namespace tendon
