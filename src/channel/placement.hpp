// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "cuda/uuid.hpp"
#include "transport/device_offers.hpp"

namespace tendon::v0::detail {

/// The leaves of a batch that its sender has on a GPU, and the GPU. Null stands for a batch in host
/// memory alone.
///
/// Owns:    a byte for each leaf.
/// Threads: a value.
/// Errors:  read(): corrupt_data, and unsupported_device for leaves of two GPUs; their texts follow
///          the peer's name.
/// Blocks:  never.
/// Cost:    a look at each leaf.
struct Placement {
  /// As on the wire, in the order of the schema: 0 in host memory, else 1 + the number of the GPU
  /// in the offers of its sender.
  std::vector<std::uint8_t> leaves;
  cuda::Uuid gpu{};

  [[nodiscard]] bool is_on_gpu(std::size_t leaf) const noexcept { return leaves[leaf] != 0; }
  [[nodiscard]] bool is_all_on_gpu() const noexcept;
  friend bool operator==(const Placement&, const Placement&) = default;

  /// The same for a peer that knows the GPU by `number`.
  [[nodiscard]] static std::shared_ptr<const Placement> numbered(
      const std::shared_ptr<const Placement>& placement, std::uint32_t number);

  /// Reads a peer's placement for a schema of so many leaves.
  [[nodiscard]] static Result<std::shared_ptr<const Placement>> read(Bytes said,
                                                                     std::size_t leaf_count,
                                                                     const DeviceOffers& offers);
};

}  // namespace tendon::v0::detail
