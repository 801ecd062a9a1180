// SPDX-License-Identifier: Apache-2.0
// How the elements of a TensorDict lie in memory: see packed.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/memory/device.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon {
inline namespace v0 {

/// The place of a leaf's elements, for code that copies them: it touches no shared count. Valid
/// while the TensorDict is neither changed nor destroyed.
struct LeafView {
  const std::byte* data;     ///< element [0, 0, ...]
  std::uint64_t size_bytes;  ///< without gaps
  bool contiguous;
  Device device = cpu();
};

/// The packed form of a TensorDict: all leaves in one run of bytes.
struct PackedView {
  std::shared_ptr<const Schema> schema;
  /// At least schema->layout(layout).total_bytes; leaf i starts at layout(layout).offsets[i].
  Storage storage;
  /// nullptr, or a map from path to non-tensor value.
  std::shared_ptr<const Value> values;
  Layout layout = Layout::aligned;
};

}  // namespace v0
}  // namespace tendon
