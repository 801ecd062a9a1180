// SPDX-License-Identifier: Apache-2.0
// Time stamps at the steps of a hand-over, from which benchmarks/hand_over.cpp makes the account in
// docs/hand_over.md. Compiled in only by -DTENDON_STAGE_CLOCK=ON, never in a release; no class
// layout depends on them.
#pragma once

#ifdef TENDON_STAGE_CLOCK
#include <x86intrin.h>

#include <cstdint>
#include <tendon/core/version.hpp>
#include <vector>

namespace tendon::v0::detail {

/// The step just completed, in the order of a hand-over.
enum class Stage : std::uint8_t {
  begun,            // by the caller: loan() or send() is called
  slot_acquired,    // loans only
  loaned,           // by the caller
  prepared,         // the message is described
  numbered,         // its pipe releases it, with a sequence number
  slot_marked,      // loans only: the ledger says that the peer has the slot
  placed,           // in the ring, not yet seen
  shown,            // the peer can see it
  looked_at_sleep,  // the peer was woken, if it slept
  sent,             // by the caller: send() has returned
  seen,             // the receiver sees that something arrived
  popped,           // its descriptor is copied out of the ring
  body_made,        // slot or private copy, with its owner
  dispatched,       // in the inbox of its pipe
  taken,            // out of it
  received,         // by the caller: recv() has returned
  released,         // by the caller: the received message is dropped
};

struct StageStamp {
  std::uint64_t ticks;
  Stage stage;
};

/// The stamps of this thread; null: none. Reserved by its owner: nothing is allocated here.
inline thread_local std::vector<StageStamp>* stage_stamps = nullptr;

inline void stamp_stage(Stage stage) noexcept {
  if (stage_stamps != nullptr) stage_stamps->push_back({__rdtsc(), stage});
}

}  // namespace tendon::v0::detail

#define TENDON_STAGE(name) ::tendon::detail::stamp_stage(::tendon::detail::Stage::name)
#else
#define TENDON_STAGE(name) static_cast<void>(0)
#endif
