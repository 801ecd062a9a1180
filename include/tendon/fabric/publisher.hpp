// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/formerly.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/qos.hpp>
#include <tendon/memory/device_target.hpp>
#include <tendon/tensor/loan.hpp>
#include <tendon/tensor/schema.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

class Node;

namespace detail {
class PublisherCore;
class SignalledPublish;
}  // namespace detail

/// Whether a publisher also serves plain Zenoh peers: programs that use Zenoh and not Tendon.
enum class PlainPeers : std::uint8_t {
  automatic,  ///< they are served while Zenoh reports a subscriber to the key
  off,        ///< they are not served
  /// The publisher is a plain peer itself. publish() puts each sample by Zenoh alone, without the
  /// attachment by which subscribers of Tendon know each other's samples. It is not announced and
  /// has no links and no history; subscribers of Tendon hear it by SubscriberOptions::hears_plain.
  bare,
};
TENDON_WORDS(PlainPeers, automatic, off, bare);

struct PublisherOptions {
  Qos qos = {};
  /// Deprecated: qos.history, qos.overflow, qos.priority.
  Formerly<History> history = {};
  Formerly<Overflow> overflow = {};
  Formerly<Priority> priority = {};
  /// The schema of its samples; null: any TensorDict, and raw bytes.
  std::shared_ptr<const Schema> schema = nullptr;
  /// While somebody subscribes by Zenoh, a thread of the Context also puts the newest sample there:
  /// tensors as safetensors, raw bytes as they are. See docs/fabric.md.
  PlainPeers plain_peers = PlainPeers::automatic;
  /// Deprecated: plain_peers.
  Formerly<PlainPeers> plain = {};
  /// The largest sample that plain peers get [bytes]: 1 to kMaxPlainBytes.
  std::uint64_t plain_bytes = kDefaultPlainBytes;
  /// The encoding of raw bytes for plain Zenoh peers, as Zenoh writes it: "application/json". UTF-8
  /// without control characters, of at most kMaxEncodingBytes. Empty: "zenoh/bytes". Tensors are
  /// always put as "application/octet-stream;safetensors".
  std::string encoding = {};
  /// With Overflow::block: how long a publish() without a deadline waits for subscribers that are
  /// behind. Zero: not at all; milliseconds::max(): without end. With any overflow: how long it
  /// waits for the GPU on which the sample lies.
  std::chrono::milliseconds block_for{30'000};
};

/// The result of publishing a sample.
struct Published {
  std::uint64_t sequence = 0;  ///< 1, 2, 3, ...
  /// Subscribers that have it, or to which it is on its way. It counts no subscriber that leaves it
  /// out because of its `max_hz`, and no plain Zenoh peer. With PlainPeers::bare: 1 if Zenoh took
  /// it and reports a subscriber; Zenoh does not report how many.
  std::uint32_t shown = 0;
  /// Subscribers that are behind, by name: they see it later, or it is in a gap of theirs.
  std::vector<std::string> lagging{};
};

struct PublisherStats {
  std::uint64_t published = 0;
  std::uint64_t history_trimmed = 0;  ///< samples dropped early, for want of `publish_bytes`
  std::uint64_t thinned = 0;      ///< samples left out because of a `max_hz`, of all subscribers
  std::uint64_t subscribers = 0;  ///< now; plain Zenoh peers are not counted
  std::uint64_t plain_put = 0;    ///< samples that Zenoh took for plain peers
  /// Samples that were not put while somebody subscribed by Zenoh. A newer one took their place,
  /// they were larger than `plain_bytes`, lay on a GPU, or Zenoh did not take them.
  std::uint64_t plain_dropped = 0;
  /// Subscribers that are behind now, by name.
  std::vector<std::string> lagging{};
  /// Samples that were copied for one subscriber, because kept and waiting samples had used up the
  /// share of `publish_bytes` of this one, or of all together.
  std::uint64_t copied_over_share = 0;
  std::uint64_t copies_d2h = 0;  ///< samples copied from a GPU to host memory, to be published
  std::uint64_t bytes_d2h = 0;   ///< of their leaves there
  std::uint64_t copies_d2d = 0;  ///< samples copied on a GPU, for subscribers that read there
  std::uint64_t bytes_d2d = 0;   ///< of their leaves there
};

/// Publishes samples on one key, to any number of subscribers, without knowing them.
///
/// Example:
///   Publisher frames = Publisher::declare(node, "vision/frames").value();
///   frames.wait_for_subscribers(1, 10s).value();
///   const auto schema = Schema::make({{"image", DType::u8, {480, 640, 3}}}).value();
///   Loan frame = frames.loan(schema).value();  // written once, read in place by each subscriber
///   std::ranges::fill(frame["image"].mutable_bytes(), std::byte{0});
///   Published published = frames.publish(std::move(frame)).value();
///   if (!published.lagging.empty()) std::cerr << published.lagging.front() << " is behind\n";
///   frames.close(5s).value();
///
/// Owns:    a history of its last samples, in the Context's publish pool; a cursor in it for each
///          subscriber. There are no queues. A subscriber that falls behind the history misses
///          samples, and learns exactly which.
/// Threads: safe everywhere.
/// Errors:  resource_exhausted when subscribers hold all of `publish_bytes` (names them),
///          schema_mismatch, message_too_large, pipe_closed after close(). For leaves on a GPU:
///          unsupported_device, not_contiguous, device_lost, invalid_argument for a stream under
///          capture, timeout. With PlainPeers::bare: not_supported from declare() for a node
///          without Zenoh, and from loan(); `unreachable` when Zenoh does not take a sample.
/// Blocks:  publish() with Overflow::block, or of leaves on a GPU, until its deadline; without one
///          it waits at most PublisherOptions::block_for. loan() on a GPU. wait_for_subscribers().
///          close(), and the destructor for ContextOptions::linger at most, until subscribers were
///          shown the whole history.
/// Cost:    one copy of the sample in all, none of a loan, whatever the number of subscribers on
///          this host; over tcp the kernel copies once for each. Up to 8 KiB travel without a slot.
class TENDON_API Publisher {
 public:
  /// Makes a publisher on one key, not on a set of keys: "vision/objects".
  [[nodiscard]] static Result<Publisher> declare(Node& node, std::string_view key,
                                                 PublisherOptions options = {});
  Publisher(Publisher&&) noexcept;
  Publisher& operator=(Publisher&&) noexcept;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  ~Publisher();

