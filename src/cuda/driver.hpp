// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "cuda/driver_table.hpp"

namespace tendon::v0::detail::cuda {

/// "12.8" for 12080, the form in which drivers state their version.
[[nodiscard]] std::string version_text(int version);

/// The driver of CUDA, found at run time. Loading it calls none of its functions, so a process that
/// only loads it stays without CUDA. initialise() makes it use CUDA, at the first tensor or device
/// argument on a GPU.
///
/// Owns:    its table; the library stays to the end of the process.
/// Threads: thread-safe.
/// Errors:  not_supported without a driver, or with one that is too old; they name the library.
///          unsupported_device if it finds no GPU or cannot use one.
/// Blocks:  load(): for the library; initialise(): for the driver, once some 100 ms.
/// Cost:    initialise() after the first time: two loads.
class TENDON_API Driver {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Driver>> load(const std::string& library);

  /// Checks the version and calls cuInit, once in a process. A child that was forked after that
  /// gets `forked`: no call may reach the driver from there.
  [[nodiscard]] Result<void> initialise();
  /// `forked` in a child of a process that used it, from which no call may reach the driver.
  [[nodiscard]] Result<void> check_process() const;
  /// True if anyone in this process called cuInit, Tendon or another library. It initialises
  /// nothing.
  [[nodiscard]] bool is_in_use() const noexcept;

  [[nodiscard]] const DriverTable& table() const noexcept { return table_; }
  /// The name by which it was loaded.
  [[nodiscard]] const std::string& library() const noexcept { return library_; }

 private:
  Driver(std::string library, const DriverTable& table)
      : library_(std::move(library)), table_(table) {}
  [[nodiscard]] Result<void> check_version() const;
  [[nodiscard]] bool is_left_to_parent() const noexcept;

  const std::string library_;
  const DriverTable table_;
  // process_number() of the process that has begun, and of the one that has finished; 0: not yet
  std::atomic<std::uint32_t> begun_in_{0};
  std::atomic<std::uint32_t> initialised_in_{0};
};

/// The driver that the environment chooses, loaded at the first call of a process. That call also
/// decides for all later ones whether there is one.
[[nodiscard]] TENDON_API Result<Driver*> process_driver();

}  // namespace tendon::v0::detail::cuda
