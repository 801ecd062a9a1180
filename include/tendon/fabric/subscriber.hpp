// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/formerly.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/sample.hpp>
#include <tendon/memory/device_target.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/schema.hpp>

namespace tendon {
inline namespace v0 {

class Node;

namespace detail {
class SampleThread;
class SubscriberCore;
}  // namespace detail

/// The range of SubscriberOptions::max_hz.
inline constexpr double kLeastMaxHz = 0.001;
inline constexpr double kMostMaxHz = 1e6;

/// The form in which a subscriber takes messages of plain Zenoh peers.
enum class PlainContent : std::uint8_t {
  tensors,  ///< safetensors, as Sample::tensors; everything else is refused
  bytes,    ///< every payload, as Sample::bytes, with Sample::encoding: JSON, Protobuf, CDR
  both,     ///< safetensors as tensors, everything else as bytes
};
TENDON_WORDS(PlainContent, tensors, bytes, both);

struct SubscriberOptions {
  /// Samples of one publisher that may be on their way or wait here, 1 to kPipeWindowMessages.
  std::uint32_t window = 16;
  /// Samples of one publisher that may be kept without a copy.
  std::uint32_t max_held = 4;
  /// The greatest age of a sample; older ones are in a gap (`expired`). A sample of unknown age
  /// counts as too old. The clocks of the two Contexts are compared over their link, to half of its
  /// round trip; the peer must speak protocol 1.1 and make progress.
  std::optional<std::chrono::nanoseconds> max_age = std::nullopt;
  /// The most samples a second of each publisher, on the average: kLeastMaxHz to kMostMaxHz. The
  /// publisher leaves out the others, which are counted and in no gap. Even the newest sample may
  /// be left out.
  std::optional<double> max_hz = std::nullopt;
  /// Whether only the newest of several live nodes of one name that publish on one key is followed,
  /// as long as the link to it lives. Samples of the others are dropped and counted. Empty: true if
  /// `max_age` is set.
  std::optional<bool> newest_only = std::nullopt;
  /// Called with each sample, in a thread of the subscriber; recv() returns `busy` to others then.
  /// Its exceptions are logged, and the next sample follows. While it runs samples wait in the
  /// window, and beyond that in no queue: see Gap. Tensors of a GPU are handed over in host memory.
  std::function<void(Sample)> on_sample = nullptr;
  /// The schema that it takes; null: any. It does not connect to a publisher of another schema.
  std::shared_ptr<const Schema> schema = nullptr;
  /// Whether it takes samples of plain Zenoh peers too (Sample::plain), in the form of
  /// `plain_content`. Each publisher of these keys then puts everything twice, because Zenoh cannot
  /// tell this subscriber from a plain one. Such samples have no age, so this excludes `max_age`;
  /// `max_hz` is not for them. Empty: as NodeOptions::plain_keys says.
  std::optional<bool> hears_plain = std::nullopt;
  /// Deprecated: hears_plain.
  Formerly<bool> plain = {};
  /// The form in which it takes them. A schema describes tensors: it excludes `bytes` and `both`.
  PlainContent plain_content = PlainContent::tensors;
  /// Also delivers the end of each publisher, after its last sample: a Sample with `ended`. The
  /// FabricEvent `ended` is reported in any case.
  bool ends = false;
};

struct SubscriberStats {
  std::uint64_t received = 0;
  std::uint64_t missed = 0;             ///< samples, in all gaps
  std::uint64_t expired = 0;            ///< samples older than `max_age`: some of `missed`
  std::uint64_t thinned = 0;            ///< samples left out because of `max_hz`
  std::uint64_t superseded = 0;         ///< samples dropped because of `newest_only`
  std::uint64_t copied = 0;             ///< samples copied because max_held were kept
  std::uint64_t schema_mismatches = 0;  ///< publishers and samples of another schema
  std::uint64_t violations = 0;         ///< channels whose publishers violated the protocol
  std::uint64_t publishers = 0;         ///< connected now
  std::uint64_t plain_received = 0;     ///< samples of plain Zenoh peers: some of `received`
  std::uint64_t plain_dropped = 0;      ///< of them, dropped because newer ones arrived meanwhile
  std::uint64_t plain_refused = 0;  ///< of them, in another form than `plain_content`, or too large
  std::uint64_t plain_deleted = 0;  ///< deletes of plain Zenoh peers
  std::uint64_t undecodable = 0;    ///< samples that could not be read: some of `missed`
  std::uint64_t ended = 0;          ///< streams of publishers that ended and were read to the end
  std::uint64_t copies_h2d = 0;     ///< samples copied to a GPU, where they lay or were wanted
  std::uint64_t bytes_h2d = 0;      ///< of their leaves there
  std::uint64_t copies_d2h = 0;     ///< samples copied out of the publisher's memory on a GPU
  std::uint64_t copies_d2d = 0;     ///< samples copied within the GPU on which they arrived
  std::uint64_t bytes_d2d = 0;      ///< of their leaves there
};

/// Receives the samples of all publishers of a set of keys, later ones included.
///
/// Example:
///   Subscriber frames = Subscriber::declare(node, "vision/**", {.max_age = 200ms}).value();
///   while (Result<Sample> sample = frames.recv(10s)) {
///     for (const Gap& gap : sample->gaps) std::cerr << gap.count() << " samples are missing\n";
///     if (sample->tensors) std::cout << sample->key << ": " << *sample->tensors << '\n';
///   }
///   std::cout << frames.stats().missed << " missed in all\n";
///
/// Owns:    a channel to each publisher; samples that wait there; a thread with `on_sample`.
/// Threads: one receiver at a time, else `busy`: a recv(), a recv_async() that has no sample yet,
///          or `on_sample`. The rest is safe everywhere.
/// Errors:  timeout, pipe_closed after close(), context_closed. The end of a publisher is no error:
///          the subscriber waits for the next one.
/// Blocks:  recv() until its deadline. With `on_sample`, close() and the destructor while it runs,
///          unless they are called in it.
/// Cost:    as Sample says.
///
/// Samples of one publisher arrive in their order, none twice. Missing ones are in a gap.
class TENDON_API Subscriber {
 public:
  /// Subscribes to `keys`: "vision/objects", "pfc/**".
  [[nodiscard]] static Result<Subscriber> declare(Node& node, std::string_view keys,
                                                  SubscriberOptions options = {});
  Subscriber(Subscriber&&) noexcept;
  Subscriber& operator=(Subscriber&&) noexcept;
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;
  ~Subscriber();

  /// Returns the next sample, with its tensors where the publisher had them: on the GPU with the
  /// same UUID, or in host memory. Errors as below; without `.device` a sample never makes this
  /// process use CUDA.
  [[nodiscard]] Result<Sample> recv(Deadline deadline);
  /// The same with its tensors on the wanted device. For a GPU they are copied once out of the
  /// publisher's memory; `.device = cpu()` is host memory, without CUDA. Errors of a GPU leave the
  /// sample for the next recv(): unsupported_device, not_supported without a driver, device_lost,
  /// resource_exhausted beyond ContextOptions::device_cap_bytes, invalid_argument for a stream
  /// under capture.
  [[nodiscard]] Result<Sample> recv(const DeviceTarget& target, Deadline deadline);
  /// Puts the last received sample back; the next recv() returns it: see Pipe::give_back().
  void give_back(Sample sample);
  /// Receives the next sample, in host memory: unsupported_device for one with tensors on a GPU,
  /// which stays for recv(). Dropping the completion puts a sample that has arrived back: the next
  /// receiver gets it.
  [[nodiscard]] Completion<Sample> recv_async();
  /// Hands to `callback` the FabricEvents of its node that are about this subscriber, as
  /// Node::on_event().
  void on_event(std::function<void(const FabricEvent&)> callback);
  /// Its number in its Context: FabricEvent::subscriber.
  [[nodiscard]] std::uint32_t entity() const noexcept;
  /// Waits until it is connected to `count` publishers. Errors: timeout, with their number.
  [[nodiscard]] Result<void> wait_for_publishers(std::size_t count, Deadline deadline);
  [[nodiscard]] const std::string& keys() const& noexcept;
  const std::string& keys() const&& = delete;
  [[nodiscard]] SubscriberStats stats() const;
  /// Ends its channels; samples that wait there are dropped. Received samples stay. Idempotent.
  void close();

 private:
  Subscriber(std::shared_ptr<detail::SubscriberCore> core,
             std::unique_ptr<detail::SampleThread> thread);
  std::shared_ptr<detail::SubscriberCore> core_;
  std::unique_ptr<detail::SampleThread> thread_;  // null without `on_sample`
};

}  // namespace v0
}  // namespace tendon
