// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace tendon::v0::detail {

/// The memory of a recv_into, to which the transport writes the next message without another copy.
///
///   state         claim()   complete()  abort()  keep()        take()  drop()  move_away()
///   none          writing   -           -        -             -       -       -
///   writing       -         written     none     kept_writing  -       none    -
///   written       -         -           -        kept          none    none    none
///   kept_writing  -         kept        none     -             -       none    -
///   kept          -         -           -        -             none    none    none
///
/// keep(): the receive has timed out, and the message stays in the pipe, and the memory with it.
///
/// Owns:    that memory, once it is kept; before, the receive does.
/// Threads: the link's receive lock is held for every call.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    claim(): a piece for each leaf, and one for each gap between them.
class Destination {
 public:
  enum class State : std::uint8_t { none, writing, written, kept_writing, kept };

  [[nodiscard]] State state() const noexcept { return state_; }
  /// True while the transport writes there.
  [[nodiscard]] bool is_written_to() const noexcept {
    return state_ == State::writing || state_ == State::kept_writing;
  }
  /// True if the memory of this receive, which has not timed out, belongs to a message.
  [[nodiscard]] bool belongs_to(const TensorDict* receive) const noexcept {
    return receive != nullptr && (state_ == State::writing || state_ == State::written) &&
           claimer_ == receive;
  }

  /// Lends the transport the memory of `receive`, which lives until keep(), take() or drop(): a
  /// piece for each part of a payload in `layout`. False, and nothing is lent: the leaves do not
  /// lie in one piece each, or a message has a destination already.
  [[nodiscard]] bool claim(const TensorDict& receive, const PackedLayout& layout,
                           std::vector<MutableBytes>& pieces);
  /// Notes that all of the message is there; abort() that it will not arrive.
  void complete() noexcept;
  void abort() noexcept;
  void keep();
  /// Hands the message to `receive`, which may be another than it was written for. Returns the
  /// memory in which it lies, unless that is the memory of `receive` itself.
  [[nodiscard]] std::optional<TensorDict> take(const TensorDict* receive);
  /// Drops the message. True: the transport must be told before the memory is released.
  [[nodiscard]] bool drop() noexcept;
  /// Copies the message, packed by `layout`, to other memory. Precondition: written or kept.
  void move_away(Layout layout, MutableBytes copy);

 private:
  void clear() noexcept;

  State state_ = State::none;
  const TensorDict* claimer_ = nullptr;               // writing, written
  std::optional<TensorDict> kept_;                    // kept_writing, kept
  std::array<std::byte, kLeafAlignmentBytes> gap_{};  // padding between leaves is read into it
};

/// Copies the message that filled these leaves, with its own values and none of the caller's.
[[nodiscard]] Result<TensorDict> message_in(const TensorDict& filled,
                                            std::shared_ptr<const Value> values);

}  // namespace tendon::v0::detail
