// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/direct_batch.hpp"
#include "transport/link.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

/// Whether the program may keep a body in place, or it must be copied.
enum class Lend : std::uint8_t { no, yes };

/// Makes received bodies into values for the program: views of the peer's memory as long as it
/// keeps few of them, else copies.
///
/// Owns:    a count of the bodies that the program has.
/// Threads: thread-safe; may_lend() needs the link's receive lock.
/// Errors:  corrupt_data naming the peer, of this message alone; those of memory.
/// Blocks:  never.
/// Cost:    that of the copy, if one is made.
class BodyReader {
 public:
  /// `where` appears in errors.
  BodyReader(std::string_view where, std::uint32_t max_held) : where_(where), max_held_(max_held) {}

  [[nodiscard]] Lend may_lend(Link& link, const IncomingBody& body) const
      TENDON_REQUIRES(link.receive_mutex());
  /// Returns the first `size_bytes`.
  [[nodiscard]] Result<Storage> bytes_of(IncomingBody& body, std::uint64_t size_bytes,
                                         Lend lend) const;
  /// Reads a message of kind `data`. `schema` is that of its number; null: unknown.
  [[nodiscard]] Result<TensorDict> tensors_of(const Link& link, Incoming& incoming,
                                              std::shared_ptr<const Schema> schema,
                                              Lend lend) const;
  /// The same for a message whose tensors lie on a GPU in memory of the peer. Errors also: those of
  /// that memory.
  [[nodiscard]] Result<DirectMessage> direct_of(const Link& link, Incoming& incoming,
                                                std::shared_ptr<const Schema> schema,
                                                std::shared_ptr<const Placement> placement,
                                                Lend lend) const;

 private:
  [[nodiscard]] Error unreadable(const Link& link, std::string_view what) const;
  /// Null: the message has no values.
  [[nodiscard]] Result<std::shared_ptr<const Value>> values_of(const Link& link,
                                                               const Incoming& incoming) const;

  const std::string_view where_;
  const std::uint32_t max_held_;
  const std::shared_ptr<std::atomic<std::uint32_t>> held_ =
      std::make_shared<std::atomic<std::uint32_t>>(0);
};

}  // namespace tendon::v0::detail
