// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <tendon/tensor/consolidated.hpp>
#include <tendon/tensor/limits.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/awaited_file.hpp"
#include "tensor/consolidated_words.hpp"
#include "tensor/json.hpp"
#include "tensor/json_shapes.hpp"
#include "tensor/mapped_file.hpp"
#include "tensor/memmap_names.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/text.hpp"
#include "tensor/untrusted.hpp"
#include "tensor/values_limits.hpp"

namespace tendon::v0::detail {
namespace {

constexpr JsonLimits kObjectLimits{kMaxFileHeaderBytes, 3 * kMaxDepth + 8, 2u << 20};

Error malformed(std::string_view path, std::string_view what) {
  return Error{ErrorCode::corrupt_data, "tensor.consolidated",
               (path.empty() ? std::string() : quote_text(path) + ": ") + std::string(what)};
}
Error not_held(std::string_view path, std::string_view what) {
  Error error = malformed(path, what);
  error.code = ErrorCode::not_supported;
  return error;
}
Error at_entry(std::string_view path, const Error& failed) {
  Error error = malformed(path, failed.detail);
  error.code = from_outside(failed).code;
  return error;
}

/// Reads the object of a file whose leaves lie in a storage.
class ObjectReader {
 public:
  explicit ObjectReader(Storage storage) : storage_(std::move(storage)) {}

  Result<void> read(const Value& level, const std::string& path) {
    const Value* const cls = level.find("cls");
    if (cls == nullptr || cls->kind() != Value::Kind::string)
      return malformed(path, "it names no class");
    const std::string& name = cls->as_string();
    if (name == "NonTensorStack") {
      if (path.empty()) return malformed(path, "the file holds no TensorDict");
      TENDON_TRY(list, stack_of_values(level, path));
      return set(path, std::move(list));
    }
    if (name != "TensorDict" && name != "LazyStackedTensorDict") {
      return not_held(path,
                      "it is a " + quote_text(name) +
                          "; legal are TensorDicts, lazy stacks of them, and non-tensor data");
    }
    TENDON_CHECK(name == "TensorDict" ? begin(level, path) : begin_stack(path));
    TENDON_TRY(leaves, map_at(level, "leaves", path));
    for (const auto& [key, leaf] : *leaves) TENDON_CHECK(tensor(leaf, path_below(path, key)));
    for (const auto& [key, child] : level.as_map()) {
      if (!is_consolidated_word(key)) TENDON_CHECK(read(child, path_below(path, key)));
    }
    TENDON_TRY(values, map_at(level, "non_tensors", path));
    for (const auto& [key, entry] : *values) {
      TENDON_TRY(value, value_of(entry, path_below(path, key)));
      TENDON_CHECK(set(path_below(path, key), std::move(value)));
    }
    return {};
  }

  TensorDict dict;

 private:
  static Result<const Value::Map*> map_at(const Value& level, std::string_view key,
                                          const std::string& path) {
    const Value* const found = level.find(key);
    if (found == nullptr || found->kind() != Value::Kind::map)
      return malformed(path, "it has no map '" + std::string(key) + "'");
    return &found->as_map();
  }

  /// Makes the dict without its entries.
  Result<void> begin(const Value& level, const std::string& path) {
    const Value* const about = level.find("cls_metadata");
    const Value* const sizes = about == nullptr ? nullptr : about->find("batch_size");
    if (sizes == nullptr) return malformed(path, "it has no batch_size");
    auto shape = shape_of_json(*sizes, "batch_size");
    if (!shape) return at_entry(path, shape.error());
    std::vector<std::string> names;
    if (const Value* const given = about->find("names")) {
      auto read = names_of_json(*given, shape->size());
      if (!read) return at_entry(path, read.error());
      // A list of null names no dimension.
      if (!std::ranges::all_of(*read, &std::string::empty)) names = *std::move(read);
    }
    TensorDict empty(*shape, std::move(names));
    if (!path.empty()) return set(path, std::move(empty));
    dict = std::move(empty);
    return {};
  }

  /// The same for a lazy stack, whose parts have their own batch sizes.
  Result<void> begin_stack(const std::string& path) {
    if (path.empty() || dict.try_set(path, TensorDict())) return {};
    return not_held(path, kStackInBatch);
  }

  /// [dtype, shape, start, stop, pad]
  Result<void> tensor(const Value& leaf, const std::string& path) {
    if (leaf.kind() != Value::Kind::list || leaf.as_list().size() < 5)
      return malformed(path, "a leaf is [dtype, shape, start, stop, pad]");
    const Value::List& said = leaf.as_list();
    if (said.size() > 5) return not_held(path, "it is a jagged tensor");
    if (said[0].kind() != Value::Kind::string) return malformed(path, "its dtype is no text");
    const auto dtype = dtype_of_memmap(said[0].as_string());
    if (!dtype) {
      Error error = malformed(path, "it has dtype " + quote_text(said[0].as_string()));
      error.code = ErrorCode::unsupported_dtype;
      return error;
    }
    auto shape = shape_of_json(said[1], "its shape");
    if (!shape) return at_entry(path, shape.error());
    for (const std::size_t number : {2, 3, 4}) {
      if (said[number].kind() != Value::Kind::i64 || said[number].as_i64() < 0)
        return malformed(path, "start, stop and pad are whole numbers from 0 on");
    }
    auto view = Tensor::view(storage_, said[2].as_u64(), *dtype, *shape);
    if (!view) return at_entry(path, view.error());
    const std::int64_t end = said[3].as_i64() - said[4].as_i64();
    if (end < said[2].as_i64() ||
        static_cast<std::uint64_t>(end - said[2].as_i64()) != view->size_bytes())
      return malformed(path, "its start, stop and pad do not leave the bytes of its shape");
    return set(path, *std::move(view));
  }

