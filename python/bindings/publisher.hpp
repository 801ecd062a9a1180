// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <string>
#include <tendon/fabric/publisher.hpp>

#include "same_again.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Publisher. A close() that continues after Ctrl-C shares it.
struct PublisherHandle {
  nb::object node;
  std::shared_ptr<Publisher> publisher;
  Overflow overflow;
  std::chrono::milliseconds block_for;
  /// Notes of the last dict that was published; null while a call uses it.
  mutable std::shared_ptr<SameAgain> same_again = nullptr;
};

inline constexpr const char* kPublisherDoc =
    "Publishes samples on a key.\n\n"
    "key: one key, not a set of them: 'vision/objects'.\n"
    "history: the newest samples, kept for subscribers that come late or fall\n"
    "behind.\n"
    "overflow: what happens to one that falls behind. 'drop_oldest': it misses\n"
    "samples, and is told exactly which; 'block': publish() waits for it.\n"
    "block_for: seconds that a publish() without a timeout waits with 'block'; None:\n"
    "without end.\n"
    "priority: 'normal', or 'control' for commands, for which places are kept.\n"
    "schema: what its samples are, a Schema or what Schema() takes; None: anything.\n"
    "plain_peers: 'automatic': while somebody subscribes by Zenoh and not by Tendon, the newest\n"
    "sample is also put there, as safetensors; 'off'; 'bare': it is a plain Zenoh\n"
    "peer itself, which puts each sample by Zenoh alone, in publish(), and raises\n"
    "what does not work: NotSupported without Zenoh, Unreachable, MessageTooLarge.\n"
    "plain_bytes: a sample of more bytes than this is then not put.\n"
    "encoding: for plain Zenoh peers, what raw bytes are: 'application/json'; '':\n"
    "'zenoh/bytes'. Tensors are safetensors always.";
/// `Node.publisher`.
[[nodiscard]] PublisherHandle declare_publisher(nb::object node, const std::string& key,
                                                std::uint32_t history, const std::string& overflow,
                                                const std::string& priority, nb::object schema,
                                                const std::string& plain_peers,
                                                std::uint64_t plain_bytes,
                                                const std::string& encoding, nb::object block_for);

}  // namespace tendon::python
