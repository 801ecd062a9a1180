// SPDX-License-Identifier: Apache-2.0
#include "channel/direct_to_host.hpp"

#include <algorithm>
#include <tendon/memory/device_target.hpp>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "channel/gpu_wait.hpp"
#include "channel/to_host.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::milliseconds kShortest{20};
constexpr std::chrono::milliseconds kLongest{2000};

}  // namespace

Result<TensorDict> direct_to_host(const DirectMessage& message, const HostTry& how,
                                  Deadline deadline) {
  const Deadline at_least(how.patience);
  if (!deadline.is_never() && deadline.time_point() < at_least.time_point()) deadline = at_least;
  how.patience = std::min(2 * how.patience + kShortest, kLongest);
  TENDON_TRY(batch, direct_batch(message, message.body));
  // The bytes are there, so any stream may read them.
  const auto& gpu = message.body->gpu();
  TENDON_TRY(work, cuda::StreamWork::begin(gpu, static_cast<cuda::StreamHandle>(kStreamPerThread),
                                           how.where));
  TENDON_TRY(room, Storage::allocate(message.schema->layout(Layout::aligned).total_bytes));
  const auto wait = [&](cuda::StreamWork& each) {
    return wait_for_gpu(each, how.context, how.link, deadline, how.usable);
  };
  TENDON_CHECK(copy_to_host(batch, room, std::move(work), *how.context->memory().devices->of(gpu),
                            deadline, wait));
  return make_packed(message.schema, Layout::aligned, std::move(room), message.values);
}

}  // namespace tendon::v0::detail
