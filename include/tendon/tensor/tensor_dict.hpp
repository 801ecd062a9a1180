// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/packed_view.hpp>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
struct Tree;
}

/// The kind of an entry of a TensorDict.
enum class EntryKind : std::uint8_t { tensor, dict, value };
[[nodiscard]] TENDON_API std::string_view to_string(EntryKind kind);

/// A leaf, as iteration returns it.
struct Leaf {
  std::string path;
  Tensor tensor;
};

/// Named tensors, nested and in order of insertion, that share their first dimensions (the batch
/// size), with non-tensor values beside them. Paths name entries ("observation/image", see
/// path.hpp).
///
/// Example:
///   TensorDict batch(Shape{2});
///   batch.set("obs/image", Tensor::zeros(DType::u8, {2, 3, 8, 8}).value());
///   batch.set("reward", Tensor::of<float>({2}, {0.5F, 1}));
///   batch.set("info/step", 7);
///   const Tensor image = batch["obs/image"];
///   for (const auto& [path, tensor] : batch) std::cout << path << ' ' << tensor.dtype() << '\n';
///   if (Result<Tensor> missing = batch.find("obs/depth"); !missing)
///     std::cerr << missing.error().message() << '\n';  // and what is there instead
///
/// A TensorDict is a value: a copy has its own entries and shares the tensors' memory. find_dict()
/// returns such a copy; change a nested one by its path: `batch.set("info/reward", reward)`. It has
/// two forms: a tree of entries, or packed, as it is received or loaned. The packed form makes its
/// Tensors on access and becomes a tree when it is changed. Only the cost tells the forms apart.
///
/// Owns:    shares of its tensors' storage.
/// Threads: const calls from several threads at once are safe; others need a lock of the program.
/// Errors:  set, operator[] and value throw; try_set, find, find_value return them.
/// Blocks:  never.
/// Cost:    packed: 11 words, no allocation. Tree: about four allocations for each set(),
///          and two for each entry that is copied.
class TENDON_API TensorDict {
 public:
  /// No batch dimensions. Allocates nothing.
  TensorDict() noexcept;
  explicit TensorDict(const Shape& batch_size);
  /// Names each batch dimension, "" for none; throws invalid_argument unless there are as many
  /// names.
  TensorDict(const Shape& batch_size, std::vector<std::string> dimension_names);
  TensorDict(const TensorDict& other);
  TensorDict& operator=(const TensorDict& other);
  TensorDict(TensorDict&& other) noexcept;
  TensorDict& operator=(TensorDict&& other) noexcept;
  ~TensorDict();

  /// Allocates private memory for every leaf of a schema, contents unspecified.
  [[nodiscard]] static Result<TensorDict> allocate(std::shared_ptr<const Schema> schema);

  /// Adds or replaces the entry at `path`; missing dicts above it are made, with their parent's
  /// batch size. invalid_argument when the batch sizes do not fit or a name above it is not a dict;
  /// limit_exceeded beyond the limits of limits.hpp. After an error nothing has changed.
  [[nodiscard]] Result<void> try_set(std::string_view path, Tensor tensor,
                                     Batching batching = Batching::batched);
  [[nodiscard]] Result<void> try_set(std::string_view path, const TensorDict& dict);
  [[nodiscard]] Result<void> try_set(std::string_view path, Value value);
  void set(std::string_view path, Tensor tensor, Batching batching = Batching::batched) {
    try_set(path, std::move(tensor), batching).value();
  }
  void set(std::string_view path, const TensorDict& dict) { try_set(path, dict).value(); }
  void set(std::string_view path, Value value) { try_set(path, std::move(value)).value(); }
  /// Removes an entry with all below it; not_found.
  [[nodiscard]] Result<void> erase(std::string_view path);

  /// The tensor at `path`; not_found says what is there instead.
  [[nodiscard]] Result<Tensor> find(std::string_view path) const;
  [[nodiscard]] Tensor operator[](std::string_view path) const { return find(path).value(); }
  /// The nested TensorDict at `path`: a shallow copy.
  [[nodiscard]] Result<TensorDict> find_dict(std::string_view path) const;
  [[nodiscard]] Result<Value> find_value(std::string_view path) const;
  [[nodiscard]] Value value(std::string_view path) const { return find_value(path).value(); }
  /// The kind of the entry at `path`; nullopt if there is none.
  [[nodiscard]] std::optional<EntryKind> kind_of(std::string_view path) const;
  [[nodiscard]] bool contains(std::string_view path) const { return kind_of(path).has_value(); }

  [[nodiscard]] Shape batch_size() const;
  /// One name for each batch dimension; empty when no dimension is named.
  [[nodiscard]] std::vector<std::string> dimension_names() const;
  /// The names of this level's entries, unescaped: tensors, dicts and values in order of insertion.
  /// In the packed form the values are last, because it knows no order between them and the rest.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] bool empty() const;

  /// The number of leaves: all tensors, depth first in order of insertion, as in schema().leaves().
  [[nodiscard]] std::size_t leaf_count() const;
  /// Precondition of both: index < leaf_count().
  [[nodiscard]] Tensor leaf(std::size_t index) const;
  [[nodiscard]] const std::string& leaf_path(std::size_t index) const;
  /// Bytes of all elements, without padding.
  [[nodiscard]] std::uint64_t size_bytes() const;

  /// The schema. Computed once and kept until an entry, a dtype or a shape changes; replacing a
  /// leaf by one of the same dtype and shape keeps it. Cannot fail: set() refused everything beyond
  /// a limit.
  [[nodiscard]] const std::shared_ptr<const Schema>& schema() const;
  /// All non-tensor data as one map from path to value, in order; nullptr when there is none. Kept
  /// like schema(), until a value changes.
  [[nodiscard]] const std::shared_ptr<const Value>& values() const;
  /// `for (const auto& [path, tensor] : batch)`.
  class Iterator {
   public:
    using value_type = Leaf;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    Iterator() = default;
    [[nodiscard]] Leaf operator*() const { return {dict_->leaf_path(index_), dict_->leaf(index_)}; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    void operator++(int) { ++index_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    friend class TensorDict;
    Iterator(const TensorDict* dict, std::size_t index) : dict_(dict), index_(index) {}
    const TensorDict* dict_ = nullptr;
    std::size_t index_ = 0;
  };
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, leaf_count()}; }

 private:
  friend struct detail::Tree;
  friend TENDON_API Result<TensorDict> make_packed(std::shared_ptr<const Schema> schema,
                                                   Layout layout, Storage storage,
                                                   std::shared_ptr<const Value> values);
  friend const PackedView* packed_view(const TensorDict& dict) noexcept;
  friend TENDON_API LeafView leaf_view(const TensorDict& dict, std::size_t index);
  friend TENDON_API std::ostream& operator<<(std::ostream& out, const TensorDict& dict);
  [[nodiscard]] detail::Tree& mutable_tree();
  [[nodiscard]] Error missing(std::string_view path, EntryKind wanted) const;

  PackedView packed_;                   // in use when its schema is set
  std::unique_ptr<detail::Tree> tree_;  // else this one; neither: no entries
};

/// True for the same schema, the same bits of every leaf, and the same values by path.
[[nodiscard]] TENDON_API bool bitwise_equal(const TensorDict& a, const TensorDict& b);

/// Prints the tree with dtype and shape of each leaf, and the values of small ones.
TENDON_API std::ostream& operator<<(std::ostream& out, const TensorDict& dict);

}  // namespace v0
}  // namespace tendon
