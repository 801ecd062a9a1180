// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Cuts the control lane's byte stream into descriptors and their inline bodies. Uses no sockets
/// and keeps no state beyond unread bytes: the product, the tests and the fuzzer run the same code.
class ControlParser {
 public:
  struct Message {
    Descriptor descriptor;
    Bytes inline_body;  ///< lies in the parser's buffer; valid until room() is called
  };

  /// Refuses messages of more than `cap_bytes`.
  explicit ControlParser(std::uint64_t cap_bytes);

  /// Returns where the next received bytes belong. Never empty after next() found nothing.
  [[nodiscard]] MutableBytes room();
  void on_received(std::size_t size_bytes) { end_ += size_bytes; }
  /// Returns the next complete message, or nothing if more bytes must arrive. Errors:
  /// protocol_violation.
  [[nodiscard]] Result<std::optional<Message>> next();
  /// Counts the bytes of an incomplete message.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return end_ - begin_; }

  /// Holds many small messages, and the largest one behind them, so that one system call reads
  /// them.
  static constexpr std::size_t kBufferBytes = 128 * 1024;

 private:
  const std::uint64_t cap_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// "data message {pipe 3, sequence 9}", for errors.
[[nodiscard]] std::string describe(const Descriptor& descriptor);

}  // namespace tendon::v0::detail
