// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <string_view>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/memmap.hpp>
#include <utility>
#include <variant>

#include "tensor/append_tensor.hpp"
#include "tensor/json.hpp"
#include "tensor/json_shapes.hpp"
#include "tensor/memmap_names.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"
#include "tensor/untrusted.hpp"
#include "tensor/values_limits.hpp"

namespace tendon::v0 {
namespace {

namespace fs = std::filesystem;
using detail::quote_text;

constexpr std::string_view kSaved = "tensor.memmap";

Result<void> write_file(const fs::path& path, std::string_view text) {
  TENDON_TRY(file, AtomicFile::create(path));
  TENDON_CHECK(file.write(as_bytes(text)));
  return file.commit();
}

Result<void> make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return system_error(kSaved, "mkdir('" + folder.string() + "')", failed.value());
  return {};
}

/// Checks everything that may be refused, before anything is written. `prefix` is the path of the
/// node.
Result<void> check(const detail::TreeNode& node, const std::string& prefix) {
  for (const auto& entry : node.entries) {
    const std::string path = detail::path_below(prefix, entry->name);
    if (detail::is_memmap_word(entry->name)) {
      return Error{ErrorCode::invalid_argument, kSaved,
                   quote_text(path) + ": meta.json keeps this name for itself; rename the entry"};
    }
    if (const auto* leaf = std::get_if<detail::TreeLeaf>(&entry->content)) {
      TENDON_CHECK(detail::check_memmap_leaf(*leaf, path, kSaved));
    } else if (const auto* child =
                   std::get_if<std::unique_ptr<detail::TreeNode>>(&entry->content)) {
      TENDON_CHECK(check(**child, path));
    }
  }
  return {};
}

Result<void> write_value(const fs::path& folder, const Value& value) {
  TENDON_CHECK(make_folder(folder));
  std::string text = "{\"_type\": \"<class 'tensordict.tensorclass.NonTensorData'>\", \"data\": ";
  TENDON_CHECK(detail::append_json(text, value, kMaxDepth));
  text += ", \"_metadata\": null, \"_is_non_tensor\": true}";
  return write_file(folder / detail::kMemmapMeta, text);
}

Result<void> write_node(const fs::path& folder, const detail::TreeNode& node) {
  TENDON_CHECK(make_folder(folder));
  std::string meta = "{";
  for (const auto& entry : node.entries) {
    const std::string name = detail::memmap_file_name(entry->name);
    TENDON_CHECK(detail::append_json_string(meta, entry->name));
    if (const auto* leaf = std::get_if<detail::TreeLeaf>(&entry->content)) {
      const Tensor& tensor = leaf->tensor;
      if (tensor.size_bytes() != 0) {
        TENDON_TRY(file, AtomicFile::create(folder / (name + ".memmap")));
        TENDON_CHECK(detail::append_tensor(file, tensor));
        TENDON_CHECK(file.commit());
      }
      meta += ": {\"device\": \"cpu\", \"shape\": ";
      detail::append_json_shape(meta, tensor.shape(), ", ");
      meta +=
          ", \"dtype\": \"" + *detail::memmap_dtype(tensor.dtype()) + "\", \"is_nested\": false}, ";
    } else if (const auto* child =
                   std::get_if<std::unique_ptr<detail::TreeNode>>(&entry->content)) {
      TENDON_CHECK(write_node(folder / name, **child));
      meta += ": {\"type\": \"TensorDict\"}, ";
    } else {
      TENDON_CHECK(write_value(folder / name, std::get<Value>(entry->content)));
      meta += ": {\"type\": \"NonTensorData\"}, ";
    }
  }
  meta += "\"shape\": ";
  detail::append_json_shape(meta, node.batch_size, ", ");
  meta +=
      ", \"device\": \"cpu\", \"_type\": \"<class 'tensordict._td.TensorDict'>\", "
      "\"_format_version\": 1, \"_class\": \"tensordict:TensorDict\"";
  if (!node.dimension_names.empty()) {
    meta += ", \"_names\": ";
    TENDON_CHECK(detail::append_json_names(meta, node.dimension_names, ", "));
  }
  // Last: a reader that finds it also finds the files that it names.
  return write_file(folder / detail::kMemmapMeta, meta + "}");
}

}  // namespace

Result<void> save_memmap(const std::filesystem::path& folder, const TensorDict& dict) {
  TENDON_CHECK(detail::check_values_limits(dict));
  const detail::TreeOf tree(dict);
  TENDON_CHECK(check(tree.root(), ""));
  return write_node(folder, tree.root());
}

}  // namespace tendon::v0
