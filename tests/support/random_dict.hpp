// SPDX-License-Identifier: Apache-2.0
// Random TensorDicts for property tests: nested, batched, with values, any strides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tendon/tensor/path.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <utility>
#include <vector>

namespace tendon::test {

class RandomDicts {
 public:
  explicit RandomDicts(std::uint64_t seed) : random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  /// `for_files`: only element types that safetensors files can hold.
  enum class Types : std::uint8_t { all, for_files };

  TensorDict dict(Types types) { return level(batch(Shape()), types, 0); }

  std::string name() {
    static const std::vector<std::string> kNames = {
        "a",   "b",       "weight", "layer.0.bias", "x/y", "100%",   "ü",  "日本",
        "a.b", "c.\"d\"", "",       "new\nline",    "%2F", "space ", "\\", "tensordict"};
    if (pick(0, 2) == 0)
      return kNames[static_cast<std::size_t>(
          pick(0, static_cast<std::int64_t>(kNames.size()) - 1))];
    std::string text;
    for (std::int64_t i = pick(1, 12); i > 0; --i) text += static_cast<char>('a' + pick(0, 25));
    return text;
  }

  Value value(int depth = 0) {
    switch (pick(0, depth < 3 ? 8 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return pick(0, 1) == 1;
      case 2:
        return static_cast<std::int64_t>(random_());
      case 3:
        return static_cast<std::uint64_t>(random_());
      case 4:
        return std::ldexp(static_cast<double>(random_()), static_cast<int>(pick(-900, 900)));
      case 5:
        return name();
      case 6:
        return pick(0, 1) == 1 ? std::numeric_limits<double>::infinity()
                               : std::numeric_limits<double>::quiet_NaN();
      case 7: {
        Value::List list;
        for (std::int64_t i = pick(0, 3); i > 0; --i) list.push_back(value(depth + 1));
        return list;
      }
      default: {
        Value::Map map;
        for (std::int64_t i = pick(0, 3); i > 0; --i)
          map.emplace_back(name() + std::to_string(i), value(depth + 1));
        return map;
      }
    }
  }

 private:
  Shape batch(const Shape& parent) {
    std::vector<std::int64_t> sizes(parent.begin(), parent.end());
    while (sizes.size() < 3 && pick(0, 2) == 0) sizes.push_back(pick(0, 6) == 0 ? 0 : pick(1, 3));
    return Shape::make(sizes).value();
  }

  Tensor tensor(const Shape& prefix, Types types) {
    std::vector<std::int64_t> sizes(prefix.begin(), prefix.end());
    while (sizes.size() < 5 && pick(0, 1) == 0) sizes.push_back(pick(0, 9) == 0 ? 0 : pick(1, 5));
    const auto table = dtype_table();
    DType dtype = DType::u8;
    do {
      dtype = table[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(table.size()) - 1))]
                  .dtype;
    } while (types == Types::for_files && !safetensors_name(dtype));
    // The dimensions lie in memory in any order, some with gaps, some backwards.
    std::vector<std::size_t> order(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (pick(0, 1) == 0) std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::int64_t> steps(sizes.size());
    std::int64_t step = 1;
    std::int64_t offset = 0;
    for (std::size_t k = order.size(); k-- > 0;) {
      const std::size_t i = order[k];
      steps[i] = step;
      step *= std::max<std::int64_t>(sizes[i], 1) + (pick(0, 5) == 0 ? 1 : 0);
      if (sizes[i] > 0 && pick(0, 7) == 0) {
        offset += (sizes[i] - 1) * steps[i];
        steps[i] = -steps[i];
      }
    }
    const std::uint64_t item_bytes = item_size_bytes(dtype);
    const Storage storage =
        Storage::allocate(static_cast<std::uint64_t>(step) * item_bytes).value();
    for (std::uint64_t i = 0; i < storage.size_bytes(); ++i)
      storage.data()[i] = static_cast<std::byte>(random_());
    return Tensor::view(storage, static_cast<std::uint64_t>(offset) * item_bytes, dtype,
                        Shape::make(sizes).value(), Strides::make(steps).value())
        .value();
  }

  TensorDict level(const Shape& batch_size, Types types, int depth) {
    std::vector<std::string> names;
    if (pick(0, 2) == 0) {
      for (std::size_t i = 0; i < batch_size.size(); ++i)
        names.push_back(pick(0, 1) == 0 ? "" : name() + std::to_string(i));
    }
    TensorDict dict(batch_size, names);
    for (std::int64_t i = pick(0, 6); i > 0; --i) {
      const std::string path = escape_name(name());
      switch (pick(0, depth < 3 ? 4 : 3)) {
        case 0:
          dict.set(path, value());
          break;
        case 1:
          dict.set(path, tensor(Shape(), types), Batching::exempt);
          break;
        case 2:
        case 3:
          dict.set(path, tensor(batch_size, types));
          break;
        default:
          dict.set(path, level(batch(batch_size), types, depth + 1));
          break;
      }
    }
    return dict;
  }

  std::mt19937_64 random_;
};

}  // namespace tendon::test
