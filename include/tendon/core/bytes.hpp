// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tendon {
inline namespace v0 {

/// Memory that another object owns, to be read. It never outlives its owner; a call keeps it after
/// its return only if its comment says so.
using Bytes = std::span<const std::byte>;

/// Memory that another object owns, to be written.
using MutableBytes = std::span<std::byte>;

/// The characters of `text` as bytes; no copy.
inline Bytes as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// `bytes` as characters; no copy, no check of encoding.
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace v0
}  // namespace tendon
