// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>
#include <tendon/tensor/tensor_dict.hpp>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

class SameAgain;

/// Converts a mapping from names to arrays, values and nested mappings. A tendon.TensorDict or
/// tensordict.TensorDict is also legal. No element is copied. TypeError and ValueError name the
/// key, its type, dtype and shape, and the legal ones.
TENDON_BETWEEN_MODULES [[nodiscard]] TensorDict dict_from(nb::handle object);
/// Reports every entry of a plain dict to `notes`.
[[nodiscard]] TensorDict dict_from(nb::handle object, SameAgain* notes);
/// Converts for a file: lazy stacks and tensorclasses become plain TensorDicts.
[[nodiscard]] TensorDict dict_for_file(nb::handle object);
/// The same; nullopt if the object is not a mapping.
[[nodiscard]] std::optional<TensorDict> try_dict_from(nb::handle object);
/// True for mappings that dict_from accepts.
[[nodiscard]] bool is_mapping(nb::handle object);

/// Makes a TensorDict without entries from a batch size and the names of its dimensions (a
/// sequence, or None).
[[nodiscard]] TensorDict dict_without_entries(nb::handle batch_size, nb::handle names);
/// The inverse.
[[nodiscard]] nb::tuple tuple_of(const Shape& shape);
[[nodiscard]] nb::object names_or_none(const std::vector<std::string>& names);

/// ValueError if the last name of `path` is the name reserved for Tendon.
void refuse_mark(std::string_view path);

/// The path of `batch["info", "step"]` or `batch["step"]`: every part is a literal name.
[[nodiscard]] std::string path_of(nb::handle key);
/// The entry at `path`: an array, a value or a TensorDict; NotFound.
[[nodiscard]] nb::object entry_of(const TensorDict& dict, const std::string& path);

}  // namespace tendon::python
