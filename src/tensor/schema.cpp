// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/schema.hpp>
#include <unordered_map>

#include "tensor/schema_builder.hpp"
#include "tensor/text.hpp"
#include "tensor/untrusted.hpp"

namespace tendon::v0 {
namespace {

static_assert(std::endian::native == std::endian::little, "the encoding is written as it lies");

constexpr std::uint8_t kVersion1 = 1;

// The kinds of entries in the encoding.
enum class EntryTag : std::uint8_t { leaf = 1, node = 2, exempt_leaf = 3 };

Error error(ErrorCode code, std::string detail) {
  return Error{code, "tensor.schema", std::move(detail)};
}

// Falling, this is the order in which the safetensors writer (0.8) places tensors, so that each
// starts at a multiple of its size. Types that its format lacks stand with those of their size.
int safetensors_rank(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return 0;
    case DType::u8:
      return 1;
    case DType::i8:
      return 2;
    case DType::f8_e5m2:
      return 3;
    case DType::f8_e4m3fn:
      return 4;
    case DType::f8_e8m0fnu:
      return 5;
    case DType::f8_e4m3fnuz:
      return 6;
    case DType::f8_e5m2fnuz:
      return 7;
    case DType::f8_e3m4:
      return 8;
    case DType::f8_e4m3:
      return 9;
    case DType::f8_e4m3b11fnuz:
      return 10;
    case DType::i16:
      return 20;
    case DType::u16:
      return 21;
    case DType::f16:
      return 22;
    case DType::bf16:
      return 23;
    case DType::c32:
      return 30;
    case DType::i32:
      return 31;
    case DType::u32:
      return 32;
    case DType::f32:
      return 33;
    case DType::c64:
      return 40;
    case DType::f64:
      return 41;
    case DType::i64:
      return 42;
    case DType::u64:
      return 43;
    case DType::c128:
      return 50;
  }
  return 0;
}

// Reads a schema's encoding; every length is compared with the remaining bytes before it is used.
class Decoder {
 public:
  explicit Decoder(Bytes bytes) : rest_(bytes) {}

  Result<std::shared_ptr<const Schema>> decode() {
    TENDON_TRY(version, take<std::uint8_t>("version"));
    if (version != kVersion1) {
      return error(ErrorCode::version_mismatch, "a schema of version " + std::to_string(version) +
                                                    "; this build reads version 1");
    }
    TENDON_TRY(batch_size, shape("batch size"));
    TENDON_TRY(names, dimension_names(batch_size));
    detail::SchemaBuilder builder(batch_size, std::move(names));
    TENDON_CHECK(entries(builder, 0));
    if (!rest_.empty()) {
      return error(ErrorCode::corrupt_data,
                   std::to_string(rest_.size()) + " bytes follow the schema");
    }
    return std::move(builder).finish();
  }

