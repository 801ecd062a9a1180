// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/memmap.hpp>
#include <utility>
#include <vector>

#include "tensor/awaited_file.hpp"
#include "tensor/json.hpp"
#include "tensor/json_shapes.hpp"
#include "tensor/mapped_file.hpp"
#include "tensor/memmap_names.hpp"
#include "tensor/text.hpp"
#include "tensor/untrusted.hpp"
#include "tensor/values_limits.hpp"

namespace tendon::v0 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "tensor.memmap";
constexpr detail::JsonLimits kMetaLimits{kMaxFileHeaderBytes, kMaxDepth + 8, 2u << 20};
constexpr std::int64_t kFormatVersion = 1;

Error broken(const fs::path& file, std::string_view what) {
  return Error{ErrorCode::corrupt_data, kWhere, "'" + file.string() + "': " + std::string(what)};
}
Error unknown(const fs::path& file, std::string_view what) {
  return Error{ErrorCode::not_supported, kWhere, "'" + file.string() + "': " + std::string(what)};
}
Error from_folder(Error failed, const fs::path& file) {
  return detail::in_file(detail::from_outside(std::move(failed)), file);
}

std::string_view text_of(const Value& meta, std::string_view key) {
  const Value* const found = meta.find(key);
  return found != nullptr && found->kind() == Value::Kind::string ? found->as_string()
                                                                  : std::string_view();
}

/// Reads one folder and those below it into a TensorDict.
class FolderReader {
 public:
  FolderReader(TensorDict& dict, MapMode mode) : dict_(dict), mode_(mode) {}

  /// `path` is that of the dict of this folder; empty: the whole.
  Result<void> read(const fs::path& folder, const std::string& path, std::size_t depth) {
    if (depth > kMaxDepth) {
      return Error{ErrorCode::limit_exceeded, kWhere,
                   "'" + folder.string() + "' lies below " + std::to_string(kMaxDepth) +
                       " other folders; that is the limit"};
    }
    const fs::path file = folder / detail::kMemmapMeta;
    TENDON_TRY(meta, meta_of(file));
    const std::string_view type = text_of(meta, "_type");
    if (type.find("NonTensorData'") != std::string_view::npos ||
        type.find("NonTensorStack'") != std::string_view::npos)
      return value(meta, file, path);
    if (type.find("LazyStackedTensorDict'") != std::string_view::npos)
      return stack(folder, path, depth);
    if (type.find("TensorDict'") == std::string_view::npos)
      return unknown(file, "it is a " + detail::quote_text(type) +
                               "; legal are TensorDicts, lazy stacks of them, and non-tensor data");
    TENDON_CHECK(begin(meta, file, path));
    for (const auto& [key, entry] : meta.as_map()) {
      if (entry.kind() != Value::Kind::map) continue;
      if (entry.find("type") != nullptr)
        TENDON_CHECK(
            read(folder / detail::memmap_file_name(key), detail::path_below(path, key), depth + 1));
      else
        TENDON_CHECK(tensor(folder, key, entry, detail::path_below(path, key)));
    }
    return {};
  }

 private:
  Result<Value> meta_of(const fs::path& file) {
    TENDON_TRY(opened, detail::OpenFile::open(file, kWhere));
    if (opened.size_bytes() > kMaxFileHeaderBytes) {
      return Error{ErrorCode::limit_exceeded, kWhere,
                   "'" + file.string() + "' has " + std::to_string(opened.size_bytes()) +
                       " bytes; legal are up to " + std::to_string(kMaxFileHeaderBytes)};
    }
    TENDON_TRY(bytes, opened.read_front(opened.size_bytes()));
    auto meta = detail::parse_json_value(as_text(bytes), "'" + file.string() + "'", kMetaLimits);
    if (!meta) return meta;
    if (meta->kind() != Value::Kind::map) return broken(file, "it is no JSON object");
    const Value* const version = meta->find("_format_version");
    if (version != nullptr && version->kind() == Value::Kind::i64 &&
        version->as_i64() > kFormatVersion) {
      return unknown(file, "its format has version " + std::to_string(version->as_i64()) +
                               "; this library reads up to " + std::to_string(kFormatVersion));
    }
    return meta;
  }

  /// Makes the dict without its entries.
  Result<void> begin(const Value& meta, const fs::path& file, const std::string& path) {
    Shape sizes;
    if (const Value* const given = meta.find("shape")) {
      auto shape = detail::shape_of_json(*given, "shape");
      if (!shape) return from_folder(std::move(shape).error(), file);
      sizes = *shape;
    }
    std::vector<std::string> names;
    const Value* const given = meta.find("_names");
    if (given != nullptr && given->kind() == Value::Kind::list) {
      auto read = detail::names_of_json(*given, sizes.size());
      if (!read) return from_folder(std::move(read).error(), file);
      names = *std::move(read);
    }
    if (path.empty()) {
      dict_ = TensorDict(sizes, std::move(names));
      return {};
    }
    return set(file, path, TensorDict(sizes, std::move(names)));
  }

