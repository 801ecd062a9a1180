// SPDX-License-Identifier: Apache-2.0
#include "tensor/json_shapes.hpp"

#include <cstdint>
#include <tendon/tensor/limits.hpp>
#include <utility>

#include "tensor/json.hpp"
#include "tensor/untrusted.hpp"

namespace tendon::v0::detail {
namespace {

Error no_dimensions(std::string text) {
  return Error{ErrorCode::corrupt_data, "tensor.json", std::move(text)};
}

}  // namespace

Result<Shape> shape_of_json(const Value& value, std::string_view what) {
  const std::string name(what);
  if (value.kind() != Value::Kind::list) return no_dimensions(name + " is no list of sizes");
  std::vector<std::int64_t> sizes;
  for (const Value& size : value.as_list()) {
    if (size.kind() != Value::Kind::i64) return no_dimensions(name + " holds no integer");
    sizes.push_back(size.as_i64());
  }
  auto shape = Shape::make(sizes);
  if (shape) return shape;
  Error failed = from_outside(std::move(shape).error());
  failed.detail = name + ": " + failed.detail;
  return failed;
}

Result<std::vector<std::string>> names_of_json(const Value& value, std::size_t dimensions) {
  std::vector<std::string> names;
  if (value.is_null()) return names;
  if (value.kind() != Value::Kind::list || value.as_list().size() != dimensions)
    return no_dimensions("names are not one a batch dimension");
  for (const Value& name : value.as_list()) {
    if (!name.is_null() && name.kind() != Value::Kind::string)
      return no_dimensions("a name of a batch dimension is no string");
    names.push_back(name.is_null() ? std::string() : name.as_string());
    if (names.back().size() > kMaxNameBytes)
      return no_dimensions("the name of a batch dimension is too long");
  }
  return names;
}

void append_json_shape(std::string& out, const Shape& shape, std::string_view separator) {
  out += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += separator;
    out += std::to_string(shape[i]);
  }
  out += ']';
}

Result<void> append_json_names(std::string& out, const std::vector<std::string>& names,
                               std::string_view separator) {
  out += '[';
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 0) out += separator;
    if (names[i].empty())
      out += "null";
    else
      TENDON_CHECK(append_json_string(out, names[i]));
  }
  out += ']';
  return {};
}

}  // namespace tendon::v0::detail