 private:
  template <class T>
  Result<T> take(std::string_view what) {
    TENDON_TRY(bytes, take_bytes(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  Result<Bytes> take_bytes(std::size_t count, std::string_view what) {
    if (count > rest_.size()) {
      return error(ErrorCode::corrupt_data, "the schema ends inside a " + std::string(what) + ": " +
                                                std::to_string(count) + " bytes are needed, " +
                                                std::to_string(rest_.size()) + " are left");
    }
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  Result<std::string_view> text(std::string_view what) {
    TENDON_TRY(size, take<std::uint8_t>(what));
    TENDON_TRY(bytes, take_bytes(size, what));
    return as_text(bytes);
  }

  Result<Shape> shape(std::string_view what) {
    TENDON_TRY(count, take<std::uint8_t>(what));
    if (count > kMaxDimensions) {
      return error(ErrorCode::limit_exceeded,
                   "a " + std::string(what) + " of " + std::to_string(count) +
                       " dimensions; legal are 0 to " + std::to_string(kMaxDimensions));
    }
    std::array<std::int64_t, kMaxDimensions> sizes;
    for (std::size_t i = 0; i < count; ++i) {
      TENDON_TRY(size, take<std::int64_t>(what));
      sizes[i] = size;
    }
    return Shape::make({sizes.data(), count});
  }

  Result<std::vector<std::string>> dimension_names(const Shape& batch_size) {
    std::vector<std::string> names;
    TENDON_TRY(named, take<std::uint8_t>("dimension names"));
    if (named > 1) {
      return error(ErrorCode::corrupt_data, "the mark of dimension names is " +
                                                std::to_string(named) + "; legal are 0 and 1");
    }
    for (std::size_t i = 0; named == 1 && i < batch_size.size(); ++i) {
      TENDON_TRY(name, text("dimension name"));
      names.emplace_back(name);
    }
    return names;
  }

  Result<void> entries(detail::SchemaBuilder& builder, std::size_t depth) {
    if (depth > kMaxDepth) {
      return error(ErrorCode::limit_exceeded,
                   "nodes nested deeper than " + std::to_string(kMaxDepth));
    }
    TENDON_TRY(count, take<std::uint32_t>("number of entries"));
    for (std::uint32_t i = 0; i < count; ++i) {
      TENDON_TRY(tag, take<std::uint8_t>("kind of entry"));
      TENDON_TRY(name, text("name"));
      switch (static_cast<EntryTag>(tag)) {
        case EntryTag::leaf:
        case EntryTag::exempt_leaf: {
          TENDON_TRY(number, take<std::uint8_t>("element type"));
          const auto dtype = dtype_from_number(number);
          if (!dtype) {
            return error(ErrorCode::unsupported_dtype,
                         "leaf " + detail::quote_text(name) + " has the element type " +
                             std::to_string(number) + ", which this build does not know");
          }
          TENDON_TRY(leaf_shape, shape("shape"));
          TENDON_CHECK(builder.add_leaf(
              name, *dtype, leaf_shape,
              static_cast<EntryTag>(tag) == EntryTag::leaf ? Batching::batched : Batching::exempt));
          continue;
        }
        case EntryTag::node: {
          TENDON_TRY(batch_size, shape("batch size"));
          TENDON_TRY(names, dimension_names(batch_size));
          TENDON_CHECK(builder.begin_node(name, batch_size, std::move(names)));
          TENDON_CHECK(entries(builder, depth + 1));
          builder.end_node();
          continue;
        }
      }
      return error(ErrorCode::corrupt_data, "entry " + detail::quote_text(name) + " is of kind " +
                                                std::to_string(tag) + "; legal are 1 to 3");
    }
    return {};
  }

  Bytes rest_;
};

// Adds the leaves with these parsed paths, all below the open node; `depth` names are used already.
Result<void> add_specs(detail::SchemaBuilder& builder, std::span<const LeafSpec> specs,
                       std::span<const std::vector<std::string>> paths,
                       std::span<const std::size_t> members, std::size_t depth) {
  std::vector<std::pair<std::string_view, std::vector<std::size_t>>> groups;
  std::unordered_map<std::string_view, std::size_t> group_of;
  for (const std::size_t member : members) {
    const auto [found, is_new] = group_of.try_emplace(paths[member][depth], groups.size());
    if (is_new) groups.emplace_back(found->first, std::vector<std::size_t>());
    groups[found->second].second.push_back(member);
  }
  for (const auto& [name, below] : groups) {
    const LeafSpec& first = specs[below.front()];
    const bool has_leaf = std::any_of(below.begin(), below.end(), [&](std::size_t member) {
      return paths[member].size() == depth + 1;
    });
    if (!has_leaf) {
      TENDON_CHECK(builder.begin_node(name, Shape(), {}));
      TENDON_CHECK(add_specs(builder, specs, paths, below, depth + 1));
      builder.end_node();
      continue;
    }
    if (below.size() > 1) {
      return error(ErrorCode::invalid_argument,
                   "leaf " + detail::quote_text(first.path) + " and leaf " +
                       detail::quote_text(specs[below[1]].path) + " cannot both be");
    }
    TENDON_CHECK(builder.add_leaf(name, first.dtype, first.shape, Batching::batched));
  }
  return {};
}

std::vector<std::uint32_t> schema_order(std::span<const SchemaLeaf> leaves) {
  std::vector<std::uint32_t> order(leaves.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

PackedLayout safetensors_layout(std::span<const SchemaLeaf> leaves) {
  PackedLayout packed{std::vector<std::uint64_t>(leaves.size()), schema_order(leaves)};
  std::ranges::stable_sort(packed.order, std::greater(), [&](std::uint32_t leaf) {
    return safetensors_rank(leaves[leaf].dtype);
  });
  for (const std::uint32_t leaf : packed.order) {
    packed.offsets[leaf] = packed.total_bytes;
    packed.total_bytes += leaves[leaf].size_bytes;
  }
  return packed;
}

// It exceeds the aligned layout by its last padding at most, which was checked.
PackedLayout tensordict_layout(std::span<const SchemaLeaf> leaves) {
  constexpr std::uint64_t kPadding = 8;
  PackedLayout packed{{}, schema_order(leaves)};
  for (const SchemaLeaf& leaf : leaves) {
    packed.offsets.push_back(packed.total_bytes);
    packed.total_bytes += (leaf.size_bytes + kPadding - 1) / kPadding * kPadding;
  }
  return packed;
}

std::string name_of_root(std::string_view path) {
  return path.empty() ? "the root" : "TensorDict " + detail::quote_text(path);
}

}  // namespace

Schema::Schema() = default;
Schema::~Schema() = default;

Result<std::shared_ptr<const Schema>> Schema::make(std::span<const LeafSpec> leaves) {
  std::vector<std::vector<std::string>> paths;
  for (const LeafSpec& leaf : leaves) {
    TENDON_TRY(names, parse_path(leaf.path));
    paths.push_back(std::move(names));
  }
  std::vector<std::size_t> all(leaves.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  detail::SchemaBuilder builder(Shape(), {});
  TENDON_CHECK(add_specs(builder, leaves, paths, all, 0));
  return std::move(builder).finish();
}

Result<std::shared_ptr<const Schema>> Schema::decode(Bytes encoding) {
  if (encoding.size() > kMaxSchemaBytes) {
    return error(ErrorCode::limit_exceeded, "a schema of " + std::to_string(encoding.size()) +
                                                " bytes; legal are up to " +
                                                std::to_string(kMaxSchemaBytes));
  }
  auto schema = Decoder(encoding).decode();
  if (!schema) return detail::from_outside(std::move(schema).error());
  // One encoding a schema: else equal schemas could have different hashes.
  if (!std::ranges::equal((*schema)->encoding(), encoding))
    return error(ErrorCode::corrupt_data, "the schema is not in canonical form");
  return schema;
}

std::optional<std::size_t> Schema::find(std::string_view path) const noexcept {
  const auto found = index_.find(path);
  if (found == index_.end() || found->second.kind != SchemaEntry::Kind::leaf) return std::nullopt;
  return found->second.index;
}

std::optional<std::size_t> Schema::find_node(std::string_view path) const noexcept {
  const auto found = index_.find(path);
  if (found == index_.end() || found->second.kind != SchemaEntry::Kind::node) return std::nullopt;
  return found->second.index;
}

const PackedLayout& Schema::layout(Layout layout) const {
  switch (layout) {
    case Layout::aligned:
      break;
    case Layout::safetensors:
      std::call_once(safetensors_once_, [&] { safetensors_ = safetensors_layout(leaves_); });
      return safetensors_;
    case Layout::tensordict:
      std::call_once(tensordict_once_, [&] { tensordict_ = tensordict_layout(leaves_); });
      return tensordict_;
  }
  return aligned_;
}

bool operator==(const Schema& a, const Schema& b) noexcept {
  return &a == &b || (a.hash_ == b.hash_ && a.encoding_ == b.encoding_);
}

std::string to_string(const SchemaHash& hash) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : hash.bytes) {
    text += kHex[std::to_integer<unsigned>(byte) >> 4];
    text += kHex[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string describe_difference(const Schema& expected, const Schema& other) {
  if (expected == other) return {};
  const auto leaves = std::min(expected.leaves().size(), other.leaves().size());
  for (std::size_t i = 0; i < leaves; ++i) {
    const SchemaLeaf& want = expected.leaves()[i];
    const SchemaLeaf& have = other.leaves()[i];
    if (want.path != have.path) {
      if (!other.find(want.path)) return "leaf " + detail::quote_text(want.path) + " is missing";
      if (!expected.find(have.path))
        return "leaf " + detail::quote_text(have.path) + " is not expected";
      return "leaf " + std::to_string(i) + " is " + detail::quote_text(have.path) + ", expected " +
             detail::quote_text(want.path) + " (the order of leaves counts)";
    }
    const std::string leaf = "leaf " + detail::quote_text(have.path);
    if (want.dtype != have.dtype) {
      return leaf + " is " + std::string(to_string(have.dtype)) + ", expected " +
             std::string(to_string(want.dtype));
    }
    if (want.shape != have.shape) {
      return leaf + " has shape " + to_string(have.shape) + ", expected " + to_string(want.shape);
    }
    if (want.batching != have.batching)
      return leaf + " differs in whether the batch size holds for it";
  }
  if (expected.leaves().size() > leaves)
    return "leaf " + detail::quote_text(expected.leaves()[leaves].path) + " is missing";
  if (other.leaves().size() > leaves)
    return "leaf " + detail::quote_text(other.leaves()[leaves].path) + " is not expected";

  const auto nodes = std::min(expected.nodes().size(), other.nodes().size());
  for (std::size_t i = 0; i < nodes; ++i) {
    const SchemaNode& want = expected.nodes()[i];
    const SchemaNode& have = other.nodes()[i];
    if (want.path != have.path) {
      return name_of_root(have.path) + " stands where " + name_of_root(want.path) + " is expected";
    }
    if (want.batch_size != have.batch_size) {
      return name_of_root(have.path) + " has batch size " + to_string(have.batch_size) +
             ", expected " + to_string(want.batch_size);
    }
    if (want.dimension_names != have.dimension_names)
      return name_of_root(have.path) + " has other names of batch dimensions";
  }
  if (expected.nodes().size() > nodes)
    return name_of_root(expected.nodes()[nodes].path) + " is missing";
  if (other.nodes().size() > nodes)
    return name_of_root(other.nodes()[nodes].path) + " is not expected";
  return "the entries stand in another order";
}

namespace detail {

std::size_t encoded_leaf_bytes(std::string_view name, const Shape& shape) {
  return 1 + 1 + name.size() + 1 + 1 + 8 * shape.size();
}

std::size_t encoded_node_bytes(std::string_view name, const Shape& batch_size,
                               const std::vector<std::string>& dimension_names) {
  std::size_t bytes = 1 + 1 + name.size() + 1 + 8 * batch_size.size() + 1 + 4;
  for (const std::string& dimension : dimension_names) bytes += 1 + dimension.size();
  return bytes;
}

Result<std::vector<std::string>> check_dimension_names(const Shape& batch_size,
                                                       std::vector<std::string> names) {
  if (std::all_of(names.begin(), names.end(), [](const auto& name) { return name.empty(); }) &&
      (names.empty() || names.size() == batch_size.size())) {
    return std::vector<std::string>();
  }
  if (names.size() != batch_size.size()) {
    return error(ErrorCode::invalid_argument, std::to_string(names.size()) + " names for the " +
                                                  std::to_string(batch_size.size()) +
                                                  " dimensions of batch size " +
                                                  to_string(batch_size));
  }
  for (const std::string& name : names) {
    if (name.size() > kMaxNameBytes) {
      return error(ErrorCode::limit_exceeded,
                   "the name of a dimension has " + std::to_string(name.size()) +
                       " bytes; legal are 0 to " + std::to_string(kMaxNameBytes));
    }
    if (!is_utf8(name)) {
      return error(ErrorCode::invalid_argument,
                   "the name of a dimension, " + quote_text(name) + ", is not UTF-8");
    }
  }
  return names;
}

Result<void> check_batch(const Shape& shape, const Shape& batch_size, std::string_view what) {
  if (shape.starts_with(batch_size)) return {};
  return error(ErrorCode::invalid_argument, quote_text(what) + " of shape " + to_string(shape) +
                                                " does not start with the batch size " +
                                                to_string(batch_size));
}

SchemaBuilder::SchemaBuilder(const Shape& batch_size, std::vector<std::string> dimension_names)
    : schema_(new Schema()) {
  schema_->encoding_.push_back(std::byte{kVersion1});
  root_ = open(batch_size, std::move(dimension_names));
}

void SchemaBuilder::put_shape(const Shape& shape) {
  auto& encoding = schema_->encoding_;
  encoding.push_back(static_cast<std::byte>(shape.size()));
  const auto sizes = std::as_bytes(shape.span());
  encoding.insert(encoding.end(), sizes.begin(), sizes.end());
}

Result<void> SchemaBuilder::open(const Shape& batch_size, std::vector<std::string> names) {
  TENDON_TRY(checked, check_dimension_names(batch_size, std::move(names)));
  if (!open_.empty())
    TENDON_CHECK(check_batch(batch_size, schema_->nodes_[open_.back().index].batch_size, path_));
  if (schema_->nodes_.size() == kMaxNodes) {
    return error(ErrorCode::limit_exceeded,
                 "more than " + std::to_string(kMaxNodes) + " TensorDicts in one");
  }
  auto& encoding = schema_->encoding_;
  put_shape(batch_size);
  encoding.push_back(static_cast<std::byte>(checked.empty() ? 0 : 1));
  for (const std::string& name : checked) {
    encoding.push_back(static_cast<std::byte>(name.size()));
    encoding.insert(encoding.end(), as_bytes(name).begin(), as_bytes(name).end());
  }
  const std::size_t count_at = encoding.size();
  encoding.insert(encoding.end(), sizeof(std::uint32_t), std::byte{0});
  const auto index = static_cast<std::uint32_t>(schema_->nodes_.size());
  schema_->nodes_.push_back({path_, batch_size, std::move(checked), {}});
  open_.push_back({index, count_at, path_.size()});
  return {};
}

// Sets path_ to the path of the entry and checks all limits of leaves and nodes.
Result<void> SchemaBuilder::add_name(std::string_view name) {
  TENDON_CHECK(root_);
  TENDON_CHECK(check_name(name));
  if (open_.size() > kMaxDepth) {
    return error(ErrorCode::limit_exceeded, "path " + quote_text(path_) + " has more than " +
                                                std::to_string(kMaxDepth) + " names");
  }
  path_.resize(open_.back().path_bytes);
  if (open_.size() > 1) path_ += '/';
  path_ += escape_name(name);
  if (path_.size() > kMaxPathBytes) {
    return error(ErrorCode::limit_exceeded,
                 "path " + quote_text(path_) + " has " + std::to_string(path_.size()) +
                     " bytes; legal are 1 to " + std::to_string(kMaxPathBytes));
  }
  all_paths_bytes_ += path_.size();
  if (all_paths_bytes_ > kMaxSchemaBytes) {
    return error(ErrorCode::limit_exceeded, "the paths of one schema have more than " +
                                                std::to_string(kMaxSchemaBytes) + " bytes");
  }
  return {};
}

Result<void> SchemaBuilder::add_leaf(std::string_view name, DType dtype, const Shape& shape,
                                     Batching batching) {
  TENDON_CHECK(add_name(name));
  if (schema_->leaves_.size() == kMaxLeaves) {
    return error(ErrorCode::limit_exceeded,
                 "more than " + std::to_string(kMaxLeaves) + " tensors in one TensorDict");
  }
  SchemaNode& parent = schema_->nodes_[open_.back().index];
  if (batching == Batching::batched) TENDON_CHECK(check_batch(shape, parent.batch_size, path_));
  TENDON_TRY(size_bytes, shape.size_bytes(dtype));
  PackedLayout& aligned = schema_->aligned_;
  std::uint64_t offset = 0;
  std::uint64_t end = 0;
  if (__builtin_add_overflow(aligned.total_bytes, padding_bytes(aligned.total_bytes), &offset) ||
      __builtin_add_overflow(offset, size_bytes, &end) || end > kMaxTensorBytes) {
    return error(ErrorCode::limit_exceeded,
                 "the leaves up to " + quote_text(path_) + " are more than 2^63 - 1 bytes");
  }
  const auto index = static_cast<std::uint32_t>(schema_->leaves_.size());
  aligned.offsets.push_back(offset);
  aligned.order.push_back(index);
  aligned.total_bytes = end;
  schema_->size_bytes_ += size_bytes;
  schema_->leaves_.push_back({path_, dtype, shape, batching, size_bytes});
  parent.entries.push_back({SchemaEntry::Kind::leaf, index});

  auto& encoding = schema_->encoding_;
  encoding.push_back(static_cast<std::byte>(batching == Batching::batched ? EntryTag::leaf
                                                                          : EntryTag::exempt_leaf));
  encoding.push_back(static_cast<std::byte>(name.size()));
  encoding.insert(encoding.end(), as_bytes(name).begin(), as_bytes(name).end());
  encoding.push_back(static_cast<std::byte>(dtype));
  put_shape(shape);
  return {};
}

Result<void> SchemaBuilder::begin_node(std::string_view name, const Shape& batch_size,
                                       std::vector<std::string> dimension_names) {
  TENDON_CHECK(add_name(name));
  auto& encoding = schema_->encoding_;
  encoding.push_back(static_cast<std::byte>(EntryTag::node));
  encoding.push_back(static_cast<std::byte>(name.size()));
  encoding.insert(encoding.end(), as_bytes(name).begin(), as_bytes(name).end());
  const auto index = static_cast<std::uint32_t>(schema_->nodes_.size());
  const std::uint32_t parent = open_.back().index;
  TENDON_CHECK(open(batch_size, std::move(dimension_names)));
  schema_->nodes_[parent].entries.push_back({SchemaEntry::Kind::node, index});
  return {};
}

void SchemaBuilder::end_node() {
  const OpenNode node = open_.back();
  open_.pop_back();
  const auto count = static_cast<std::uint32_t>(schema_->nodes_[node.index].entries.size());
  std::memcpy(schema_->encoding_.data() + node.count_at, &count, sizeof count);
}

Result<std::shared_ptr<const Schema>> SchemaBuilder::finish() && {
  TENDON_CHECK(root_);
  end_node();
  Schema& schema = *schema_;
  if (schema.encoding_.size() > kMaxSchemaBytes) {
    return error(ErrorCode::limit_exceeded,
                 "a schema of " + std::to_string(schema.encoding_.size()) +
                     " bytes; legal are up to " + std::to_string(kMaxSchemaBytes));
  }
  schema.index_.reserve(schema.leaves_.size() + schema.nodes_.size());
  const auto add = [&](std::string_view path, SchemaEntry entry) -> Result<void> {
    if (schema.index_.emplace(path, entry).second) return {};
    return error(ErrorCode::invalid_argument, "the entry " + quote_text(path) + " comes twice");
  };
  for (std::uint32_t i = 0; i < schema.leaves_.size(); ++i)
    TENDON_CHECK(add(schema.leaves_[i].path, {SchemaEntry::Kind::leaf, i}));
  for (std::uint32_t i = 0; i < schema.nodes_.size(); ++i)
    TENDON_CHECK(add(schema.nodes_[i].path, {SchemaEntry::Kind::node, i}));

  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(schema.encoding_.data(), schema.encoding_.size(), digest.data(), nullptr,
                 EVP_sha256(), nullptr) != 1) {
    return error(ErrorCode::internal, "SHA-256 of a schema failed");
  }
  std::memcpy(schema.hash_.bytes.data(), digest.data(), schema.hash_.bytes.size());
  return std::shared_ptr<const Schema>(std::move(schema_));
}

}  // namespace detail
}  // namespace tendon::v0
