// SPDX-License-Identifier: Apache-2.0
#include "tensor/tree.hpp"

#include <tendon/tensor/path.hpp>
#include <utility>

#include "tensor/schema_builder.hpp"

namespace tendon::v0::detail {
namespace {

void build(SchemaBuilder& builder, const TreeNode& node) {
  for (const auto& entry : node.entries) {
    if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content)) {
      builder.add_leaf(entry->name, leaf->tensor.dtype(), leaf->tensor.shape(), leaf->batching)
          .value();
    } else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content)) {
      builder.begin_node(entry->name, (*child)->batch_size, (*child)->dimension_names).value();
      build(builder, **child);
      builder.end_node();
    }
  }
}

void collect_leaves(const TreeNode& node, std::vector<const Tensor*>& leaves) {
  for (const auto& entry : node.entries) {
    if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content))
      leaves.push_back(&leaf->tensor);
    else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content))
      collect_leaves(**child, leaves);
  }
}

void collect_values(const TreeNode& node, const std::string& prefix, Value::Map& values) {
  for (const auto& entry : node.entries) {
    if (const auto* value = std::get_if<Value>(&entry->content))
      values.emplace_back(prefix + escape_name(entry->name), *value);
    else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content))
      collect_values(**child, prefix + escape_name(entry->name) + "/", values);
  }
}

std::string last_name(std::string_view path) {
  // The path is a schema's: it was checked when the schema was made.
  return std::move(parse_path(path).value().back());
}

template <class Leaf>
void fill(TreeNode& node, TreeTotals& totals, const Schema& schema, std::size_t index,
          const Leaf& tensor_of) {
  const SchemaNode& from = schema.nodes()[index];
  node.batch_size = from.batch_size;
  node.dimension_names = from.dimension_names;
  for (const SchemaEntry& entry : from.entries) {
    if (entry.kind == SchemaEntry::Kind::leaf) {
      const SchemaLeaf& leaf = schema.leaves()[entry.index];
      node.add(last_name(leaf.path), TreeLeaf{tensor_of(entry.index), leaf.batching});
      totals.aligned_bytes += leaf.size_bytes + padding_bytes(leaf.size_bytes);
      totals.paths_bytes += leaf.path.size();
      ++totals.leaves;
    } else {
      auto child = std::make_unique<TreeNode>();
      fill(*child, totals, schema, entry.index, tensor_of);
      node.add(last_name(schema.nodes()[entry.index].path), std::move(child));
      totals.paths_bytes += schema.nodes()[entry.index].path.size();
    }
  }
  ++totals.nodes;
}

}  // namespace

TreeEntry& TreeNode::add(std::string name, decltype(TreeEntry::content) content) {
  auto entry = std::make_unique<TreeEntry>(TreeEntry{std::move(name), std::move(content)});
  TreeEntry& added = *entry;
  entries.push_back(std::move(entry));
  index.emplace(added.name, &added);
  return added;
}

std::unique_ptr<TreeNode> TreeNode::clone() const {
  auto copy = std::make_unique<TreeNode>();
  copy->batch_size = batch_size;
  copy->dimension_names = dimension_names;
  copy->entries.reserve(entries.size());
  copy->index.reserve(entries.size());
  for (const auto& entry : entries) {
    if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content))
      copy->add(entry->name, *leaf);
    else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content))
      copy->add(entry->name, (*child)->clone());
    else
      copy->add(entry->name, std::get<Value>(entry->content));
  }
  return copy;
}

template <class Leaf>
std::unique_ptr<Tree> Tree::make(std::shared_ptr<const Schema> schema,
                                 std::shared_ptr<const Value> values, const Leaf& tensor_of) {
  auto tree = std::make_unique<Tree>();
  fill(tree->root, tree->totals, *schema, 0, tensor_of);
  tree->totals.encoding_bytes = schema->encoding().size();
  tree->schema_ = std::move(schema);
  tree->has_schema_ = true;
  if (values != nullptr) {
    for (const auto& [path, value] : values->as_map()) {
      // check_values() has checked that every value has a dict.
      const auto names = parse_path(path).value();
      TreeNode* node = &tree->root;
      for (std::size_t i = 0; i + 1 < names.size(); ++i)
        node = std::get<std::unique_ptr<TreeNode>>(node->find(names[i])->content).get();
      node->add(names.back(), value);
    }
    tree->values_ = std::move(values);
    tree->has_values_ = true;
  }
  return tree;
}