  /// [data, batch_size, device]
  static Result<Value> value_of(const Value& entry, const std::string& path) {
    if (entry.kind() != Value::Kind::list || entry.as_list().empty())
      return malformed(path, "non-tensor data is [data, batch_size, device]");
    return entry.as_list().front();
  }

  /// The parts are named 0, 1, ..., and are data or stacks again.
  Result<Value> stack_of_values(const Value& level, const std::string& path) {
    TENDON_TRY(values, map_at(level, "non_tensors", path));
    std::unordered_map<std::string_view, const Value*> data;
    for (const auto& [key, entry] : *values) data.emplace(key, &entry);
    std::unordered_map<std::string_view, const Value*> stacks;
    for (const auto& [key, child] : level.as_map())
      if (!is_consolidated_word(key)) stacks.emplace(key, &child);
    Value::List list;
    for (std::size_t i = 0; i < data.size() + stacks.size(); ++i) {
      const std::string name = std::to_string(i);
      const std::string inside = path_below(path, name);
      if (const auto found = stacks.find(name); found != stacks.end()) {
        TENDON_TRY(inner, stack_of_values(*found->second, inside));
        list.push_back(std::move(inner));
      } else if (const auto one = data.find(name); one != data.end()) {
        TENDON_TRY(value, value_of(*one->second, inside));
        list.push_back(std::move(value));
      } else {
        return malformed(inside, "this part of the stack is missing");
      }
    }
    return Value(std::move(list));
  }

  template <class Content>
  Result<void> set(const std::string& path, Content content) {
    auto done = dict.try_set(path, std::move(content));
    if (!done) return at_entry(path, done.error());
    return {};
  }

  const Storage storage_;
};

}  // namespace
}  // namespace tendon::v0::detail

namespace tendon::v0 {

Result<TensorDict> parse_consolidated(const Storage& file) {
  TENDON_CHECK(
      detail::check_on_cpu(file.device(), "the memory of the file", "tensor.consolidated"));
  std::int64_t text_bytes = 0;
  if (file.size_bytes() < sizeof text_bytes)
    return detail::malformed("", "it has fewer than 8 bytes");
  const std::uint64_t end = file.size_bytes() - sizeof text_bytes;
  std::memcpy(&text_bytes, file.data() + end, sizeof text_bytes);
  if (text_bytes < 0 || static_cast<std::uint64_t>(text_bytes) > end) {
    return detail::malformed("", "its last 8 bytes say that " + std::to_string(text_bytes) +
                                     " bytes of text stand before them, of " + std::to_string(end));
  }
  const std::uint64_t data_bytes = end - static_cast<std::uint64_t>(text_bytes);
  if (static_cast<std::uint64_t>(text_bytes) > detail::kObjectLimits.max_bytes) {
    return Error{ErrorCode::limit_exceeded, "tensor.consolidated",
                 "its text has " + std::to_string(text_bytes) + " bytes; legal are up to " +
                     std::to_string(detail::kObjectLimits.max_bytes)};
  }
  // A copy: other processes may write the file during the read.
  const std::string text(reinterpret_cast<const char*>(file.data()) + data_bytes,
                         static_cast<std::size_t>(text_bytes));
  TENDON_TRY(object, detail::parse_json_value(text, "its text", detail::kObjectLimits));
  detail::ObjectReader reader(file.part(0, data_bytes));
  TENDON_CHECK(reader.read(object, ""));
  if (auto fits = detail::check_values_limits(reader.dict); !fits)
    return detail::at_entry("", fits.error());
  return std::move(reader.dict);
}

Result<TensorDict> load_consolidated(const std::filesystem::path& path, MapMode mode) {
  TENDON_TRY(file, detail::OpenFile::open(path, "tensor.consolidated", mode));
  if (file.size_bytes() == 0) {
    return Error{ErrorCode::corrupt_data, "tensor.consolidated",
                 "'" + path.string() + "': it is empty"};
  }
  TENDON_TRY(mapped, file.map());
  auto read = parse_consolidated(mapped);
  if (read) return read;
  return detail::in_file(std::move(read).error(), path);
}

Result<TensorDict> load_consolidated(const std::filesystem::path& path, Deadline deadline,
                                     MapMode mode) {
  return detail::load_when_whole(path, "tensor.consolidated", deadline,
                                 [&] { return load_consolidated(path, mode); });
}

}  // namespace tendon::v0
