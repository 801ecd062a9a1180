// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/shape.hpp>
#include <unordered_map>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
class SchemaBuilder;
}

/// Whether the first dimensions of a leaf must be the batch size of its TensorDict.
enum class Batching : std::uint8_t { batched, exempt };

/// One tensor of a schema.
struct SchemaLeaf {
  std::string path;
  DType dtype = DType::u8;
  Shape shape;
  Batching batching = Batching::batched;
  std::uint64_t size_bytes = 0;
};

/// An entry of a node: the index of a leaf or of another node.
struct SchemaEntry {
  enum class Kind : std::uint8_t { leaf, node } kind;
  std::uint32_t index;
};

/// One TensorDict of a schema; the root has the path "".
struct SchemaNode {
  std::string path;
  Shape batch_size;
  /// One name for each batch dimension ("" for an unnamed one), or empty when none is named.
  std::vector<std::string> dimension_names;
  std::vector<SchemaEntry> entries;
};

/// The first 16 bytes of the SHA-256 of a schema's encoding.
struct SchemaHash {
  std::array<std::byte, 16> bytes{};
  friend bool operator==(const SchemaHash&, const SchemaHash&) = default;
  friend auto operator<=>(const SchemaHash&, const SchemaHash&) = default;
};
/// 32 hexadecimal digits.
[[nodiscard]] TENDON_API std::string to_string(const SchemaHash& hash);

/// One leaf for Schema::make.
struct LeafSpec {
  std::string path;
  DType dtype;
  Shape shape;
};

/// The structure of a TensorDict: the ordered leaves with dtype and shape, the tree that they form,
/// its batch sizes and the names of their dimensions. It has no strides, device, place in memory or
/// non-tensor data.
///
/// Example:
///   const auto schema = Schema::make({{"obs/image", DType::u8, {3, 8, 8}},
///                                     {"reward", DType::f32, {}}}).value();
///   for (const SchemaLeaf& leaf : schema->leaves()) std::cout << leaf.path << '\n';
///   TensorDict empty = TensorDict::allocate(schema).value();
///   if (*batch.schema() != *schema)
///     std::cerr << describe_difference(*schema, *batch.schema()) << '\n';
///
/// Owns:    its tables; held by shared_ptr, never changed once made.
/// Threads: safe everywhere.
/// Errors:  decode(): corrupt_data, limit_exceeded, unsupported_dtype, version_mismatch.
/// Blocks:  never.
/// Cost:    made once; find is one hash lookup without allocation.
class TENDON_API Schema {
 public:
  /// Makes a schema from leaves alone; nodes above them have no batch size.
  /// `Schema::make({{"image", DType::u8, {3, 8, 8}}})`.
  [[nodiscard]] static Result<std::shared_ptr<const Schema>> make(std::span<const LeafSpec> leaves);
  [[nodiscard]] static Result<std::shared_ptr<const Schema>> make(
      std::initializer_list<LeafSpec> leaves) {
    return make(std::span<const LeafSpec>(leaves.begin(), leaves.size()));
  }
  /// Reads the bytes of encoding(). They are not trusted: every length is compared with the
  /// remaining bytes before it is used, and every limit holds. Every byte of the format:
  /// docs/protocol.md, "Schema".
  [[nodiscard]] static Result<std::shared_ptr<const Schema>> decode(Bytes encoding);

  /// All leaves, depth first, in the order of insertion.
  [[nodiscard]] std::span<const SchemaLeaf> leaves() const noexcept { return leaves_; }
  /// All nodes, depth first; nodes()[0] is the root.
  [[nodiscard]] std::span<const SchemaNode> nodes() const noexcept { return nodes_; }
  /// The index of the leaf with this path, in the form of format_path().
  [[nodiscard]] std::optional<std::size_t> find(std::string_view path) const noexcept;
  /// The index of the node with this path; "" is the root.
  [[nodiscard]] std::optional<std::size_t> find_node(std::string_view path) const noexcept;
  /// The canonical encoding: equal schemas, and only they, have equal encodings.
  [[nodiscard]] Bytes encoding() const noexcept { return encoding_; }
  [[nodiscard]] const SchemaHash& hash() const noexcept { return hash_; }
  /// Bytes of all elements, without padding.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The place of each leaf under this layout; computed once, then kept.
  [[nodiscard]] const PackedLayout& layout(Layout layout) const;

  friend TENDON_API bool operator==(const Schema& a, const Schema& b) noexcept;

  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;
  ~Schema();

 private:
  friend class detail::SchemaBuilder;
  Schema();

  std::vector<SchemaLeaf> leaves_;
  std::vector<SchemaNode> nodes_;
  std::unordered_map<std::string_view, SchemaEntry> index_;  // views of the paths below
  std::vector<std::byte> encoding_;
  SchemaHash hash_;
  std::uint64_t size_bytes_ = 0;
  PackedLayout aligned_;
  // The others are computed at their first use.
  mutable std::once_flag safetensors_once_;
  mutable PackedLayout safetensors_;
  mutable std::once_flag tensordict_once_;
  mutable PackedLayout tensordict_;
};

/// Describes the first difference of `other` from `expected`, in words; empty when they are equal:
/// "leaf 'obs' has shape [4, 3], expected [4, 2]".
[[nodiscard]] TENDON_API std::string describe_difference(const Schema& expected,
                                                         const Schema& other);

}  // namespace v0
}  // namespace tendon
