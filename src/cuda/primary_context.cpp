// SPDX-License-Identifier: Apache-2.0
#include "cuda/primary_context.hpp"

#include <string>
#include <tendon/observe/log.hpp>

#include "cuda/driver_errors.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kRetain = "cuda.retain";

}  // namespace

Result<std::shared_ptr<PrimaryContext>> PrimaryContext::retain(Driver& driver, DeviceThread& thread,
                                                               int ordinal) {
  TENDON_CHECK(driver.initialise());
  const DriverTable& table = driver.table();
  std::shared_ptr<PrimaryContext> context(new PrimaryContext(driver, ordinal),
                                          [&thread](PrimaryContext* last) {
                                            if (last->is_of_this_process())
                                              (void)thread.post([last] { delete last; });
                                          });
  const auto check = [&](Status status, std::string_view call) {
    return context->check(status, kRetain,
                          std::string(call) + " of " + to_string(context->device()));
  };
  TENDON_CHECK(check(table.device_get(&context->number_, ordinal), "cuDeviceGet"));
  TENDON_CHECK(
      check(table.device_get_uuid(&context->uuid_, context->number_), "cuDeviceGetUuid_v2"));
  TENDON_CHECK(check(table.primary_context_retain(&context->handle_, context->number_),
                     "cuDevicePrimaryCtxRetain"));
  return context;
}

PrimaryContext::~PrimaryContext() {
  if (handle_ == nullptr) return;
  note_release(table().primary_context_release(number_), "cuDevicePrimaryCtxRelease_v2");
}

void PrimaryContext::note_release(Status status, std::string_view what) const {
  if (is_released(status)) return;
  log(LogLevel::warn, "cuda.release",
      std::string(what) + " on " + to_string(device()) + ": " + status_text(table(), status));
}

Result<void> PrimaryContext::check_usable(std::string_view where) const {
  if (!is_of_this_process()) return forked_error(where);
  const Status lost = loss();
  if (lost == Status::success) return {};
  return driver_error(table(), where, to_string(device()), lost);
}

Result<void> PrimaryContext::check(Status status, std::string_view where, std::string_view what) {
  if (loses_context(status)) {
    Status none = Status::success;
    loss_.compare_exchange_strong(none, status, std::memory_order_acq_rel);
  }
  return driver_result(table(), where, what, status);
}

PrimaryContext::Current::Current(PrimaryContext& context) : context_(context) {
  const DriverTable& table = context.table();
  const auto what = [&](std::string_view call) {
    return std::string(call) + " of " + to_string(context.device());
  };
  made_ = context.check_usable("cuda.context");
  if (!made_) {
    if (context.is_of_this_process()) status_ = context.loss();
    return;
  }
  status_ = table.context_push(context.handle());
  if (status_ != Status::success) {
    made_ = context.check(status_, "cuda.context", what("cuCtxPushCurrent_v2"));
    return;
  }
  (void)table.thread_exchange_capture_mode(&mode_);
}

PrimaryContext::Current::~Current() {
  if (!made_) return;
  const DriverTable& table = context_.table();
  (void)table.thread_exchange_capture_mode(&mode_);
  ContextHandle popped = nullptr;
  (void)table.context_pop(&popped);
}

}  // namespace tendon::v0::detail::cuda
