// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <unordered_map>

#include "core/process_wide.hpp"
#include "tensor/schema_builder.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0 {
namespace {

using detail::quote_text;
using detail::Tree;
using detail::TreeEntry;
using detail::TreeLeaf;
using detail::TreeNode;
using detail::TreeTotals;

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.dict", std::move(detail)};
}

const std::shared_ptr<const Schema>& empty_schema() {
  static constinit detail::MadeOnce<const std::shared_ptr<const Schema>> empty;
  return empty.get([] {
    return std::make_unique<const std::shared_ptr<const Schema>>(
        detail::SchemaBuilder(Shape(), {}).finish().value());
  });
}

// The entry with this path, or nullptr. Names without escapes are looked up without a copy.
TreeEntry* walk(const TreeNode& root, std::string_view path) {
  const TreeNode* node = &root;
  std::string unescaped;
  while (true) {
    const std::size_t slash = path.find('/');
    std::string_view name = path.substr(0, slash);
    if (name.empty()) return nullptr;
    if (name.find('%') != std::string_view::npos) {
      auto names = parse_path(name);
      if (!names) return nullptr;
      unescaped = std::move(names->front());
      name = unescaped;
    }
    TreeEntry* const entry = node->find(name);
    if (entry == nullptr || slash == std::string_view::npos) return entry;
    const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content);
    if (child == nullptr) return nullptr;
    node = child->get();
    path.remove_prefix(slash + 1);
  }
}

// The path as a schema writes it: "%2f" and "%2F" are one name.
std::string canonical(std::string_view path) {
  if (path.find('%') == std::string_view::npos) return std::string(path);
  auto names = parse_path(path);
  if (!names) return std::string(path);
  return format_path(*names).value_or(std::string(path));
}

// The names at the level at which `path` is missing.
std::string names_of_level(const TensorDict& dict, std::string_view path) {
  const std::string whole = canonical(path);
  std::string place;
  for (auto end = whole.find('/'); end != std::string::npos; end = whole.find('/', end + 1)) {
    const auto kind = dict.kind_of(whole.substr(0, end));
    if (!kind) break;
    place = whole.substr(0, end);
    if (*kind != EntryKind::dict)
      return quote_text(place) + " is a " + std::string(to_string(*kind));
  }
  std::vector<std::string> names;
  if (place.empty()) {
    names = dict.keys();
  } else if (const auto level = dict.find_dict(place)) {
    names = level->keys();
  }
  const std::string where = place.empty() ? "the first level" : quote_text(place);
  if (names.empty()) return where + " has no entries";
  constexpr std::size_t kShown = 8;
  std::string text = where + " has ";
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + quote_text(escape_name(names[i]));
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

// Adds the totals of an entry and everything below it, in a dict whose path has `parent_bytes`
// bytes and `depth` names.
Result<void> add_totals(TreeTotals& totals, const TreeEntry& entry, std::size_t parent_bytes,
                        std::size_t depth) {
  const std::size_t bytes = parent_bytes + (depth == 0 ? 0 : 1) + escape_name(entry.name).size();
  if (bytes > kMaxPathBytes || depth + 1 > kMaxDepth) {
    return error(ErrorCode::limit_exceeded,
                 "the path of " + quote_text(entry.name) + " would have " + std::to_string(bytes) +
                     " bytes and " + std::to_string(depth + 1) + " names; legal are up to " +
                     std::to_string(kMaxPathBytes) + " and " + std::to_string(kMaxDepth));
  }
  if (const auto* leaf = std::get_if<TreeLeaf>(&entry.content)) {
    const std::uint64_t size_bytes = leaf->tensor.size_bytes();
    ++totals.leaves;
    totals.encoding_bytes += detail::encoded_leaf_bytes(entry.name, leaf->tensor.shape());
    totals.paths_bytes += bytes;
    if (__builtin_add_overflow(totals.aligned_bytes, size_bytes + detail::padding_bytes(size_bytes),
                               &totals.aligned_bytes)) {
      totals.aligned_bytes = ~std::uint64_t{0};
    }
  } else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry.content)) {
    ++totals.nodes;
    totals.encoding_bytes +=
        detail::encoded_node_bytes(entry.name, (*child)->batch_size, (*child)->dimension_names);
    totals.paths_bytes += bytes;
    for (const auto& below : (*child)->entries)
      TENDON_CHECK(add_totals(totals, *below, bytes, depth + 1));
  }
  return {};
}

