// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/schema.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Bytes that a leaf or a node adds to a schema's encoding, its name included.
[[nodiscard]] std::size_t encoded_leaf_bytes(std::string_view name, const Shape& shape);
[[nodiscard]] std::size_t encoded_node_bytes(std::string_view name, const Shape& batch_size,
                                             const std::vector<std::string>& dimension_names);

/// The padding before a leaf in the aligned layout; `end + result` is its offset.
[[nodiscard]] constexpr std::uint64_t padding_bytes(std::uint64_t end) {
  return (kLeafAlignmentBytes - end % kLeafAlignmentBytes) % kLeafAlignmentBytes;
}

/// Names for batch dimensions in a schema's form: none at all when every one is "".
/// invalid_argument unless there is one for each dimension, each UTF-8 and not too long.
[[nodiscard]] Result<std::vector<std::string>> check_dimension_names(
    const Shape& batch_size, std::vector<std::string> names);
/// invalid_argument unless `shape` starts with `batch_size`; `what` names the entry.
[[nodiscard]] Result<void> check_batch(const Shape& shape, const Shape& batch_size,
                                       std::string_view what);

/// Makes a Schema from entries, depth first. The only place where an encoding is written and where
/// the limits of a schema are checked. Broken rules are invalid_argument, too much is
/// limit_exceeded.
class SchemaBuilder {
 public:
  SchemaBuilder(const Shape& batch_size, std::vector<std::string> dimension_names);

  [[nodiscard]] Result<void> add_leaf(std::string_view name, DType dtype, const Shape& shape,
                                      Batching batching);
  /// Puts later entries into this node, until end_node().
  [[nodiscard]] Result<void> begin_node(std::string_view name, const Shape& batch_size,
                                        std::vector<std::string> dimension_names);
  void end_node();
  /// Call it after end_node() for every begin_node().
  [[nodiscard]] Result<std::shared_ptr<const Schema>> finish() &&;

 private:
  struct OpenNode {
    std::uint32_t index;
    std::size_t count_at;  // of its number of entries in the encoding
    std::size_t path_bytes;
  };
  [[nodiscard]] Result<void> add_name(std::string_view name);
  [[nodiscard]] Result<void> open(const Shape& batch_size, std::vector<std::string> names);
  void put_shape(const Shape& shape);

  std::shared_ptr<Schema> schema_;
  std::vector<OpenNode> open_;
  std::string path_;
  std::uint64_t all_paths_bytes_ = 0;
  Result<void> root_;
};

}  // namespace tendon::v0::detail
