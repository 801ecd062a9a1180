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

/// A mapping from names to arrays, values and mappings of these; a tendon.TensorDict or a
/// tensordict.TensorDict is taken as it is. No element is copied. TypeError and ValueError name
/// the key, its type, dtype and shape, and what is legal.
TENDON_BETWEEN_MODULES [[nodiscard]] TensorDict dict_from(nb::handle object);
/// Tells `notes` of every entry of a plain dict.
[[nodiscard]] TensorDict dict_from(nb::handle object, SameAgain* notes);
/// The same for a file, where lazy stacks and tensorclasses are plain TensorDicts.
[[nodiscard]] TensorDict dict_for_file(nb::handle object);
/// The same; nullopt for what is no mapping.
[[nodiscard]] std::optional<TensorDict> try_dict_from(nb::handle object);
/// True for the mappings among what dict_from takes.
[[nodiscard]] bool is_mapping(nb::handle object);

/// A batch size and the names of its dimensions (a sequence, or None) of Python, without entries.
[[nodiscard]] TensorDict dict_without_entries(nb::handle batch_size, nb::handle names);
/// The inverse.
[[nodiscard]] nb::tuple tuple_of(const Shape& shape);
[[nodiscard]] nb::object names_or_none(const std::vector<std::string>& names);

/// ValueError where the last name of `path` is the one that Tendon writes its own words under.
void refuse_mark(std::string_view path);

/// The path of `batch["info", "step"]` or `batch["step"]`: every part is a name as it is.
[[nodiscard]] std::string path_of(nb::handle key);
/// The entry at `path`: an array, a value or a TensorDict; NotFound.
[[nodiscard]] nb::object entry_of(const TensorDict& dict, const std::string& path);

}  // namespace tendon::python
