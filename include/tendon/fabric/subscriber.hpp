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

/// What SubscriberOptions::max_hz may be.
inline constexpr double kLeastMaxHz = 0.001;
inline constexpr double kMostMaxHz = 1e6;

/// In which form a subscriber takes what plain Zenoh peers put.
enum class PlainContent : std::uint8_t {
  tensors,  ///< safetensors, as Sample::tensors; everything else is refused
  bytes,    ///< every payload, as Sample::bytes, with Sample::encoding: JSON, Protobuf, CDR
  both,     ///< safetensors as tensors; what is none, as bytes
};
TENDON_WORDS(PlainContent, tensors, bytes, both);

struct SubscriberOptions {
  /// Samples of one publisher that may be on their way or wait here, 1 to kPipeWindowMessages.
  std::uint32_t window = 16;
  /// Samples of one publisher that may be kept without a copy.
  std::uint32_t max_held = 4;
  /// Older samples are never delivered: they are in a gap (`expired`). One of which nobody can say
  /// how old it is counts as too old: the clocks of the two Contexts are compared over their link,
  /// to half of its round trip, which takes a peer of protocol 1.1 that makes progress.
  std::optional<std::chrono::nanoseconds> max_age = std::nullopt;
  /// So many samples a second of each publisher are enough, on the average: kLeastMaxHz to
  /// kMostMaxHz. The publisher leaves out the others, which are counted and in no gap. What is left
  /// out may be the newest one.
  std::optional<double> max_hz = std::nullopt;
  /// Where several live nodes of one name publish on one key, the one that started last is
  /// followed, as long as the link to it lives; samples of the others are dropped and counted.
  /// Nothing: when `max_age` is set.
  std::optional<bool> newest_only = std::nullopt;
  /// Called with each sample, in a thread of the subscriber: recv() is its own then, and `busy` for
  /// others. What it throws is logged, and the next sample follows. While it runs samples wait in
  /// the window, and beyond that in no queue: see Gap. Tensors that lay on a GPU come in host
  /// memory.
  std::function<void(Sample)> on_sample = nullptr;
  /// What it takes; null: everything. A publisher of another schema is not connected to.
  std::shared_ptr<const Schema> schema = nullptr;
  /// Samples of plain Zenoh peers, too (Sample::plain), in the form that `plain_content` says.
  /// Each publisher of these keys puts everything twice then, because Zenoh cannot tell this
  /// subscriber from a plain one. Their samples have no age, so it excludes `max_age`, and `max_hz`
  /// is not for them. Nothing: where NodeOptions::plain_keys says so.
  std::optional<bool> hears_plain = std::nullopt;
  /// Deprecated: hears_plain.
  Formerly<bool> plain = {};
  /// How it takes them. A schema describes tensors: it excludes `bytes` and `both`.
  PlainContent plain_content = PlainContent::tensors;
  /// Also deliver the end of each publisher, behind its last sample: a Sample with `ended`. The
  /// FabricEvent `ended` is told in any case.
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
  std::uint64_t violations = 0;         ///< channels that their publishers broke
  std::uint64_t publishers = 0;         ///< connected now
  std::uint64_t plain_received = 0;     ///< samples of plain Zenoh peers: some of `received`
  std::uint64_t plain_dropped = 0;      ///< of them, dropped because newer ones came meanwhile
  std::uint64_t plain_refused = 0;  ///< of them, in another form than `plain_content`, or too large
  std::uint64_t plain_deleted = 0;  ///< deletes of plain Zenoh peers
  std::uint64_t undecodable = 0;    ///< samples that could not be read: some of `missed`
  std::uint64_t ended = 0;          ///< streams of publishers that ended, and were read out
  std::uint64_t copies_h2d = 0;     ///< samples copied to a GPU, where they lay or were wanted
  std::uint64_t bytes_h2d = 0;      ///< of their leaves there
  std::uint64_t copies_d2h = 0;     ///< samples copied out of the publisher's memory on a GPU
  std::uint64_t copies_d2d = 0;     ///< samples copied within the GPU that they came on
  std::uint64_t bytes_d2d = 0;      ///< of their leaves there
};

/// Receives what publishers of a set of keys publish, those too that come later.
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
/// Errors:  timeout, pipe_closed after close(), context_closed. A publisher that goes is no error:
///          the subscriber waits for the next one.
/// Blocks:  recv() until its deadline. With `on_sample` close() and the destructor while it runs,
///          unless they are called in it.
/// Cost:    as Sample says.
///
/// Samples of one publisher come in their order, none twice. What does not come is in a gap.
class TENDON_API Subscriber {
 public:
  /// `keys`: "vision/objects", "pfc/**".
  [[nodiscard]] static Result<Subscriber> declare(Node& node, std::string_view keys,
                                                  SubscriberOptions options = {});
  Subscriber(Subscriber&&) noexcept;
  Subscriber& operator=(Subscriber&&) noexcept;
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;
  ~Subscriber();

  /// The next sample, with its tensors where the publisher had them: on the GPU with the same UUID,
  /// or in host memory. Errors as below; without `.device` a sample never makes this process use
  /// CUDA.
  [[nodiscard]] Result<Sample> recv(Deadline deadline);
  /// The same with its tensors where they are wanted. A GPU is one copy out of the publisher's
  /// memory; `.device = cpu()` is host memory, without CUDA. Errors of a GPU leave the sample for
  /// the next recv(): unsupported_device, not_supported without a driver, device_lost,
  /// resource_exhausted beyond ContextOptions::device_cap_bytes, invalid_argument for a stream that
  /// is captured.
  [[nodiscard]] Result<Sample> recv(const DeviceTarget& target, Deadline deadline);
  /// The next recv() returns the sample that the last one returned: see Pipe::give_back().
  void give_back(Sample sample);
  /// The next sample, now or later, in host memory: unsupported_device for one with tensors on a
  /// GPU, which stays for recv(). Dropping the completion gives a sample back that has come: the
  /// next receiver gets it.
  [[nodiscard]] Completion<Sample> recv_async();
  /// `callback` gets the FabricEvents of its node that are about this subscriber, as Node::on_event
  /// says.
  void on_event(std::function<void(const FabricEvent&)> callback);
  /// Its number in its Context: FabricEvent::subscriber.
  [[nodiscard]] std::uint32_t entity() const noexcept;
  /// Until it is connected to `count` publishers. Errors: timeout, with their number.
  [[nodiscard]] Result<void> wait_for_publishers(std::size_t count, Deadline deadline);
  [[nodiscard]] const std::string& keys() const& noexcept;
  const std::string& keys() const&& = delete;
  [[nodiscard]] SubscriberStats stats() const;
  /// Ends its channels; what waits there is dropped. Samples that were received stay. Idempotent.
  void close();

 private:
  Subscriber(std::shared_ptr<detail::SubscriberCore> core,
             std::unique_ptr<detail::SampleThread> thread);
  std::shared_ptr<detail::SubscriberCore> core_;
  std::unique_ptr<detail::SampleThread> thread_;  // null without `on_sample`
};

}  // namespace v0
}  // namespace tendon
