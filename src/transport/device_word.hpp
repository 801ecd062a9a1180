// SPDX-License-Identifier: Apache-2.0
// Words of kind `device`: docs/protocol.md, "GPUs".
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/uuid.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// The meaning of a word: its `tag`. Numbers are wire contract: append only.
enum class DeviceWord : std::uint32_t {
  offer = 1,  ///< GPU number `schema` of the sender; its UUID
  /// May the peer send where the tensors lie? Answer number `sequence`, from 1 on, about GPU
  /// `schema` of its offers; `slot`: a DeviceAnswer. The last number counts.
  answer = 2,
  /// shm, on the socket with a descriptor: a segment on GPU `schema`, with its UUID; otherwise as
  /// kind `segment`
  segment = 3,
  incomplete = 4,  ///< the device part with word `sequence` will not be there
  gone = 5,        ///< no slot of segment `segment_or_inline_bytes` is shown any more
  registers = 6,   ///< shm: do pages of your segments stay? GPUs here are to have them; once
  pages_stay = 7,  ///< the answer: they do from now on
};

/// Numbers are wire contract: append only.
enum class DeviceAnswer : std::uint32_t {
  direct = 0,      ///< on the socket, with the descriptor of ReadyWords
  unused = 1,      ///< this process has not used that GPU, which it may not even have
  unmappable = 2,  ///< its driver cannot map that memory
};

static_assert(offsetof(Descriptor, offset) == offsetof(Descriptor, generation) + 8 &&
              sizeof(cuda::Uuid) == 16);

[[nodiscard]] inline Descriptor device_word(DeviceWord what, std::uint32_t number) noexcept {
  Descriptor word;
  word.kind = MessageKind::device;
  word.tag = static_cast<std::uint32_t>(what);
  word.schema = number;
  return word;
}
[[nodiscard]] inline Descriptor device_word(DeviceWord what, std::uint32_t number,
                                            const cuda::Uuid& gpu) noexcept {
  Descriptor word = device_word(what, number);
  std::memcpy(&word.generation, gpu.bytes.data(), 8);
  std::memcpy(&word.offset, gpu.bytes.data() + 8, 8);
  return word;
}
[[nodiscard]] inline cuda::Uuid uuid_of(const Descriptor& word) noexcept {
  cuda::Uuid gpu;
  std::memcpy(gpu.bytes.data(), &word.generation, 8);
  std::memcpy(gpu.bytes.data() + 8, &word.offset, 8);
  return gpu;
}

}  // namespace tendon::v0::detail
