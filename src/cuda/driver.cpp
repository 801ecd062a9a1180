// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <optional>

#include "core/fork_guard.hpp"
#include "core/process_wide.hpp"
#include "cuda/driver_errors.hpp"
#include "cuda/library.hpp"
#include "cuda/library_choice.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kLoad = "cuda.load";
constexpr std::string_view kInitialise = "cuda.initialise";

template <class F>
F* function_at(void* address) {
  return reinterpret_cast<F*>(address);
}

/// Fills the table. Returns the name of the first missing function that every driver has with which
/// Tendon works.
std::optional<std::string_view> fill(DriverTable& table, const Library& library) {
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters)           \
  table.field = function_at<Status parameters>(library.symbol(#exported)); \
  if (table.field == nullptr && (since) <= kOldestDriver) return std::string_view(#exported);
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
  return std::nullopt;
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Result<std::unique_ptr<Driver>> Driver::load(const std::string& library) {
  const Result<Library> opened = Library::open(library);
  if (!opened)
    return Error{ErrorCode::not_supported, kLoad,
                 "the driver of CUDA cannot be loaded: " + opened.error().detail +
                     "; install the driver, or let TENDON_CUDA_LIBRARY name its libcuda.so.1"};
  DriverTable table;
  if (const auto missing = fill(table, *opened))
    return Error{ErrorCode::not_supported, kLoad,
                 library + " has no function " + std::string(*missing) +
                     ", which drivers of CUDA " + version_text(kOldestDriver) +
                     " and later have: update the driver, or see that TENDON_CUDA_LIBRARY names "
                     "a driver"};
  return std::unique_ptr<Driver>(new Driver(library, table));
}

Result<void> Driver::check_version() const {
  int version = 0;
  TENDON_CHECK(driver_result(table_, kInitialise, "cuDriverGetVersion of " + library_,
                             table_.driver_get_version(&version)));
  if (version >= kOldestDriver) return {};
  return Error{ErrorCode::not_supported, kInitialise,
               "the driver " + library_ + " is of CUDA " + version_text(version) +
                   ", and Tendon needs " + version_text(kOldestDriver) +
                   " or later: update the driver"};
}

bool Driver::is_left_to_parent() const noexcept {
  const std::uint32_t known = begun_in_.load(std::memory_order_acquire);
  return known != 0 && known != process_number();
}

Result<void> Driver::check_process() const {
  if (!is_left_to_parent()) return {};
  return forked_error(kInitialise);
}

Result<void> Driver::initialise() {
  if (initialised_in_.load(std::memory_order_acquire) == process_number()) return {};
  TENDON_CHECK(check_process());
  TENDON_CHECK(check_version());
  // A child that is forked while the driver begins cannot use it either.
  begun_in_.store(process_number(), std::memory_order_release);
  // Several threads may do this at once: a further cuInit does nothing.
  const Status status = table_.init(0);
  if (status != Status::success) {
    Error error = driver_error(table_, kInitialise, "cuInit of " + library_, status);
    // No context exists yet that could be lost.
    if (error.code == ErrorCode::device_lost) error.code = ErrorCode::unsupported_device;
    return error;
  }
  initialised_in_.store(process_number(), std::memory_order_release);
  return {};
}

bool Driver::is_in_use() const noexcept {
  if (is_left_to_parent()) return false;
  if (initialised_in_.load(std::memory_order_acquire) == process_number()) return true;
  int count = 0;
  return table_.device_get_count(&count) != Status::not_initialized;
}

Result<Driver*> process_driver() {
  // A forked child keeps that of its parent: the library and its addresses are the same there.
  static constinit MadeOnce<Result<std::unique_ptr<Driver>>> made;
  auto& loaded = made.get([] {
    Result<std::string> library = chosen_library();
    return std::make_unique<Result<std::unique_ptr<Driver>>>(
        library ? Driver::load(*library) : Result<std::unique_ptr<Driver>>(library.error()));
  });
  if (!loaded) return loaded.error();
  return loaded->get();
}

}  // namespace tendon::v0::detail::cuda
