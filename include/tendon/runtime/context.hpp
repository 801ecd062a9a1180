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

/// Chooses the thread that does the work for which no call of the program waits.
enum class Progress : std::uint8_t {
  service,  ///< one thread of the Context (the default)
  manual,   ///< the program, by calling progress(); nothing happens between calls
};
TENDON_WORDS(Progress, service, manual);

/// How a waiting call spends its time before it sleeps.
enum class WaitPolicy : std::uint8_t {
  latency,   ///< spins for up to about a millisecond: fastest answer, one core busy meanwhile
  balanced,  ///< spins for about a wake-up while answers arrive that soon (the default)
  blocking,  ///< sleeps at once: least CPU
};
TENDON_WORDS(WaitPolicy, latency, balanced, blocking);

/// The path that links of this Context may take.
enum class Transport : std::uint8_t {
  automatic,  ///< the best one that can be proved (the default)
  shm,        ///< shared memory or an error
  tcp,        ///< sockets, even on one host
};
TENDON_WORDS(Transport, automatic, shm, tcp);

/// How tensors on a GPU travel to a peer on the same host.
enum class DevicePath : std::uint8_t {
  automatic,  ///< the peer reads them on the GPU where it can; else they are staged (the default)
  staged,     ///< through host memory, as over sockets
  /// As `automatic`, but a batch that would be staged fails with `not_direct` before it is sent.
  direct_only,
};
TENDON_WORDS(DevicePath, automatic, staged, direct_only);

/// The options of a Context. Every member has a default; name the ones you set. Environment
/// variables override none of them except where said.
struct ContextOptions {
  /// The name that peers see, also in their errors. Empty: the value of TENDON_NAME.
  std::string name = {};
  Progress progress = Progress::service;
  WaitPolicy wait_policy = WaitPolicy::balanced;
  /// TENDON_TRANSPORT=shm|tcp overrides `automatic`.
  Transport transport = Transport::automatic;
  /// Most bytes of messages under way to one peer, including those that it holds [bytes]; 0: the
  /// smaller of 1 GiB and a quarter of the memory limit.
  std::uint64_t link_cap_bytes = 0;
  /// Most bytes of the Context's own pool [bytes]; 0 as for link_cap_bytes. A limit, not an
  /// allocation.
  std::uint64_t pool_cap_bytes = 0;
  /// The number of bulk connections of a tcp link, 1 to 16.
  std::uint32_t streams = 1;
  /// How long the Context waits for unsent bytes when it ends.
  std::chrono::milliseconds linger{2000};
  /// A peer on another host that is silent for this long is lost; 500 ms at least.
  std::chrono::milliseconds lease{3000};
  /// Most bytes of published or kept samples, for all readers together [bytes]; 0 as for
  /// link_cap_bytes. A limit, not an allocation.
  std::uint64_t publish_bytes = 0;
  /// Most bytes of received tensors on each GPU [bytes]; 0: 1 GiB. The same limit holds separately
  /// for tensors that peers read there. A limit, not an allocation.
  std::uint64_t device_cap_bytes = 0;
  /// How this Context sends; its peers choose for themselves.
  DevicePath device_path = DevicePath::automatic;
  /// The newest minor version of the wire protocol that this Context speaks, at most
  /// kProtocolMinor. A lower one leaves out the additions of later versions, on links to every
  /// peer.
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

  /// Waits for unsent bytes, says goodbye to every peer, stops the service thread. Unsent messages
  /// are counted and reported as an `unsent` event; the result is `timeout` then.
  [[nodiscard]] Result<void> close(Deadline deadline);

  [[nodiscard]] const std::string& name() const& noexcept;
  const std::string& name() const&& = delete;
  [[nodiscard]] ContextId id() const noexcept;
  [[nodiscard]] Pool pool() const;
  /// A pool on a GPU, whose memory peers read without a copy. The call makes this process use the
  /// GPU. Errors: unsupported_device, device_lost, not_supported where there is no driver, timeout.
  [[nodiscard]] Result<GpuPool> pool(Device device, Deadline deadline) const;
  /// Describes for people the links, their paths and reasons, slots held and free, and settings.
  [[nodiscard]] std::string describe() const;
  /// The members to which this Context has links now.
  [[nodiscard]] std::vector<PeerIdentity> members() const;
  /// Hands later events to `callback`, on the service thread or inside progress(); at the end
  /// inside close() or the destructor. No lock is held. While 4096 events wait for it, further ones
  /// are only logged.
  void on_member(std::function<void(const MemberEvent&)> callback);

  /// With Progress::manual: receives and sends as much as can move now, and runs callbacks; true if
  /// anything moved. With the service thread it does nothing and returns false.
  bool progress();
  /// A descriptor for an event loop of the program: readable when there is work to do or a result.
  [[nodiscard]] int fd() const noexcept;
  /// Prepares for a sleep on fd(); call it first. False: something arrived meanwhile, do not sleep.
  [[nodiscard]] bool arm();

 private:
  friend class detail::ContextCore;
  explicit Context(std::shared_ptr<detail::ContextCore> core);
  std::shared_ptr<detail::ContextCore> core_;
};

}  // namespace v0
}  // namespace tendon
