// SPDX-License-Identifier: Apache-2.0
// The limits of the control plane. They hold for what is sent and for what peers say, and are
// compared before anything is kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tendon {
inline namespace v0 {

/// StepInputs::payload, StepOutputs::payload [bytes]. Larger data travels as tensors beside it.
inline constexpr std::uint64_t kMaxStepPayloadBytes = std::uint64_t{16} << 20;
/// Messages that a sender of a flow keeps to send them again [bytes]. A receiver that needs an
/// older message takes no further part in this roster.
inline constexpr std::uint64_t kMaxRetainedBytes = std::uint64_t{64} << 20;
/// Messages of one flow that arrived before an earlier one did.
inline constexpr std::size_t kMaxParkedMessages = 1024;
/// Their payloads [bytes], for each sender. Messages beyond that are dropped, and asked for again.
inline constexpr std::uint64_t kMaxParkedBytes = std::uint64_t{64} << 20;
/// Words to one peer that its pipe has not sent yet. The pipe ends when there are more.
inline constexpr std::size_t kMaxUnsentWords = 1024;
/// The same in bytes. Messages that are sent again wait to be asked for once more.
inline constexpr std::uint64_t kMaxUnsentWordBytes = std::uint64_t{64} << 20;
/// One word that sends nothing again [bytes].
inline constexpr std::size_t kMaxWordBytes = std::size_t{256} << 10;
/// A heartbeat [bytes], and the flows and ranks in it.
inline constexpr std::size_t kMaxHeartbeatBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxHeartbeatEntries = 1024;
/// A reason, or what a worker waits for, in a word [bytes]: a longer text is cut after a whole
/// character.
inline constexpr std::size_t kMaxControlTextBytes = 2048;
/// Texts that workers leave at the controller to find each other: their number, and their bytes
/// with the keys. A worker has its part of both, and they are forgotten when it ends.
inline constexpr std::size_t kMaxStoreKeys = 4096;
inline constexpr std::size_t kMaxStoreBytes = std::size_t{32} << 20;
/// One such text, and its key [bytes].
inline constexpr std::size_t kMaxStoreValueBytes = 65536;
inline constexpr std::size_t kMaxStoreKeyBytes = 1024;
/// Texts for which one worker waits.
inline constexpr std::size_t kMaxStoreQuestions = 64;
/// Time from accepting a connection to a flow to the end of its handshake; a slower one is closed.
inline constexpr std::chrono::milliseconds kFlowHandshakeTimeout{2000};
/// Connections to one flow between hosts whose handshakes have not ended; kConnectionsPerSource
/// from one host. A newcomer replaces the oldest.
inline constexpr std::size_t kHandshakesPerFlow = 64;
/// Connections to a controller that have not said which rank they are; a newcomer replaces the
/// oldest.
inline constexpr std::size_t kMaxUnseatedWorkers = 64;
/// Steps whose outputs are all there and were not collected: broadcast() accepts no further ones.
inline constexpr std::size_t kMaxUncollectedSteps = 1024;
/// Attempts of a controller to form one roster.
inline constexpr std::uint32_t kMaxRosterAttempts = 3;

}  // namespace v0
}  // namespace tendon
