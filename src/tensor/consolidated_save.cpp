// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/consolidated.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/limits.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/append_tensor.hpp"
#include "tensor/consolidated_words.hpp"
#include "tensor/json.hpp"
#include "tensor/json_shapes.hpp"
#include "tensor/memmap_names.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"
#include "tensor/untrusted.hpp"
#include "tensor/values_limits.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPadBytes = 8;
constexpr std::string_view kPadding("\0\0\0\0\0\0\0\0", kPadBytes);

constexpr std::string_view kSavedFile = "tensor.consolidated";

Error no_place(std::string_view path, std::string_view why) {
  return Error{ErrorCode::invalid_argument, kSavedFile, quote_text(path) + " " + std::string(why)};
}

/// Writes the object of a tree, and notes the place of each leaf.
class ObjectWriter {
 public:
  /// `layout` is that of all leaves, by Layout::tensordict.
  explicit ObjectWriter(const PackedLayout& layout) : layout_(layout) {}

  /// The object of the node with this path.
  Result<std::string> level(const TreeNode& node, const std::string& prefix) {
    std::string values;
    std::string leaves;
    std::string children;
    for (const auto& entry : node.entries) {
      const std::string path = path_below(prefix, entry->name);
      if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content)) {
        if (!leaves.empty()) leaves += ", ";
        TENDON_CHECK(append_json_string(leaves, entry->name));
        TENDON_CHECK(add_leaf(leaves, *leaf, path));
      } else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content)) {
        if (is_consolidated_word(entry->name)) {
          return no_place(path, "has a name that the file keeps for itself; rename the TensorDict");
        }
        TENDON_TRY(inner, level(**child, path));
        children += ", ";
        TENDON_CHECK(append_json_string(children, entry->name));
        children += ": " + inner;
      } else {
        if (!values.empty()) values += ", ";
        TENDON_CHECK(append_json_string(values, entry->name));
        values += ": [";
        TENDON_CHECK(append_json(values, std::get<Value>(entry->content), kMaxDepth));
        values += ", ";
        append_json_shape(values, node.batch_size, ", ");
        values += ", null]";
      }
    }
    std::string text = "{\"cls\": \"TensorDict\", \"non_tensors\": {" + values +
                       "}, \"leaves\": {" + leaves +
                       "}, \"cls_metadata\": {\"device\": null, \"names\": ";
    std::vector<std::string> names = node.dimension_names;
    names.resize(node.batch_size.size());
    TENDON_CHECK(append_json_names(text, names, ", "));
    text += ", \"batch_size\": ";
    append_json_shape(text, node.batch_size, ", ");
    text += ", \"is_locked\": false}" + children + "}";
    return text;
  }

  std::vector<const Tensor*> tensors;  // in the order of the file

 private:
  Result<void> add_leaf(std::string& leaves, const TreeLeaf& leaf, const std::string& path) {
    const Tensor& tensor = leaf.tensor;
    TENDON_CHECK(check_memmap_leaf(leaf, path, kSavedFile));
    const std::uint64_t begin = layout_.offsets[tensors.size()];
    if (begin % item_size_bytes(tensor.dtype()) != 0) {
      return no_place(path, "would begin at byte " + std::to_string(begin) +
                                ", and a reader needs a multiple of " +
                                std::to_string(item_size_bytes(tensor.dtype())) +
                                "; set it before the others");
    }
    const std::uint64_t end = begin + tensor.size_bytes();
    const std::uint64_t stop = (end + kPadBytes - 1) / kPadBytes * kPadBytes;
    leaves += ": [\"" + *memmap_dtype(tensor.dtype()) + "\", ";
    append_json_shape(leaves, tensor.shape(), ", ");
    leaves += ", " + std::to_string(begin) + ", " + std::to_string(stop) + ", " +
              std::to_string(stop - end) + "]";
    tensors.push_back(&tensor);
    return {};
  }

  const PackedLayout& layout_;
};

}  // namespace
}  // namespace tendon::v0::detail

namespace tendon::v0 {

Result<void> save_consolidated(const std::filesystem::path& path, const TensorDict& dict) {
  TENDON_CHECK(detail::check_values_limits(dict));
  const detail::TreeOf tree(dict);
  detail::ObjectWriter writer(dict.schema()->layout(Layout::tensordict));
  TENDON_TRY(text, writer.level(tree.root(), ""));
  TENDON_TRY(file, AtomicFile::create(path));
  for (const Tensor* const tensor : writer.tensors) {
    TENDON_CHECK(detail::append_tensor(file, *tensor));
    const std::uint64_t over = file.written_bytes() % detail::kPadBytes;
    if (over != 0) TENDON_CHECK(file.write(as_bytes(detail::kPadding.substr(over))));
  }
  std::array<std::byte, 8> length{};
  const auto text_bytes = static_cast<std::int64_t>(text.size());
  std::memcpy(length.data(), &text_bytes, length.size());
  const std::array pieces{as_bytes(text), Bytes(length)};
  TENDON_CHECK(file.write(pieces));
  return file.commit();
}

}  // namespace tendon::v0
