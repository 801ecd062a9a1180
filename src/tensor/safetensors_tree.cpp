// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors_tree.hpp"

#include <algorithm>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/path.hpp>
#include <unordered_set>

#include "tensor/json.hpp"
#include "tensor/json_shapes.hpp"
#include "tensor/text.hpp"
#include "tensor/tree.hpp"
#include "tensor/untrusted.hpp"
#include "tensor/values_limits.hpp"

namespace tendon::v0::detail {
namespace {

// Three levels of JSON a level of the tree ("keys", the key, "td"), the document itself, and
// values.
constexpr JsonLimits kStructureLimits{kMaxFileHeaderBytes, 4 * kMaxDepth + 8, 2u << 20};
constexpr std::int64_t kStructureVersion = 1;

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.safetensors", std::move(detail)};
}

Error broken(std::string_view path, std::string_view what) {
  return error(ErrorCode::corrupt_data, "the tensordict structure of the file is broken at " +
                                            quote_text(path) + ": " + std::string(what));
}

Error at(std::string_view path, const Error& failed) {
  Error whole = broken(path, failed.detail);
  whole.code = failed.code;
  return whole;
}

class StructureReader {
 public:
  StructureReader(const SafetensorsHeader& header, const Storage& storage, BuiltTensors& built)
      : header_(header), storage_(storage), built_(built) {
    for (std::size_t i = 0; i < header.entries.size(); ++i)
      entries_.emplace(header.entries[i].name, i);
  }

  Result<void> read(std::string_view json) {
    TENDON_TRY(document, parse_json_value(json, "__metadata__['tensordict']", kStructureLimits));
    const Value* const version = document.find("version");
    const Value* const root = document.find("root");
    if (version == nullptr || root == nullptr) return broken("", "no version or no root");
    if (*version != Value(kStructureVersion)) {
      return error(ErrorCode::version_mismatch,
                   "the tensordict structure of the file has another version than 1");
    }
    TENDON_TRY(dict, node(*root, ""));
    built_.dict = std::move(dict);
    TENDON_CHECK(entries(*root, ""));
    if (used_.size() == header_.entries.size()) return {};
    for (const SafetensorsEntry& entry : header_.entries) {
      if (!used_.contains(entry.name)) return broken(entry.name, "this tensor is not named in it");
    }
    return {};
  }

 private:
  // The TensorDict of a level without its entries.
  Result<TensorDict> node(const Value& level, const std::string& path) {
    const Value* const batch = level.find("batch_size");
    if (batch == nullptr) return broken(path, "no batch_size");
    auto shape = shape_of_json(*batch, "batch_size");
    if (!shape) return at(path, shape.error());
    std::vector<std::string> names;
    if (const Value* const given = level.find("names")) {
      auto read = names_of_json(*given, shape->size());
      if (!read) return at(path, read.error());
      names = *std::move(read);
    }
    return TensorDict(*shape, std::move(names));
  }

  Result<void> entries(const Value& level, const std::string& path) {
    const Value* const keys = level.find("keys");
    if (keys == nullptr || keys->kind() != Value::Kind::map) return broken(path, "no keys");
    for (const auto& [key, entry] : keys->as_map()) {
      const std::string below = path_below(path, key);
      if (const Value* const name = entry.find("tensor")) {
        TENDON_CHECK(tensor(below, entry, *name));
      } else if (const Value* const value = entry.find("non_tensor")) {
        TENDON_CHECK(set(below, *value));
      } else if (const Value* const child = entry.find("td")) {
        TENDON_TRY(dict, node(*child, below));
        TENDON_CHECK(set(below, dict));
        TENDON_CHECK(entries(*child, below));
      } else {
        return broken(below, "neither tensor nor non_tensor nor td");
      }
    }
    return {};
  }

  Result<void> tensor(const std::string& path, const Value& entry, const Value& name) {
    if (name.kind() != Value::Kind::string) return broken(path, "the name of a tensor is no text");
    const auto found = entries_.find(name.as_string());
    if (found == entries_.end())
      return broken(path, "there is no tensor " + quote_text(name.as_string()));
    const SafetensorsEntry& from = header_.entries[found->second];
    TENDON_TRY(view, Tensor::view(storage_, header_.size_bytes + from.begin_bytes, from.dtype,
                                  from.shape));
    const Value* const unbatched = entry.find("unbatched");
    if (unbatched != nullptr && unbatched->kind() != Value::Kind::boolean)
      return broken(path, "unbatched is no bool");
    const bool exempt = unbatched != nullptr && unbatched->as_bool();
    auto done =
        built_.dict.try_set(path, std::move(view), exempt ? Batching::exempt : Batching::batched);
    if (!done) return from_outside(std::move(done).error());
    used_.insert(from.name);
    built_.entry_of_path.emplace(path, found->second);
    return {};
  }

