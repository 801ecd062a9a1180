// SPDX-License-Identifier: Apache-2.0
// TensorDicts to send, with contents that follow from a number.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "tensor/packed_copy.hpp"

namespace tendon::test {

/// Calls visit(offset, block) for each block of a pattern of `size_bytes`, in order, until it
/// returns false. The bytes depend on `seed` and on their place, so that an exchanged or missing
/// piece shows. It works by blocks, because sanitizers check each access to other memory.
template <class Visit>
bool each_block_of_pattern(std::size_t size_bytes, std::uint64_t seed, Visit visit) {
  std::array<std::uint64_t, 512> block;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::size_t at = 0; at < size_bytes; at += sizeof(block)) {
    for (std::uint64_t& word : block) {
      state += 0x9e3779b97f4a7c15ull;
      word = state ^ (state >> 29 << 8);  // makes the first bytes of neighbouring seeds differ
    }
    if (!visit(at, std::as_bytes(std::span(block)).first(std::min(sizeof(block), size_bytes - at))))
      return false;
  }
  return true;
}
inline void fill_pattern(MutableBytes bytes, std::uint64_t seed) {
  each_block_of_pattern(bytes.size(), seed, [&](std::size_t at, Bytes block) {
    std::memcpy(bytes.data() + at, block.data(), block.size());
    return true;
  });
}
inline bool has_pattern(Bytes bytes, std::uint64_t seed) {
  return each_block_of_pattern(bytes.size(), seed, [&](std::size_t at, Bytes block) {
    return std::memcmp(bytes.data() + at, block.data(), block.size()) == 0;
  });
}

inline std::shared_ptr<const Schema> bytes_schema(std::uint64_t size_bytes) {
  return Schema::make({{"x", DType::u8, {static_cast<std::int64_t>(size_bytes)}}}).value();
}
/// Makes one leaf "x" of `size_bytes` bytes with the pattern of `seed`.
inline TensorDict patterned(std::uint64_t seed, std::uint64_t size_bytes) {
  Tensor x = Tensor::empty(DType::u8, {static_cast<std::int64_t>(size_bytes)}).value();
  fill_pattern(x.mutable_bytes(), seed);
  TensorDict batch;
  batch.set("x", std::move(x));
  return batch;
}
inline testing::AssertionResult is_patterned(const TensorDict& batch, std::uint64_t seed,
                                             std::uint64_t size_bytes) {
  auto x = batch.find("x");
  if (!x) return testing::AssertionFailure() << x.error().message();
  if (x->size_bytes() != size_bytes)
    return testing::AssertionFailure() << x->size_bytes() << " bytes, not " << size_bytes;
  if (!has_pattern(x->bytes(), seed))
    return testing::AssertionFailure() << "not the bytes of message " << seed;
  return testing::AssertionSuccess();
}

/// Makes one leaf "n" that holds one number.
inline TensorDict numbered(std::int64_t n) {
  TensorDict batch;
  batch.set("n", Tensor::of<std::int64_t>({}, {n}));
  return batch;
}
inline std::int64_t number_of(const TensorDict& batch) { return batch["n"].item<std::int64_t>(); }

/// Copies the contents into the packed form.
inline TensorDict packed_copy(const TensorDict& dict, Layout layout = Layout::aligned) {
  const Storage storage = Storage::allocate(dict.schema()->layout(layout).total_bytes).value();
  detail::pack_piece(dict, layout, 0, {storage.data(), storage.size_bytes()});
  return make_packed(dict.schema(), layout, storage, dict.values()).value();
}

/// Makes a dict of up to five leaves of any dtype: some nested, without elements, strided or packed
/// by any layout. Some dicts have values.
inline TensorDict random_batch(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  TensorDict batch;
  const std::uint64_t leaves = below(6);
  for (std::uint64_t i = 0; i < leaves; ++i) {
    const auto types = dtype_table();
    const DType dtype = types[below(types.size())].dtype;
    std::vector<std::int64_t> sizes;
    for (std::uint64_t d = below(4); d > 0; --d)
      sizes.push_back(below(10) == 0 ? 0 : static_cast<std::int64_t>(1 + below(d == 1 ? 2000 : 6)));
    Tensor tensor = Tensor::empty(dtype, Shape::make(sizes).value()).value();
    fill_pattern(tensor.mutable_bytes(), random());
    if (sizes.size() >= 2 && below(2) == 0) tensor = tensor.transpose(0, 1).value();
    if (!sizes.empty() && tensor.shape()[0] > 1 && below(3) == 0)
      tensor = tensor.slice(0, 1, tensor.shape()[0]).value();
    batch.set((below(2) == 0 ? "deep/er/leaf" : "leaf") + std::to_string(i), tensor);
  }
  if (below(4) == 0) batch.set("info/step", static_cast<std::int64_t>(below(1000)));
  if (below(8) == 0) batch.set("text", std::string(below(300), 'v'));
  const std::uint64_t layout = below(8);
  return layout < 1 || layout > 3 ? batch
                                  : packed_copy(batch, Layout{static_cast<std::uint8_t>(layout)});
}

}  // namespace tendon::test
