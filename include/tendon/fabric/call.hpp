// SPDX-License-Identifier: Apache-2.0
// The results of Node::call() and Node::call_all().
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
/// Owns:    a share of the memory in which it lies; that is read-only if the responder is on this
///          host.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    on one host nothing is copied while a caller keeps few answers of a responder.
struct Reply {
  std::string node;  ///< of the responder
  TensorDict tensors;
};

/// A responder without an answer, and the reason: `timeout`, or its own failure.
struct Unanswered {
  std::string node;
  Error error;
};

/// The answers that arrived before all responders had answered, or the deadline had passed.
struct CallAllReplies {
  std::vector<Reply> replies;          ///< in the order of arrival
  std::vector<Unanswered> unanswered;  ///< sorted by node
};

/// The calls of one node.
struct CallStats {
  std::uint64_t calls = 0;
  std::uint64_t answers = 0;       ///< that a caller took
  std::uint64_t late_answers = 0;  ///< that arrived when nobody waited any more: dropped
};

}  // namespace v0
}  // namespace tendon
