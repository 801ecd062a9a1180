// SPDX-License-Identifier: Apache-2.0
#include "pipe/send_to_many.hpp"

#include <utility>

#include "channel/kept_body.hpp"
#include "pipe/pipe_core.hpp"
#include "tensor/on_cpu.hpp"

namespace tendon::v0::detail {

Result<void> check_for_many(const Pipe& pipe, const TensorDict& tensors) {
  return check_size(tensors, PipeCore::core_of(pipe)->link());
}

Result<std::shared_ptr<const KeptBody>> keep_for_many(const Pipe& pipe, const TensorDict& tensors) {
  TENDON_CHECK(check_on_cpu(tensors, "pipe.send"));
  Publishing& publishing = PipeCore::core_of(pipe)->context()->publishing();
  const auto acquire = [&](std::uint64_t bytes) -> Result<std::shared_ptr<const PublishedSlot>> {
    auto slot = publishing.acquire(bytes);
    if (!slot) return std::shared_ptr<const PublishedSlot>();
    return std::shared_ptr<const PublishedSlot>(*std::move(slot));
  };
  auto kept = std::make_shared<KeptBody>();
  TENDON_CHECK(kept->pack(tensors, 0, acquire));
  return std::shared_ptr<const KeptBody>(std::move(kept));
}

Completion<void> send_kept_async(const Pipe& pipe, std::shared_ptr<const KeptBody> kept) {
  return PipeCore::core_of(pipe)->send_async(std::move(kept));
}

}  // namespace tendon::v0::detail
