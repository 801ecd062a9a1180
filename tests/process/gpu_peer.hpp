// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "process/peer.hpp"
#include "process/survivor.hpp"

namespace tendon::test {

using Environment = std::map<std::string, std::string>;

/// A program of the test with GPUs of the double.
class GpuPeer : public Peer {
 public:
  GpuPeer(const std::string& name, Transport transport, const Environment& more = {},
          const std::vector<std::string>& arguments = {})
      : Peer(options(name, transport, more, arguments)) {}

  std::string prepare(std::uint64_t seed, std::uint64_t size, const std::string& device) {
    return ask("prepare " + words(seed, size) + " " + device);
  }
  /// Returns when the send has begun; line() is the answer.
  void begin_send(const std::string& milliseconds = "") {
    EXPECT_EQ(ask("send " + milliseconds), "sending");
  }
  std::string send() {
    begin_send();
    return line();
  }
  std::string receive(std::uint64_t seed, std::uint64_t size, const std::string& where,
                      const std::string& milliseconds = "") {
    return ask("recv " + words(seed, size) + " " + where + " " + milliseconds);
  }
  std::string take(std::uint64_t seed, std::uint64_t size, const std::string& where) {
    return ask("take " + words(seed, size) + " " + where);
  }
  std::uint64_t calls(const std::string& name) {
    return std::stoull(value_of(ask("calls " + name)));
  }
  std::uint64_t stat(const std::string& name) { return std::stoull(value_of(ask("stat " + name))); }
  void open_gate() { signal(SIGUSR1); }

 private:
  static std::string words(std::uint64_t seed, std::uint64_t size) {
    return std::to_string(seed) + " " + std::to_string(size);
  }
  static Options options(const std::string& name, Transport transport, Environment environment,
                         const std::vector<std::string>& more) {
    environment.insert({{"TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE},
                        {"TENDON_CUDA", "on"},
                        {"TENDON_CUDA_DOUBLE_DEVICES", "2"}});
    std::vector<std::string> arguments{"--name", name, "--transport", name_of(transport)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {arguments, environment, "gpu_main"};
  }
};

/// Makes a pipe from `sender` to `receiver`.
inline void connect(GpuPeer& sender, GpuPeer& receiver) {
  const std::string address = value_of(receiver.ask("listen"));
  ASSERT_TRUE(is_ok(sender.ask("connect " + address)));
  ASSERT_TRUE(is_ok(receiver.ask("accept")));
}

/// Connects a publisher to a subscriber.
inline void subscribe(GpuPeer& publisher, GpuPeer& subscriber) {
  const std::string address = value_of(publisher.ask("join"));
  ASSERT_TRUE(is_ok(publisher.ask("publisher")));
  (void)value_of(subscriber.ask("join " + address));
  ASSERT_TRUE(is_ok(subscriber.ask("subscriber")));
}

}  // namespace tendon::test
