// SPDX-License-Identifier: Apache-2.0
#include "cuda/registered_memory.hpp"

#include <string>

namespace tendon::v0::detail::cuda {

Result<std::shared_ptr<RegisteredMemory>> RegisteredMemory::create(
    std::shared_ptr<PrimaryContext> context, DeviceThread& thread,
    std::shared_ptr<const void> owner, std::byte* memory, std::size_t size_bytes, unsigned flags) {
  const PrimaryContext::Current current(*context);
  TENDON_CHECK(current.made());
  const DriverTable& table = context->table();
  const auto check = [&, context = context.get()](Status status, std::string_view call) {
    return context->check(status, "cuda.register",
                          std::string(call) + " of " + std::to_string(size_bytes) + " bytes for " +
                              to_string(context->device()));
  };
  // Unregistering waits for the GPU, so no other thread does it. A device thread that ends takes no
  // further jobs: its process ends too.
  std::shared_ptr<RegisteredMemory> registered(
      new RegisteredMemory(std::move(context), std::move(owner), memory),
      [&thread](RegisteredMemory* last) {
        if (last->context_->is_of_this_process()) (void)thread.post([last] { delete last; });
      });
  TENDON_CHECK(check(table.host_register(memory, size_bytes, flags), "cuMemHostRegister_v2"));
  registered->is_registered_ = true;
  TENDON_CHECK(check(table.host_get_device_address(&registered->address_, memory, 0),
                     "cuMemHostGetDevicePointer_v2"));
  return registered;
}

RegisteredMemory::~RegisteredMemory() {
  if (!is_registered_) return;
  const PrimaryContext::Current current(*context_);
  if (!current.made()) return;  // the registration has ended with the context
  context_->note_release(context_->table().host_unregister(memory_), "cuMemHostUnregister");
}

}  // namespace tendon::v0::detail::cuda
