// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <tendon/fabric/subscriber.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Subscriber.
struct SubscriberHandle {
  nb::object node;
  std::shared_ptr<Subscriber> subscriber;
};

inline constexpr const char* kSubscriberDoc =
    "Receives what is published on a set of keys.\n\n"
    "keys: 'vision/objects', or with wildcards: * is one part, ** any number of\n"
    "parts, $* any text inside one: 'pfc/**', 'arm$*/imu'.\n"
    "window: samples of one publisher that may be on their way or wait here.\n"
    "max_held: samples of one publisher that may be kept without a copy.\n"
    "max_age: older samples are refused [s], and are in a gap; so is one of which\n"
    "nobody can say how old it is.\n"
    "max_hz: so many samples a second of each publisher are enough; it leaves out the\n"
    "others, which are counted and in no gap.\n"
    "newest_only: of several live nodes of one name, only the one that started last\n"
    "is heard; None: when max_age is set.\n"
    "schema: what it takes, a Schema or what Schema() takes; None: anything.\n"
    "hears_plain: also what plain Zenoh peers put (Sample.plain). Excludes max_age: such\n"
    "samples have no age. None: where the node says so.\n"
    "plain_content: how they are taken. 'tensors': safetensors alone; 'bytes': every\n"
    "payload as Sample.bytes, with Sample.encoding; 'both': safetensors as tensors,\n"
    "what is none as bytes. A schema excludes the last two.\n"
    "ends: also the end of each publisher, behind its last sample: a Sample with\n"
    "ended, and neither tensors nor bytes. The event 'ended' is told in any case.";
/// `Node.subscriber`.
[[nodiscard]] SubscriberHandle declare_subscriber(
    nb::object node, const std::string& keys, std::uint32_t window, std::uint32_t max_held,
    std::optional<double> max_age, std::optional<double> max_hz, std::optional<bool> newest_only,
    nb::object schema, std::optional<bool> hears_plain, const std::string& plain_content,
    bool ends);

}  // namespace tendon::python
