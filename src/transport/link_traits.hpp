// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tendon::v0::detail {

/// What differs between links and concerns what stands on them, which asks for these and not for
/// the kind of a link. The conformance suite asserts each of them by what the link does.
struct LinkTraits {
  /// A message that was sent is with the peer, whatever happens here; of one that was taken back
  /// the peer has not even heard. Else flush needs an `ack`, and numbers are not used again.
  bool sent_is_delivered = false;
  /// What is under way lies in slots of this side, which are the bound. Else the receiver's memory
  /// is, and it says how many bytes it took.
  bool slots_bound_window = false;
  /// A slot goes over as it is: a loan travels without a copy, anything else is copied into one.
  /// Else the bytes are taken from where they lie.
  bool slots_go_over = false;
  /// has_input() sees what came; else a system call is needed for it.
  bool shows_input = false;
};

}  // namespace tendon::v0::detail