  /// Shows the sample to each subscriber that can take it. With Overflow::block it then waits for
  /// the others, and succeeds although some lag. A subscriber that missed a deadline is not waited
  /// for again until it takes something. `Deadline::now()` waits for nobody.
  ///
  /// It does not wait for a subscriber of the same Context from which only the calling thread
  /// receives, or from which nobody has received yet. Such a subscriber lags at once, and a
  /// `lagging` event says why.
  ///
  /// Leaves may lie in host memory and, without gaps, on one GPU. They are copied there, or to host
  /// memory, after the work that the stream of `on` has now; the sample is shown when that is done.
  /// publish() waits for that too, until the deadline; `timeout` then says that nothing was
  /// published. Plain Zenoh peers do not get such samples. Subscribers with an older Tendon do not
  /// either, and the event `not_taken` names them. A publisher with PlainPeers::bare refuses them.
  [[nodiscard]] Result<Published> publish(const TensorDict& sample, const OnStream& on = {});
  [[nodiscard]] Result<Published> publish(const TensorDict& sample, Deadline deadline,
                                          const OnStream& on = {});
  [[nodiscard]] Result<Published> publish(Bytes sample);
  [[nodiscard]] Result<Published> publish(Bytes sample, Deadline deadline);

  /// Returns memory for a sample of this schema, to be filled and published without a copy. Its
  /// contents are unspecified. Errors: those of publish().
  [[nodiscard]] Result<Loan> loan(const std::shared_ptr<const Schema>& schema);
  /// Returns memory on a GPU from the Context's pool, which all its peers there share; a pipe of
  /// the Context can send it too. Waits until there is room. Errors: resource_exhausted (bytes, and
  /// who holds most), message_too_large, unsupported_device, device_lost, not_supported where there
  /// is no driver.
  [[nodiscard]] Result<Loan> loan(const std::shared_ptr<const Schema>& schema,
                                  const LoanOptions& options, Deadline deadline);
  /// Consumes the loan only on success. `wrong_link` for a pipe's loan in host memory, and for a
  /// loan of another Context. A loan on a GPU is shown when the GPU has done the work of the stream
  /// of `on`, without a copy to subscribers that read it there; others get it as any sample on a
  /// GPU.
  [[nodiscard]] Result<Published> publish(Loan&& sample, const OnStream& on = {});
  [[nodiscard]] Result<Published> publish(Loan&& sample, Deadline deadline,
                                          const OnStream& on = {});

  /// Waits for `count` subscribers that were shown the history. All plain Zenoh peers together
  /// count as one, because Zenoh says only whether there is any. A subscriber of Tendon that
  /// listens to plain peers counts by its channel alone. While the key has such a subscriber, plain
  /// peers are not counted, because Zenoh cannot tell them apart. Errors: timeout, with their
  /// number.
  [[nodiscard]] Result<void> wait_for_subscribers(std::size_t count, Deadline deadline);
  [[nodiscard]] const std::string& key() const& noexcept;
  const std::string& key() const&& = delete;
  [[nodiscard]] PublisherStats stats() const;
  /// Accepts no new subscriber. Waits for subscribers that are behind, for those that lost their
  /// link within the lease and may return, and for Zenoh to take the samples for plain peers. Then
  /// it withdraws the announcement and ends all channels. `timeout` names those that were not shown
  /// everything, and a FabricEvent `unsent` each of them: their channels end too, and they learn
  /// which samples they miss. The destructor does not wait for lost links.
  [[nodiscard]] Result<void> close(Deadline deadline);

 private:
  friend class detail::SignalledPublish;
  explicit Publisher(std::shared_ptr<detail::PublisherCore> core);
  std::shared_ptr<detail::PublisherCore> core_;
};

namespace detail {

/// publish() for a language whose programs are interrupted while a call waits, as by Ctrl-C. Not
/// part of the API.
///
/// Owns:    nothing.
/// Threads: as Publisher.
/// Errors:  as Publisher.
/// Blocks:  as Publisher. The same thread calls `go_on` about every 50 ms of a wait, under no lock;
///          false ends the wait, and no subscriber counts as late for it.
/// Cost:    as Publisher.
class TENDON_API SignalledPublish {
 public:
  using GoOn = std::function<bool()>;
  /// Publishes as publish() does; without a deadline as its form without one.
  [[nodiscard]] static Result<Published> publish(Publisher& publisher, const TensorDict& sample,
                                                 std::optional<Deadline> deadline,
                                                 const OnStream& on, const GoOn& go_on);
  [[nodiscard]] static Result<Published> publish(Publisher& publisher, Bytes sample,
                                                 Deadline deadline, const GoOn& go_on);
  /// The same.
  [[nodiscard]] static Result<Published> publish(Publisher& publisher, Loan&& sample,
                                                 std::optional<Deadline> deadline,
                                                 const OnStream& on, const GoOn& go_on);
};

}  // namespace detail
}  // namespace v0
}  // namespace tendon
