// SPDX-License-Identifier: Apache-2.0
#include "session/lookup_gate.hpp"

#include <pthread.h>

#include <tendon/core/deadline.hpp>

#include "core/process_wide.hpp"

namespace tendon::v0::detail {
namespace {

// A child has its own gate, so a fork changes nothing in the child.
constinit PerProcess<LookupGate> gate_of_process;

}  // namespace

/// The functions that fork() calls. The attributes cannot express a lock that one function takes
/// and another releases.
struct LookupForks {
  static void prepare() TENDON_UNCHECKED_LOCKS {
    LookupGate& gate = gate_of_process.get();
    gate.mutex_.lock();
    const Deadline deadline = LookupGate::kForkWaits;
    while (gate.inside_ > 0 && gate.left_.wait_until(gate.mutex_, deadline)) {
    }
  }
  static void parent() TENDON_UNCHECKED_LOCKS { gate_of_process.get().mutex_.unlock(); }
};

namespace {

// Registered when the program or library is loaded, before any look-up.
[[maybe_unused]] const int kRegistered =
    pthread_atfork(&LookupForks::prepare, &LookupForks::parent, nullptr);

}  // namespace

LookupGate::Inside::Inside() : gate_(gate_of_process.get()) {
  const Lock lock(gate_.mutex_);
  ++gate_.inside_;
}

LookupGate::Inside::~Inside() {
  const Lock lock(gate_.mutex_);
  if (--gate_.inside_ == 0) gate_.left_.notify_all();
}

}  // namespace tendon::v0::detail
