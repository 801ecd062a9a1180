// SPDX-License-Identifier: Apache-2.0
#include "cuda/library_choice.hpp"

#include "core/environment.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::size_t kShownBytes = 64;

}  // namespace

Result<std::string> chosen_library() {
  const std::string_view word = environment_variable("TENDON_CUDA");
  if (word == "off")
    return Error{ErrorCode::not_supported, "cuda.load",
                 "CUDA is switched off by TENDON_CUDA=off: unset it to use tensors on GPUs"};
  if (!word.empty() && word != "on")
    return Error{ErrorCode::invalid_argument, "cuda.load",
                 "TENDON_CUDA is '" + cleaned(word, kShownBytes) + "': it may be 'on' or 'off'"};
  const std::string_view library = environment_variable("TENDON_CUDA_LIBRARY");
  return std::string(library.empty() ? "libcuda.so.1" : library);
}

}  // namespace tendon::v0::detail::cuda