Result<void> check_totals(const TreeTotals& totals) {
  const auto check = [](std::uint64_t value, std::uint64_t limit,
                        std::string_view what) -> Result<void> {
    if (value <= limit) return {};
    return error(ErrorCode::limit_exceeded, "the TensorDict would have " + std::to_string(value) +
                                                " " + std::string(what) + "; legal are up to " +
                                                std::to_string(limit));
  };
  TENDON_CHECK(check(totals.leaves, kMaxLeaves, "tensors"));
  TENDON_CHECK(check(totals.nodes, kMaxNodes, "nested TensorDicts"));
  TENDON_CHECK(check(totals.encoding_bytes, kMaxSchemaBytes, "bytes of schema"));
  TENDON_CHECK(check(totals.paths_bytes, kMaxSchemaBytes, "bytes of paths"));
  return check(totals.aligned_bytes, kMaxTensorBytes, "bytes of tensors");
}

TreeTotals totals_of_root(const TreeNode& root) {
  TreeTotals totals;
  totals.nodes = 1;
  totals.encoding_bytes =
      1 + detail::encoded_node_bytes("", root.batch_size, root.dimension_names) - 2;
  return totals;
}

void subtract(TreeTotals& from, const TreeTotals& what) {
  from.leaves -= what.leaves;
  from.nodes -= what.nodes;
  from.encoding_bytes -= what.encoding_bytes;
  from.paths_bytes -= what.paths_bytes;
  from.aligned_bytes -= what.aligned_bytes;
}

bool same_leaf(const TreeLeaf& a, const TreeLeaf& b) {
  return a.tensor.dtype() == b.tensor.dtype() && a.tensor.shape() == b.tensor.shape() &&
         a.batching == b.batching;
}

// The new content, before it is in the tree.
using Content = decltype(TreeEntry::content);

// Whether a value on the path stays, and the new entry is refused, or is replaced.
enum class ValuesOnTheWay { keep, replace };

