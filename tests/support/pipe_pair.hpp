// SPDX-License-Identifier: Apache-2.0
// Two Contexts of one process with one pipe between them, on each path and with each kind of
// progress.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <utility>

#include "support/expect.hpp"

namespace tendon::test {

/// The path of a pipe and the progress of its connecting end.
struct Way {
  std::string_view name;
  Transport transport = Transport::automatic;
  Progress client_progress = Progress::service;

  [[nodiscard]] bool is_shm() const { return transport == Transport::shm; }
  friend std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }
};
inline constexpr Way kShm{"shm", Transport::shm, Progress::service};
inline constexpr Way kTcp{"tcp", Transport::tcp, Progress::service};
inline constexpr Way kShmManual{"shm_manual", Transport::shm, Progress::manual};
inline constexpr Way kTcpManual{"tcp_manual", Transport::tcp, Progress::manual};

inline ContextOptions with_way(ContextOptions options, const Way& way) {
  options.transport = way.transport;
  return options;
}

/// Returns an address at which nothing listens any more.
inline std::string address_of_nobody() {
  Context context = Context::create({}).value();
  return Listener::bind(context, "127.0.0.1:0").value().address();
}

/// `client` is connected to `server`. Members are destroyed bottom up; tests that depend on the
/// order move them out.
struct PipePair {
  Context client_context;
  Context server_context;
  Listener listener;
  Pipe client;
  Pipe server;
};

inline PipePair connect_pair(const Way& way, ContextOptions client = {},
                             ContextOptions server = {}) {
  client.lease = server.lease = kLongLease;
  client.name = "client";
  client.transport = way.transport;
  client.progress = way.client_progress;
  server.name = "server";
  server.transport = way.transport;
  Context client_context = Context::create(client).value();
  Context server_context = Context::create(server).value();
  Listener listener = Listener::bind(server_context, "127.0.0.1:0").value();
  Pipe from = Pipe::connect(client_context, listener.address(), kPatience).value();
  Pipe to = listener.accept(kPatience).value();
  return {std::move(client_context), std::move(server_context), std::move(listener),
          std::move(from), std::move(to)};
}

/// Opens another pipe between the contexts of `pair`.
inline std::pair<Pipe, Pipe> another_pipe(PipePair& pair) {
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  Pipe to = pair.listener.accept(kPatience).value();
  return {std::move(from), std::move(to)};
}

/// A test that runs on each way.
class PipeTest : public testing::TestWithParam<Way> {
 protected:
  [[nodiscard]] const Way& way() const { return GetParam(); }
  [[nodiscard]] PipePair connect(ContextOptions client = {}, ContextOptions server = {}) {
    return connect_pair(way(), std::move(client), std::move(server));
  }
};

inline std::string way_name(const testing::TestParamInfo<Way>& info) {
  return std::string(info.param.name);
}

}  // namespace tendon::test

/// Runs every TEST_P of `suite` on both paths.
#define TENDON_ON_BOTH_PATHS(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Paths, suite,                                                \
                           testing::Values(::tendon::test::kShm, ::tendon::test::kTcp), \
                           ::tendon::test::way_name)
/// Does the same, and repeats it with a client that makes progress only inside its calls.
#define TENDON_ON_EVERY_WAY(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(                                                                   \
      Ways, suite,                                                                            \
      testing::Values(::tendon::test::kShm, ::tendon::test::kTcp, ::tendon::test::kShmManual, \
                      ::tendon::test::kTcpManual),                                            \
      ::tendon::test::way_name)
