// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/driver_types.hpp"

namespace tendon::cuda_double {

/// The answer that a function returns without doing its work.
struct Failure {
  int status = 0;
  std::uint64_t passage = 0;  ///< 0: each passage
};

/// The settings of the environment (double.hpp).
struct Settings {
  static Settings of_environment();

  std::vector<v0::detail::cuda::Uuid> devices;
  int version = 13000;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::uint64_t seed = 0;
  std::uint64_t delay_us = 200;
  bool in_order = false;
  bool strict = false;
  bool pins = false;
  std::map<std::string, Failure> failures;  ///< by exported name
};

/// Splits `text` at commas.
std::vector<std::string> parts_of(std::string_view text);
/// True if TENDON_CUDA_DOUBLE_MISSING names the function.
bool is_hidden(std::string_view exported_name);

}  // namespace tendon::cuda_double