Result<void> set_entry(Tree& tree, std::string_view path, Content content,
                       ValuesOnTheWay on_the_way = ValuesOnTheWay::keep) {
  TENDON_TRY(names, parse_path(path));
  TreeNode* parent = &tree.root;
  std::size_t known = 0;
  for (; known + 1 < names.size(); ++known) {
    TreeEntry* const entry = parent->find(names[known]);
    if (entry == nullptr) break;
    auto* const child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content);
    if (entry->kind() == EntryKind::value && on_the_way == ValuesOnTheWay::replace) break;
    if (child == nullptr) {
      return error(ErrorCode::invalid_argument, "path " + quote_text(path) + " leads through " +
                                                    quote_text(names[known]) + ", which is a " +
                                                    std::string(to_string(entry->kind())) +
                                                    ", not a TensorDict");
    }
    parent = child->get();
  }
  TreeEntry* const old = parent->find(names[known]);

  if (const auto* leaf = std::get_if<TreeLeaf>(&content)) {
    if (leaf->batching == Batching::batched)
      TENDON_CHECK(detail::check_batch(leaf->tensor.shape(), parent->batch_size, path));
    auto* const old_leaf = old == nullptr ? nullptr : std::get_if<TreeLeaf>(&old->content);
    if (old_leaf != nullptr && same_leaf(*old_leaf, *leaf)) {
      old_leaf->tensor = std::move(std::get<TreeLeaf>(content).tensor);
      tree.leaf_changed();
      return {};
    }
  } else if (const auto* node = std::get_if<std::unique_ptr<TreeNode>>(&content)) {
    TENDON_CHECK(detail::check_batch((*node)->batch_size, parent->batch_size, path));
  } else if (known + 1 == names.size() && (old == nullptr || old->kind() == EntryKind::value)) {
    if (old != nullptr)
      old->content = std::move(content);
    else
      parent->add(std::move(names.back()), std::move(content));
    tree.values_changed();
    return {};
  }

  // The new entry with the dicts above it, apart from the tree until all limits are checked.
  auto entry = std::make_unique<TreeEntry>(TreeEntry{names.back(), std::move(content)});
  for (std::size_t i = names.size() - 1; i-- > known;) {
    auto node = std::make_unique<TreeNode>();
    node->batch_size = parent->batch_size;
    node->index.emplace(entry->name, entry.get());
    node->entries.push_back(std::move(entry));
    entry = std::make_unique<TreeEntry>(TreeEntry{names[i], std::move(node)});
  }
  std::size_t parent_bytes = 0;
  for (std::size_t i = 0; i < known; ++i)
    parent_bytes += escape_name(names[i]).size() + (i == 0 ? 0 : 1);

  TreeTotals totals = tree.totals;
  if (old != nullptr) {
    TreeTotals gone;
    TENDON_CHECK(add_totals(gone, *old, parent_bytes, known));
    subtract(totals, gone);
  }
  TENDON_CHECK(add_totals(totals, *entry, parent_bytes, known));
  TENDON_CHECK(check_totals(totals));

  tree.totals = totals;
  if (old != nullptr)
    old->content = std::move(entry->content);
  else
    parent->add(std::move(entry->name), std::move(entry->content));
  tree.structure_changed();
  return {};
}

void print_name(std::ostream& out, std::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (plain)
    out << name;
  else
    out << quote_text(name);
}

void print(std::ostream& out, const TreeNode& node, std::size_t depth) {
  out << "TensorDict";
  if (!node.batch_size.empty()) {
    out << " [";
    for (std::size_t i = 0; i < node.batch_size.size(); ++i) {
      if (i != 0) out << ", ";
      if (!node.dimension_names.empty() && !node.dimension_names[i].empty()) {
        print_name(out, node.dimension_names[i]);
        out << '=';
      }
      out << node.batch_size[i];
    }
    out << ']';
  }
  out << " {";
  for (const auto& entry : node.entries) {
    out << '\n' << std::string(2 * depth + 2, ' ');
    print_name(out, entry->name);
    out << ": ";
    if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content))
      out << leaf->tensor;
    else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content))
      print(out, **child, depth + 1);
    else
      out << std::get<Value>(entry->content);
  }
  if (!node.entries.empty()) out << '\n' << std::string(2 * depth, ' ');
  out << '}';
}

std::size_t value_count(const TreeNode& node) {
  std::size_t count = 0;
  for (const auto& entry : node.entries) {
    if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content))
      count += value_count(**child);
    else if (entry->kind() == EntryKind::value)
      ++count;
  }
  return count;
}

// True when each of `values` has its place in the tree already, and no other value is there.
bool replaces_all_values(const TreeNode& root, const Value& values) {
  std::size_t replaced = 0;
  for (const auto& [path, value] : values.as_map()) {
    if (const TreeEntry* const old = walk(root, path)) {
      if (old->kind() != EntryKind::value) return false;
      ++replaced;
    } else if (const std::size_t slash = path.rfind('/'); slash != std::string::npos) {
      const TreeEntry* const parent = walk(root, std::string_view(path).substr(0, slash));
      if (parent == nullptr || parent->kind() != EntryKind::dict) return false;
    }
  }
  return replaced == value_count(root);
}

}  // namespace

