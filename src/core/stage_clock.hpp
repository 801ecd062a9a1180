// SPDX-License-Identifier: Apache-2.0
// Time stamps at the steps of a hand-over: benchmarks/hand_over.cpp makes the account of them that
// stands in docs/hand_over.md. Compiled in by -DTENDON_STAGE_CLOCK=ON alone, never in a release; no
// class layout depends on them.
#pragma once

#ifdef TENDON_STAGE_CLOCK
#include <x86intrin.h>

#include <cstdint>
#include <tendon/core/version.hpp>
#include <vector>

namespace tendon::v0::detail {

/// What has just been done, in the order of a hand-over.
enum class Stage : std::uint8_t {
  begun,            // by the caller: loan() or send() is called
  slot_acquired,    // loans only
  loaned,           // by the caller
  prepared,         // the message is described
  numbered,         // its pipe lets it go, with a sequence number
  slot_marked,      // loans only: the ledger says that the peer has the slot
  placed,           // in the ring, not yet seen
  shown,            // the peer can see it
  looked_at_sleep,  // the peer was woken, if it slept
  sent,             // by the caller: send() has returned
  seen,             // the receiver sees that something came
  popped,           // its descriptor is copied out of the ring
  body_made,        // slot or private copy, with its owner
  dispatched,       // in the inbox of its pipe
  taken,            // out of it
  received,         // by the caller: recv() has returned
  released,         // by the caller: what was received is gone
};

struct StageStamp {
  std::uint64_t ticks;
  Stage stage;
};

/// Where this thread's stamps go; null: nowhere. Reserved by its owner: nothing is allocated here.
inline thread_local std::vector<StageStamp>* stage_stamps = nullptr;

inline void stamp_stage(Stage stage) noexcept {
  if (stage_stamps != nullptr) stage_stamps->push_back({__rdtsc(), stage});
}

}  // namespace tendon::v0::detail

#define TENDON_STAGE(name) ::tendon::detail::stamp_stage(::tendon::detail::Stage::name)
#else
#define TENDON_STAGE(name) static_cast<void>(0)
#endif