  template <class Content>
  Result<void> set(const std::string& path, const Content& content) {
    auto done = built_.dict.try_set(path, content);
    if (!done) return from_outside(std::move(done).error());
    return {};
  }

  const SafetensorsHeader& header_;
  const Storage& storage_;
  BuiltTensors& built_;
  std::unordered_map<std::string_view, std::size_t> entries_;
  std::unordered_set<std::string_view> used_;
};

Result<void> build_flat(const SafetensorsHeader& header, const Storage& storage,
                        BuiltTensors& built) {
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[i];
    const std::string path = escape_name(entry.name);
    TENDON_TRY(view, Tensor::view(storage, header.size_bytes + entry.begin_bytes, entry.dtype,
                                  entry.shape));
    auto done = built.dict.try_set(path, std::move(view));
    if (!done) return from_outside(std::move(done).error());
    built.entry_of_path.emplace(path, i);
  }
  return {};
}

// Writes the levels of a tree and names its leaves on the way, in the schema's order.
class StructureWriter {
 public:
  Result<void> level(const TreeNode& node, const std::string& prefix) {
    names.structure += "{\"batch_size\":";
    append_json_shape(names.structure, node.batch_size, ",");
    names.structure += ",\"names\":";
    if (node.dimension_names.empty())
      names.structure += "null";
    else
      TENDON_CHECK(append_json_names(names.structure, node.dimension_names, ","));
    names.structure += ",\"keys\":{";
    for (const auto& entry : node.entries) {
      if (entry != node.entries.front()) names.structure += ',';
      TENDON_CHECK(append_json_string(names.structure, entry->name));
      names.structure += ':';
      const std::string joined = prefix + entry->name;
      if (const auto* leaf = std::get_if<TreeLeaf>(&entry->content)) {
        names.structure += "{\"tensor\":";
        names.tensor_names.push_back(unique(joined));
        TENDON_CHECK(append_json_string(names.structure, names.tensor_names.back()));
        if (leaf->batching == Batching::exempt) names.structure += ",\"unbatched\":true";
      } else if (const auto* child = std::get_if<std::unique_ptr<TreeNode>>(&entry->content)) {
        names.structure += "{\"td\":";
        TENDON_CHECK(level(**child, joined + "."));
      } else {
        names.structure += "{\"non_tensor\":";
        TENDON_CHECK(append_json(names.structure, std::get<Value>(entry->content), kMaxDepth));
      }
      names.structure += '}';
    }
    names.structure += "}}";
    return {};
  }

  FileNames names;

 private:
  // "a.b" and ("a", "b") have one joined name: the later gets another, which the structure maps
  // back.
  std::string unique(const std::string& joined) {
    std::string name = joined;
    for (int count = 2; !used_.insert(name).second || name == "__metadata__"; ++count)
      name = joined + "#" + std::to_string(count);
    return name;
  }

  std::unordered_set<std::string> used_;
};

bool needs_structure(const TensorDict& dict) {
  const Schema& schema = *dict.schema();
  return schema.nodes().size() > 1 || !schema.nodes()[0].batch_size.empty() || dict.values() ||
         std::any_of(schema.leaves().begin(), schema.leaves().end(),
                     [](const SchemaLeaf& leaf) { return leaf.batching == Batching::exempt; });
}

}  // namespace

Result<BuiltTensors> build_tensors(const SafetensorsHeader& header, const Storage& storage) {
  BuiltTensors built;
  const auto found = std::find_if(header.metadata.begin(), header.metadata.end(),
                                  [](const auto& entry) { return entry.first == kStructureKey; });
  if (found == header.metadata.end()) {
    TENDON_CHECK(build_flat(header, storage, built));
  } else {
    TENDON_CHECK(StructureReader(header, storage, built).read(found->second));
  }
  if (auto fits = check_values_limits(built.dict); !fits)
    return from_outside(std::move(fits).error());
  return built;
}

Result<FileNames> name_tensors(const TensorDict& dict) {
  if (!needs_structure(dict)) {
    FileNames names;
    names.tensor_names = dict.keys();
    return names;
  }
  TENDON_CHECK(check_values_limits(dict));
  StructureWriter writer;
  writer.names.structure = "{\"version\":" + std::to_string(kStructureVersion) + ",\"root\":";
  TENDON_CHECK(writer.level(TreeOf(dict).root(), ""));
  writer.names.structure += '}';
  return std::move(writer.names);
}

}  // namespace tendon::v0::detail
