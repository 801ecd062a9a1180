// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/consolidated.hpp>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/path.hpp>
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

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPadBytes = 8;
constexpr std::string_view kPadding("\0\0\0\0\0\0\0\0", kPadBytes);

Error no_place(ErrorCode code, std::string_view path, std::string_view why) {
  return Error{code, "tensor.consolidated", quote_text(path) + " " + std::string(why)};
}

/// Writes the object of a tree, and on the way where each leaf lies.
class ObjectWriter {
 public:
  Result<void> level(const TreeNode& node, const std::string& prefix) {
    std::string values;
    std::string leaves;
    std::string children;
    for (const auto& entry : node.entries) {
      const std::string path = prefix + escape_name(entry->name);
      if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content)) {
        if (!leaves.empty()) leaves += ", ";
        TENDON_CHECK(append_json_string(leaves, entry->name));
        TENDON_CHECK(add_leaf(leaves, *leaf, path));
      } else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content)) {
        if (is_consolidated_word(entry->name)) {
          return no_place(ErrorCode::invalid_argument, path,
                          "has a name that the file keeps for itself; rename the TensorDict");
        }
        const std::string outer = std::exchange(text, {});
        TENDON_CHECK(level(**child, path + "/"));
        children += ", ";
        TENDON_CHECK(append_json_string(children, entry->name));
        children += ": " + std::exchange(text, outer);
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
    text += "{\"cls\": \"TensorDict\", \"non_tensors\": {" + values + "}, \"leaves\": {" + leaves +
            "}, \"cls_metadata\": {\"device\": null, \"names\": ";
    std::vector<std::string> names = node.dimension_names;
    names.resize(node.batch_size.size());
    TENDON_CHECK(append_json_names(text, names, ", "));
    text += ", \"batch_size\": ";
    append_json_shape(text, node.batch_size, ", ");
    text += ", \"is_locked\": false}" + children + "}";
    return {};
  }

  std::string text;
  std::vector<const Tensor*> tensors;  // in the order of the file

 private:
  Result<void> add_leaf(std::string& leaves, const TreeLeaf& leaf, const std::string& path) {
    const Tensor& tensor = leaf.tensor;
    if (leaf.batching == Batching::exempt) {
      return no_place(ErrorCode::invalid_argument, path,
                      "is exempt from the batch size, which the file cannot say");
    }
    if (tensor.device() != cpu()) {
      return no_place(ErrorCode::unsupported_device, path,
                      "lies on " + to_string(tensor.device()) + "; copy it to the CPU first");
    }
    const auto dtype = memmap_dtype(tensor.dtype());
    if (!dtype) {
      return no_place(
          ErrorCode::unsupported_dtype, path,
          "is " + std::string(to_string(tensor.dtype())) + ", which such files do not have");
    }
    if (begin_ % item_size_bytes(tensor.dtype()) != 0) {
      return no_place(
          ErrorCode::invalid_argument, path,
          "would begin at byte " + std::to_string(begin_) + ", and a reader needs a multiple of " +
              std::to_string(item_size_bytes(tensor.dtype())) + "; set it before the others");
    }
    const std::uint64_t end = begin_ + tensor.size_bytes();
    const std::uint64_t stop = (end + kPadBytes - 1) / kPadBytes * kPadBytes;
    leaves += ": [\"" + *dtype + "\", ";
    append_json_shape(leaves, tensor.shape(), ", ");
    leaves += ", " + std::to_string(begin_) + ", " + std::to_string(stop) + ", " +
              std::to_string(stop - end) + "]";
    tensors.push_back(&tensor);
    begin_ = stop;
    return {};
  }

  std::uint64_t begin_ = 0;  // of the next leaf; all of a TensorDict fit in 63 bits
};

}  // namespace
}  // namespace tendon::v0::detail

namespace tendon::v0 {

Result<void> save_consolidated(const std::filesystem::path& path, const TensorDict& dict) {
  if (dict.values()) TENDON_CHECK(to_json(*dict.values()));
  const detail::TreeOf tree(dict);
  detail::ObjectWriter writer;
  TENDON_CHECK(writer.level(tree.root(), ""));
  TENDON_TRY(file, AtomicFile::create(path));
  for (const Tensor* const tensor : writer.tensors) {
    TENDON_CHECK(detail::append_tensor(file, *tensor));
    const std::uint64_t over = file.written_bytes() % detail::kPadBytes;
    if (over != 0) TENDON_CHECK(file.write(as_bytes(detail::kPadding.substr(over))));
  }
  std::array<std::byte, 8> length{};
  const auto text_bytes = static_cast<std::int64_t>(writer.text.size());
  std::memcpy(length.data(), &text_bytes, length.size());
  const std::array pieces{as_bytes(writer.text), Bytes(length)};
  TENDON_CHECK(file.write(pieces));
  return file.commit();
}

}  // namespace tendon::v0
