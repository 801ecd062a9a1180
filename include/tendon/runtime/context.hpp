// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/member_event.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/version.hpp>
#include <tendon/core/words.hpp>
#include <tendon/memory/pool.hpp>
#include <tendon/session/identity.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

class GpuPool;

namespace detail {
class ContextCore;
}

/// What does the work that no call of yours is waiting for.
enum class Progress : std::uint8_t {
  service,  ///< one thread of the Context (the default)
  manual,   ///< you, by calling progress(); nothing happens between calls
};
TENDON_WORDS(Progress, service, manual);

/// What a waiting call does before it sleeps.
enum class WaitPolicy : std::uint8_t {
  latency,   ///< spins for up to about a millisecond: fastest answer, one core busy meanwhile
  balanced,  ///< spins for about a wake-up while what it waits for comes that soon (the default)
  blocking,  ///< sleeps at once: least CPU
};
TENDON_WORDS(WaitPolicy, latency, balanced, blocking);

/// Which path links of this Context may take.
enum class Transport : std::uint8_t {
  automatic,  ///< the best one that can be proved (the default)
  shm,        ///< shared memory or an error
  tcp,        ///< sockets even on one host
};
TENDON_WORDS(Transport, automatic, shm, tcp);

/// How tensors on a GPU travel to a peer on the same host.
enum class DevicePath : std::uint8_t {
  automatic,  ///< the peer reads them on the GPU where it can, else they are staged (the default)
  staged,     ///< through host memory, as over sockets
  /// As `automatic`, and what would be staged is `not_direct`, before anything is sent.
  direct_only,
};
TENDON_WORDS(DevicePath, automatic, staged, direct_only);

/// Every member has a default; name the ones you set. Environment variables override none of them
/// except where said.
struct ContextOptions {
  /// Said to peers; names this process in their errors. TENDON_NAME if empty.
  std::string name = {};
  Progress progress = Progress::service;
  WaitPolicy wait_policy = WaitPolicy::balanced;
  /// TENDON_TRANSPORT=shm|tcp overrides `automatic`.
  Transport transport = Transport::automatic;
  /// Most bytes of messages under way to one peer, held by it included [bytes]; 0: the smaller of 1
  /// GiB and a quarter of the memory limit.
  std::uint64_t link_cap_bytes = 0;
  /// Most bytes of the Context's own pool [bytes]; 0 as above. A limit, not an allocation.
  std::uint64_t pool_cap_bytes = 0;
  /// Bulk connections of a tcp link, 1 to 16.
  std::uint32_t streams = 1;
  /// How long the end of the Context waits for unsent bytes.
  std::chrono::milliseconds linger{2000};
  /// Silence across hosts after which a peer is lost, 500 ms at least.
  std::chrono::milliseconds lease{3000};
  /// Most bytes of samples that are published or kept, for all readers together [bytes]; 0 as
  /// link_cap_bytes. A limit, not an allocation.
  std::uint64_t publish_bytes = 0;
  /// Most bytes on each GPU of tensors that this Context has received, and as many of those that
  /// it sends to peers which read them there [bytes]; 0: 1 GiB. A limit, not an allocation.
  std::uint64_t device_cap_bytes = 0;
  /// This Context sends that way; its peers choose their own.
  DevicePath device_path = DevicePath::automatic;
  /// The newest minor version of the wire protocol that this Context speaks, at most
  /// kProtocolMinor. A lower one leaves out what later versions added, for links to every peer.
  std::uint16_t protocol_minor = kProtocolMinor;
};

/// The root object: identity, memory, progress, links to peers.
///
/// Example:
///   Context context = Context::create({.name = "loader"}).value();
///   context.on_member([](const MemberEvent& event) { std::cerr << event << '\n'; });
///   Listener listener = Listener::bind(context, "127.0.0.1:7000").value();
///   Pipe pipe = listener.accept(30s).value();
///   pipe.send(batch, 5s).value();
///   context.close(5s).value();  // all that was sent has left
///
/// Owns:    the service thread, the pool, every link. Pipes, listeners and received tensors share
///          its state, so they may be destroyed in any order; after close() they return
///          `context_closed`.
/// Threads: safe everywhere.
/// Errors:  invalid_argument, too_many_open_files, system. In a forked child every call that
///          returns a Result returns `forked`; members() is empty, on_member() and progress() do
///          nothing.
/// Blocks:  create(): 1 ms, once. close(): until its deadline. The destructor: at most `linger`.
/// Cost:    one thread, one epoll. While idle: nothing without links, with links two wake-ups a
///          second and two more for each peer over tcp.
class TENDON_API Context {
 public:
  [[nodiscard]] static Result<Context> create(ContextOptions options = {});

  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Waits for unsent bytes, says goodbye to every peer, stops the service thread. What could not
  /// be sent is counted and reported as an `unsent` event; the result is `timeout` then.
  [[nodiscard]] Result<void> close(Deadline deadline);

  [[nodiscard]] const std::string& name() const& noexcept;
  const std::string& name() const&& = delete;
  [[nodiscard]] ContextId id() const noexcept;
  [[nodiscard]] Pool pool() const;
  /// Memory on a GPU that peers read without a copy. It makes this process use the GPU. Errors:
  /// unsupported_device, device_lost, not_supported where there is no driver, timeout.
  [[nodiscard]] Result<GpuPool> pool(Device device, Deadline deadline) const;
  /// Links, their paths and reasons, slots held and free, settings: text for people.
  [[nodiscard]] std::string describe() const;
  /// Members this Context has links to now.
  [[nodiscard]] std::vector<PeerIdentity> members() const;
  /// `callback` gets the events from now on, on the service thread or inside progress(), at the end
  /// inside close() or the destructor; under no lock. While 4096 events wait for it, further ones
  /// are only logged.
  void on_member(std::function<void(const MemberEvent&)> callback);

  /// Progress::manual: takes in and sends what can be moved now, runs callbacks; true if anything
  /// moved. With the service thread it does nothing and returns false.
  bool progress();
  /// A descriptor for an event loop of yours, readable when there is something to do or to collect.
  [[nodiscard]] int fd() const noexcept;
  /// Call before sleeping on fd(). False: something arrived meanwhile, do not sleep.
  [[nodiscard]] bool arm();

 private:
  friend class detail::ContextCore;
  explicit Context(std::shared_ptr<detail::ContextCore> core);
  std::shared_ptr<detail::ContextCore> core_;
};

}  // namespace v0
}  // namespace tendon