namespace detail {

Result<void> check_values(const Schema& schema, const Value& values) {
  if (values.kind() != Value::Kind::map) {
    return error(ErrorCode::corrupt_data,
                 "non-tensor data must be a map from path to value, and this is " +
                     std::string(to_string(values.kind())));
  }
  std::unordered_map<std::string_view, int> seen;
  for (const auto& [path, value] : values.as_map()) {
    TENDON_TRY(names, parse_path(path));
    const std::size_t slash = path.rfind('/');
    const std::string_view parent =
        slash == std::string::npos ? std::string_view() : std::string_view(path).substr(0, slash);
    if (canonical(path) != path || !schema.find_node(parent) || schema.find(path) ||
        schema.find_node(path) || !seen.emplace(path, 0).second) {
      return error(ErrorCode::corrupt_data,
                   "the value " + quote_text(path) + " has no place in the schema");
    }
  }
  return {};
}

Result<void> Tree::merge_values(TensorDict& dict, const Value& values) {
  if (dict.tree_ && replaces_all_values(dict.tree_->root, values)) {
    // The new values are exactly the sent ones, and every place exists: nothing can be refused.
    for (const auto& [path, value] : values.as_map()) TENDON_CHECK(dict.try_set(path, value));
    return {};
  }
  TensorDict changed = dict;
  Tree& tree = changed.mutable_tree();
  for (const auto& [path, value] : values.as_map())
    TENDON_CHECK(set_entry(tree, path, value, ValuesOnTheWay::replace));
  // A peer that sends other names each time would fill the memory of the receiver.
  if (const auto& all = changed.values()) TENDON_CHECK(to_json(*all));
  dict = std::move(changed);
  return {};
}

}  // namespace detail

std::string_view to_string(EntryKind kind) {
  switch (kind) {
    case EntryKind::tensor:
      return "tensor";
    case EntryKind::dict:
      return "TensorDict";
    case EntryKind::value:
      return "non-tensor value";
  }
  return "unknown";
}

TensorDict::TensorDict() noexcept = default;
TensorDict::TensorDict(const Shape& batch_size) : TensorDict(batch_size, {}) {}
TensorDict::TensorDict(const Shape& batch_size, std::vector<std::string> dimension_names)
    : tree_(std::make_unique<Tree>()) {
  tree_->root.batch_size = batch_size;
  tree_->root.dimension_names =
      detail::check_dimension_names(batch_size, std::move(dimension_names)).value();
  tree_->totals = totals_of_root(tree_->root);
}
TensorDict::TensorDict(const TensorDict& other)
    : packed_(other.packed_), tree_(other.tree_ ? other.tree_->clone() : nullptr) {}
TensorDict& TensorDict::operator=(const TensorDict& other) {
  if (this != &other) *this = TensorDict(other);
  return *this;
}
TensorDict::TensorDict(TensorDict&& other) noexcept = default;
TensorDict& TensorDict::operator=(TensorDict&& other) noexcept = default;
TensorDict::~TensorDict() = default;

Result<TensorDict> TensorDict::allocate(std::shared_ptr<const Schema> schema) {
  TENDON_TRY(storage, Storage::allocate(schema->layout(Layout::aligned).total_bytes));
  TensorDict dict;
  dict.packed_ = {std::move(schema), std::move(storage), nullptr, Layout::aligned};
  return dict;
}

Tree& TensorDict::mutable_tree() {
  if (packed_.schema) {
    tree_ = Tree::from_packed(packed_);
    packed_ = PackedView();
  } else if (!tree_) {
    tree_ = std::make_unique<Tree>();
    tree_->totals = totals_of_root(tree_->root);
  }
  return *tree_;
}

Result<void> TensorDict::try_set(std::string_view path, Tensor tensor, Batching batching) {
  return set_entry(mutable_tree(), path, TreeLeaf{std::move(tensor), batching});
}

Result<void> TensorDict::try_set(std::string_view path, const TensorDict& dict) {
  // Copied first: `dict` may be this one.
  std::unique_ptr<TreeNode> node;
  if (dict.packed_.schema)
    node = std::make_unique<TreeNode>(std::move(Tree::from_packed(dict.packed_)->root));
  else
    node = dict.tree_ ? dict.tree_->root.clone() : std::make_unique<TreeNode>();
  return set_entry(mutable_tree(), path, std::move(node));
}

