// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Cuts the control lane's byte stream into descriptors and their inline bodies. No sockets, no
/// state beyond unread bytes: the product, the tests and the fuzzer run the same code.
class ControlParser {
 public:
  struct Message {
    Descriptor descriptor;
    Bytes inline_body;  ///< lies in the parser's buffer; valid until room() is called
  };

  /// Refuses messages of more than `cap_bytes`.
  explicit ControlParser(std::uint64_t cap_bytes);

  /// Where the next received bytes go. Never empty after next() found nothing.
  [[nodiscard]] MutableBytes room();
  void on_received(std::size_t size_bytes) { end_ += size_bytes; }
  /// The next complete message, or nothing until more bytes have come. Errors: protocol_violation.
  [[nodiscard]] Result<std::optional<Message>> next();
  /// Bytes of a message that is not complete.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return end_ - begin_; }

  /// Many small messages a system call, and room for the largest one behind them.
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
