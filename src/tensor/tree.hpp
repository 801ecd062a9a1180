// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <unordered_map>
#include <variant>
#include <vector>

namespace tendon::v0::detail {

struct TreeNode;

struct TreeLeaf {
  Tensor tensor;
  Batching batching = Batching::batched;
};

struct TreeEntry {
  std::string name;
  std::variant<TreeLeaf, std::unique_ptr<TreeNode>, Value> content;

  [[nodiscard]] EntryKind kind() const { return static_cast<EntryKind>(content.index()); }
};

/// Checks the non-tensor values beside a message of this schema: the path of each must lead through
/// TensorDicts of the schema to a free name; else corrupt_data.
[[nodiscard]] Result<void> check_values(const Schema& schema, const Value& values);

/// One level of a TensorDict. Entries keep their address while they exist: the index and the list
/// of leaves point at them.
struct TreeNode {
  Shape batch_size;
  std::vector<std::string> dimension_names;
  std::vector<std::unique_ptr<TreeEntry>> entries;
  std::unordered_map<std::string_view, TreeEntry*> index;

  [[nodiscard]] TreeEntry* find(std::string_view name) const {
    const auto found = index.find(name);
    return found == index.end() ? nullptr : found->second;
  }
  TreeEntry& add(std::string name, decltype(TreeEntry::content) content);
  [[nodiscard]] std::unique_ptr<TreeNode> clone() const;
};

/// The totals that a schema limits, so that a set that would exceed one is refused before it
/// happens.
struct TreeTotals {
  std::uint64_t leaves = 0;
  std::uint64_t nodes = 0;
  std::uint64_t encoding_bytes = 0;
  std::uint64_t paths_bytes = 0;
  std::uint64_t aligned_bytes = 0;  // each leaf rounded up: a lower bound of the aligned layout
};

/// The tree form of a TensorDict, with data that is computed from it once.
struct Tree {
  TreeNode root;
  TreeTotals totals;

  [[nodiscard]] static std::unique_ptr<Tree> from_packed(const PackedView& packed);
  /// A TensorDict of this schema with separate leaves. Errors: those of check_values().
  /// Precondition: `leaves` fit the schema, in its order.
  [[nodiscard]] static Result<TensorDict> of_leaves(std::shared_ptr<const Schema> schema,
                                                    std::span<const Tensor> leaves,
                                                    std::shared_ptr<const Value> values);
  /// Null: `dict` is not packed.
  [[nodiscard]] static std::unique_ptr<Tree> unpacked(const TensorDict& dict) {
    return dict.packed_.schema ? from_packed(dict.packed_) : nullptr;
  }
  [[nodiscard]] std::unique_ptr<Tree> clone() const;

  /// Null: `dict` is packed, or has no entries and no batch size.
  [[nodiscard]] static const Tree* find_of(const TensorDict& dict) { return dict.tree_.get(); }
  /// The leaf itself; touches no shared count. Precondition: `dict` is a tree.
  [[nodiscard]] static const Tensor& leaf_of(const TensorDict& dict, std::size_t index);
  /// The answer of `check` for `dict`, computed once until a leaf changes. Precondition: `dict` is
  /// a tree.
  [[nodiscard]] static Result<void> destination_check(const TensorDict& dict,
                                                      Result<void> (*check)(const TensorDict&));
  /// Sets in `dict` the values of a message with the same leaves. check_values() has accepted them,
  /// so none of them replaces a tensor. Other values stay unless they are in the way: a value where
  /// the message has a TensorDict, a TensorDict without tensors where it has a value.
  /// limit_exceeded when all values together could not be sent. All are set or none.
  [[nodiscard]] static Result<void> merge_values(TensorDict& dict, const Value& values);

  [[nodiscard]] const std::shared_ptr<const Schema>& get_schema() const;
  [[nodiscard]] const std::vector<const Tensor*>& get_leaves() const;
  [[nodiscard]] const std::shared_ptr<const Value>& get_values() const;

  void structure_changed();
  void leaf_changed();
  void values_changed();

 private:
  template <class Leaf>
  [[nodiscard]] static std::unique_ptr<Tree> make(std::shared_ptr<const Schema> schema,
                                                  std::shared_ptr<const Value> values,
                                                  const Leaf& tensor_of);

  // Filled by const calls, perhaps of several threads. A flag is set under the lock once its value
  // is there.
  mutable Mutex mutex_;
  mutable std::atomic<bool> has_schema_ = false;
  mutable std::atomic<bool> has_leaves_ = false;
  mutable std::atomic<bool> has_values_ = false;
  mutable std::atomic<bool> has_destination_ = false;
  mutable std::shared_ptr<const Schema> schema_;
  mutable std::vector<const Tensor*> leaves_;
  mutable std::shared_ptr<const Value> values_;
  mutable Result<void> destination_;
};

/// The tree of a TensorDict in either form, for code that walks through all of it.
///
/// Owns:    a tree of its own if the dict is packed; else it reads that of the dict, which must
///          neither change nor end meanwhile.
/// Threads: as const calls of the dict.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    packed: an allocation an entry.
class TreeOf {
 public:
  explicit TreeOf(const TensorDict& dict) {
    unpacked_ = Tree::unpacked(dict);
    if (unpacked_ != nullptr) {
      root_ = &unpacked_->root;
    } else if (const Tree* tree = Tree::find_of(dict)) {
      root_ = &tree->root;
    }
  }
  [[nodiscard]] const TreeNode& root() const noexcept { return root_ != nullptr ? *root_ : none_; }

 private:
  const TreeNode none_{};
  std::unique_ptr<Tree> unpacked_;
  const TreeNode* root_ = nullptr;
};

}  // namespace tendon::v0::detail
