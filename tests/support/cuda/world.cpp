// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/world.hpp"

#include "cuda/gather_ptx.hpp"

namespace tendon::cuda_double {
namespace {

std::atomic<World*> the_world{nullptr};

/// The state of a thread in a world; a new world resets it.
struct OfThread {
  World* world = nullptr;
  std::vector<Context*> contexts;
  CaptureMode mode = CaptureMode::global;
};

OfThread& of_thread() {
  thread_local OfThread mine;
  if (mine.world != &world()) mine = OfThread{&world(), {}, CaptureMode::global};
  return mine;
}

}  // namespace

World::World(World* one_before)
    : before(one_before), settings(Settings::of_environment()), hesitation(settings.seed) {
  kernels[v0::detail::cuda::kGatherKernel] = gather_kernel();
  bytes_given_out.resize(settings.devices.size());
  for (std::size_t device = 0; device < settings.devices.size(); ++device) {
    contexts.emplace_back();
    contexts.back().device = static_cast<int>(device);
  }
}

World& world() {
  World* known = the_world.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  auto mine = std::make_unique<World>(nullptr);
  if (the_world.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel))
    return *mine.release();
  return *known;
}

void make_world_anew() {
  World& old = world();
  the_world.store(new World(&old), std::memory_order_release);
  WorldLock lock(old.mutex);
  for (Context& context : old.contexts) {
    lose(old, context, Status::context_is_destroyed);
    const auto streams = context.streams;
    for (const auto& stream : streams) close_stream(old, stream);
  }
  while (old.running > 0) old.changed.wait(lock);
  old.addresses.give_back();
  old.events.clear();
}

std::vector<Context*>& current_contexts() { return of_thread().contexts; }
CaptureMode& capture_mode() { return of_thread().mode; }

}  // namespace tendon::cuda_double