std::unique_ptr<Tree> Tree::from_packed(const PackedView& packed) {
  const PackedLayout& layout = packed.schema->layout(packed.layout);
  return make(packed.schema, packed.values, [&](std::size_t i) {
    const SchemaLeaf& leaf = packed.schema->leaves()[i];
    return Tensor::view(packed.storage, layout.offsets[i], leaf.dtype, leaf.shape).value();
  });
}

Result<TensorDict> Tree::of_leaves(std::shared_ptr<const Schema> schema,
                                   std::span<const Tensor> leaves,
                                   std::shared_ptr<const Value> values) {
  if (values != nullptr) TENDON_CHECK(check_values(*schema, *values));
  TensorDict dict;
  dict.tree_ = make(std::move(schema), std::move(values), [&](std::size_t i) { return leaves[i]; });
  return dict;
}

std::unique_ptr<Tree> Tree::clone() const {
  auto copy = std::make_unique<Tree>();
  copy->root = std::move(*root.clone());
  copy->totals = totals;
  const Lock lock(mutex_);
  copy->schema_ = schema_;
  copy->has_schema_ = has_schema_.load();
  copy->values_ = values_;
  copy->has_values_ = has_values_.load();
  return copy;
}

const Tensor& Tree::leaf_of(const TensorDict& dict, std::size_t index) {
  return *dict.tree_->get_leaves()[index];
}

Result<void> Tree::destination_check(const TensorDict& dict,
                                     Result<void> (*check)(const TensorDict&)) {
  if (!dict.tree_) return {};
  const Tree& tree = *dict.tree_;
  if (!tree.has_destination_.load(std::memory_order_acquire)) {
    // Computed outside the lock: it reads leaves and paths, which take it.
    Result<void> answer = check(dict);
    const Lock lock(tree.mutex_);
    // Another thread may have been faster, and its answer may be read by now.
    if (!tree.has_destination_.load(std::memory_order_relaxed)) {
      tree.destination_ = std::move(answer);
      tree.has_destination_.store(true, std::memory_order_release);
    }
  }
  if (tree.destination_.has_value()) return {};
  return tree.destination_;
}

const std::shared_ptr<const Schema>& Tree::get_schema() const {
  if (has_schema_.load(std::memory_order_acquire)) return schema_;
  const Lock lock(mutex_);
  if (!has_schema_.load(std::memory_order_relaxed)) {
    SchemaBuilder builder(root.batch_size, root.dimension_names);
    build(builder, root);
    schema_ = std::move(builder).finish().value();
    has_schema_.store(true, std::memory_order_release);
  }
  return schema_;
}

const std::vector<const Tensor*>& Tree::get_leaves() const {
  if (has_leaves_.load(std::memory_order_acquire)) return leaves_;
  const Lock lock(mutex_);
  if (!has_leaves_.load(std::memory_order_relaxed)) {
    leaves_.clear();
    leaves_.reserve(totals.leaves);
    collect_leaves(root, leaves_);
    has_leaves_.store(true, std::memory_order_release);
  }
  return leaves_;
}

const std::shared_ptr<const Value>& Tree::get_values() const {
  if (has_values_.load(std::memory_order_acquire)) return values_;
  const Lock lock(mutex_);
  if (!has_values_.load(std::memory_order_relaxed)) {
    Value::Map values;
    collect_values(root, "", values);
    values_ = values.empty() ? nullptr : std::make_shared<const Value>(std::move(values));
    has_values_.store(true, std::memory_order_release);
  }
  return values_;
}

void Tree::structure_changed() {
  has_schema_ = false;
  has_leaves_ = false;
  has_values_ = false;
  has_destination_ = false;
}

void Tree::leaf_changed() { has_destination_ = false; }
void Tree::values_changed() { has_values_ = false; }

}  // namespace tendon::v0::detail