Result<void> TensorDict::try_set(std::string_view path, Value value) {
  return set_entry(mutable_tree(), path, std::move(value));
}

Result<void> TensorDict::erase(std::string_view path) {
  const auto missing = [&] {
    return error(ErrorCode::not_found, "there is no entry " + quote_text(path));
  };
  if (!contains(path)) return missing();
  Tree& tree = mutable_tree();
  TENDON_TRY(names, parse_path(path));
  TreeNode* parent = &tree.root;
  std::size_t parent_bytes = 0;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    parent = std::get<std::unique_ptr<TreeNode>>(parent->find(names[i])->content).get();
    parent_bytes += escape_name(names[i]).size() + (i == 0 ? 0 : 1);
  }
  TreeEntry* const entry = parent->find(names.back());
  const auto at = std::find_if(parent->entries.begin(), parent->entries.end(),
                               [&](const auto& other) { return other.get() == entry; });
  TreeTotals gone;
  TENDON_CHECK(add_totals(gone, *entry, parent_bytes, names.size() - 1));
  subtract(tree.totals, gone);
  parent->index.erase(entry->name);
  parent->entries.erase(at);
  tree.structure_changed();
  return {};
}

Result<Tensor> TensorDict::find(std::string_view path) const {
  if (packed_.schema) {
    auto index = packed_.schema->find(path);
    if (!index && path.find('%') != std::string_view::npos)
      index = packed_.schema->find(canonical(path));
    if (index) return leaf(*index);
  } else if (const TreeEntry* entry = tree_ ? walk(tree_->root, path) : nullptr) {
    if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content)) return leaf->tensor;
  }
  return missing(path, EntryKind::tensor);
}

Result<TensorDict> TensorDict::find_dict(std::string_view path) const {
  std::unique_ptr<Tree> unpacked;
  if (packed_.schema && kind_of(path) == EntryKind::dict) unpacked = Tree::from_packed(packed_);
  const Tree* const tree = unpacked ? unpacked.get() : tree_.get();
  if (TreeEntry* const entry = tree != nullptr ? walk(tree->root, path) : nullptr) {
    if (auto* const node = std::get_if<std::unique_ptr<TreeNode>>(&entry->content)) {
      TensorDict dict;
      dict.tree_ = std::make_unique<Tree>();
      dict.tree_->root = unpacked ? std::move(**node) : std::move(*(*node)->clone());
      dict.tree_->totals = totals_of_root(dict.tree_->root);
      for (const auto& below : dict.tree_->root.entries)
        TENDON_CHECK(add_totals(dict.tree_->totals, *below, 0, 0));
      return dict;
    }
  }
  return missing(path, EntryKind::dict);
}

Result<Value> TensorDict::find_value(std::string_view path) const {
  if (packed_.schema) {
    if (packed_.values) {
      if (const Value* value = packed_.values->find(canonical(path))) return *value;
    }
  } else if (const TreeEntry* entry = tree_ ? walk(tree_->root, path) : nullptr) {
    if (const auto* value = std::get_if<Value>(&entry->content)) return *value;
  }
  return missing(path, EntryKind::value);
}

Error TensorDict::missing(std::string_view path, EntryKind wanted) const {
  std::string text =
      "there is no " + std::string(to_string(wanted)) + " " + quote_text(path) + "; ";
  if (const auto kind = kind_of(path)) {
    text += "the entry of this name is a " + std::string(to_string(*kind));
  } else {
    text += names_of_level(*this, path);
  }
  return error(ErrorCode::not_found, std::move(text));
}

std::optional<EntryKind> TensorDict::kind_of(std::string_view path) const {
  if (packed_.schema) {
    const std::string key = canonical(path);
    if (key.empty()) return std::nullopt;
    if (packed_.schema->find(key)) return EntryKind::tensor;
    if (packed_.schema->find_node(key)) return EntryKind::dict;
    if (packed_.values && packed_.values->find(key) != nullptr) return EntryKind::value;
    return std::nullopt;
  }
  const TreeEntry* const entry = tree_ ? walk(tree_->root, path) : nullptr;
  if (entry == nullptr) return std::nullopt;
  return entry->kind();
}

