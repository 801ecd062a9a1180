// SPDX-License-Identifier: Apache-2.0
// The driver's words for its answers.
#include <array>

#include "support/cuda/functions.hpp"

namespace tendon::cuda_double {
namespace {

struct Words {
  Status status;
  const char* name;
  const char* text;
};

constexpr std::array kWords = {
    Words{Status::success, "CUDA_SUCCESS", "no error"},
    Words{Status::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    Words{Status::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    Words{Status::not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    Words{Status::deinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    Words{Status::no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    Words{Status::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    Words{Status::invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    Words{Status::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    Words{Status::ecc_uncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE",
          "uncorrectable ECC error encountered"},
    Words{Status::invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    Words{Status::not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    Words{Status::not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    Words{Status::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS",
          "an illegal memory access was encountered"},
    Words{Status::launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    Words{Status::stream_capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
          "operation not permitted when stream is capturing"},
    Words{Status::unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Words* words_of(Status status) {
  for (const Words& words : kWords)
    if (words.status == status) return &words;
  return nullptr;
}

}  // namespace

Status get_error_name(Status status, const char** text) {
  const Words* const words = words_of(status);
  *text = words != nullptr ? words->name : nullptr;
  return words != nullptr ? Status::success : Status::invalid_value;
}

Status get_error_string(Status status, const char** text) {
  const Words* const words = words_of(status);
  *text = words != nullptr ? words->text : nullptr;
  return words != nullptr ? Status::success : Status::invalid_value;
}

}  // namespace tendon::cuda_double