  Result<void> tensor(const fs::path& folder, const std::string& key, const Value& entry,
                      const std::string& path) {
    const fs::path meta = folder / detail::kMemmapMeta;
    const std::string quoted = detail::quote_text(key);
    if (const Value* const nested = entry.find("is_nested");
        nested != nullptr && *nested != Value(false))
      return unknown(meta, quoted + " is a jagged tensor");
    const std::string_view dtype_name = text_of(entry, "dtype");
    const auto dtype = detail::dtype_of_memmap(dtype_name);
    if (!dtype) {
      return Error{
          ErrorCode::unsupported_dtype, kWhere,
          "'" + meta.string() + "': " + quoted + " has dtype " + detail::quote_text(dtype_name)};
    }
    const Value* const sizes = entry.find("shape");
    if (sizes == nullptr) return broken(meta, quoted + " has no shape");
    auto shape = detail::shape_of_json(*sizes, "the shape of " + quoted);
    if (!shape) return from_folder(std::move(shape).error(), meta);
    auto count = shape->element_count();
    if (!count) return from_folder(std::move(count).error(), meta);
    if (*count == 0) {
      TENDON_TRY(empty, Tensor::empty(*dtype, *shape));
      return set(meta, path, std::move(empty));
    }
    TENDON_TRY(storage, map(folder, key));
    const std::uint64_t item_bytes = item_size_bytes(*dtype);
    const std::uint64_t found = storage.size_bytes();
    if (found % item_bytes != 0 || found / item_bytes != static_cast<std::uint64_t>(*count)) {
      return broken(folder / (detail::memmap_file_name(key) + ".memmap"),
                    "it has " + std::to_string(found) + " bytes, and the tensor of meta.json " +
                        std::to_string(*count) + " elements of " + std::to_string(item_bytes));
    }
    auto view = Tensor::view(std::move(storage), 0, *dtype, *shape);
    if (!view) return from_folder(std::move(view).error(), meta);
    return set(meta, path, *std::move(view));
  }

  Result<Storage> map(const fs::path& folder, const std::string& key) {
    fs::path file = folder / (detail::memmap_file_name(key) + ".memmap");
    std::error_code failed;
    // Before 0.12 keys were file names, unescaped.
    const bool is_plain = key.find('/') == std::string::npos && key != "." && key != "..";
    if (is_plain && !fs::exists(file, failed) && fs::exists(folder / (key + ".memmap"), failed))
      file = folder / (key + ".memmap");
    auto opened = detail::OpenFile::open(file, kWhere, mode_);
    if (!opened) {
      if (opened.error().code != ErrorCode::file_not_found) return std::move(opened).error();
      return broken(file, "meta.json names this file, and it is missing");
    }
    if (opened->size_bytes() == 0) return broken(file, "it is empty");
    return opened->map();
  }

  Result<void> value(const Value& meta, const fs::path& file, const std::string& path) {
    const Value* const data = meta.find("data");
    if (data == nullptr) return broken(file, "it has no data");
    if (path.empty()) return broken(file, "it is no TensorDict");
    return set(file, path, *data);
  }

  Result<void> stack(const fs::path& folder, const std::string& path, std::size_t depth) {
    if (!path.empty() && !dict_.try_set(path, TensorDict()))
      return unknown(folder, detail::kStackInBatch);
    for (std::size_t part = 0;; ++part) {
      const std::string name = std::to_string(part);
      std::error_code failed;
      if (!fs::exists(folder / name / detail::kMemmapMeta, failed)) return {};
      TENDON_CHECK(read(folder / name, detail::path_below(path, name), depth + 1));
    }
  }

  template <class Content>
  Result<void> set(const fs::path& file, const std::string& path, Content content) {
    auto done = dict_.try_set(path, std::move(content));
    if (!done) return from_folder(std::move(done).error(), file);
    return {};
  }

  TensorDict& dict_;
  const MapMode mode_;
};

}  // namespace

Result<TensorDict> load_memmap(const std::filesystem::path& folder, MapMode mode) {
  TensorDict dict;
  TENDON_CHECK(FolderReader(dict, mode).read(folder, "", 1));
  if (auto fits = detail::check_values_limits(dict); !fits)
    return from_folder(std::move(fits).error(), folder);
  return dict;
}

Result<TensorDict> load_memmap(const std::filesystem::path& folder, Deadline deadline,
                               MapMode mode) {
  return detail::load_when_whole(folder, kWhere, deadline,
                                 [&] { return load_memmap(folder, mode); });
}

}  // namespace tendon::v0