Shape TensorDict::batch_size() const {
  if (packed_.schema) return packed_.schema->nodes()[0].batch_size;
  return tree_ ? tree_->root.batch_size : Shape();
}

std::vector<std::string> TensorDict::dimension_names() const {
  if (packed_.schema) return packed_.schema->nodes()[0].dimension_names;
  return tree_ ? tree_->root.dimension_names : std::vector<std::string>();
}

std::vector<std::string> TensorDict::keys() const {
  std::vector<std::string> names;
  const auto add = [&](std::string_view path) {
    names.push_back(std::move(parse_path(path).value().front()));
  };
  if (packed_.schema) {
    const Schema& schema = *packed_.schema;
    for (const SchemaEntry& entry : schema.nodes()[0].entries) {
      add(entry.kind == SchemaEntry::Kind::leaf ? schema.leaves()[entry.index].path
                                                : schema.nodes()[entry.index].path);
    }
    if (packed_.values) {
      for (const auto& [path, value] : packed_.values->as_map())
        if (path.find('/') == std::string::npos) add(path);
    }
  } else if (tree_) {
    for (const auto& entry : tree_->root.entries) names.push_back(entry->name);
  }
  return names;
}

bool TensorDict::empty() const {
  if (packed_.schema) return packed_.schema->nodes()[0].entries.empty() && !packed_.values;
  return !tree_ || tree_->root.entries.empty();
}

std::size_t TensorDict::leaf_count() const {
  if (packed_.schema) return packed_.schema->leaves().size();
  return tree_ ? tree_->totals.leaves : 0;
}

Tensor TensorDict::leaf(std::size_t index) const {
  if (!packed_.schema) return *tree_->get_leaves()[index];
  const SchemaLeaf& leaf = packed_.schema->leaves()[index];
  return Tensor::view(packed_.storage, packed_.schema->layout(packed_.layout).offsets[index],
                      leaf.dtype, leaf.shape)
      .value();
}

const std::string& TensorDict::leaf_path(std::size_t index) const {
  return schema()->leaves()[index].path;
}

std::uint64_t TensorDict::size_bytes() const { return schema()->size_bytes(); }

const std::shared_ptr<const Schema>& TensorDict::schema() const {
  if (packed_.schema) return packed_.schema;
  return tree_ ? tree_->get_schema() : empty_schema();
}

const std::shared_ptr<const Value>& TensorDict::values() const {
  return tree_ ? tree_->get_values() : packed_.values;
}

bool bitwise_equal(const TensorDict& a, const TensorDict& b) {
  if (*a.schema() != *b.schema()) return false;
  for (std::size_t i = 0; i < a.leaf_count(); ++i)
    if (!bitwise_equal(a.leaf(i), b.leaf(i))) return false;
  const Value* const left = a.values().get();
  const Value* const right = b.values().get();
  if (left == nullptr || right == nullptr) return left == right;
  if (left->as_map().size() != right->as_map().size()) return false;
  std::unordered_map<std::string_view, const Value*> by_path;
  for (const auto& [path, value] : left->as_map()) by_path.emplace(path, &value);
  return std::all_of(right->as_map().begin(), right->as_map().end(), [&](const auto& entry) {
    const auto found = by_path.find(entry.first);
    return found != by_path.end() && *found->second == entry.second;
  });
}

std::ostream& operator<<(std::ostream& out, const TensorDict& dict) {
  if (dict.packed_.schema) {
    print(out, Tree::from_packed(dict.packed_)->root, 0);
  } else if (dict.tree_) {
    print(out, dict.tree_->root, 0);
  } else {
    print(out, TreeNode(), 0);
  }
  return out;
}

}  // namespace tendon::v0
