// SPDX-License-Identifier: Apache-2.0
// The verbs of the command: the options of each, and the function that runs it and returns the exit
// code. main.cpp fills the options from flags and is the only file that knows the flag parser.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/node.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/session/profile.hpp>
#include <tendon/tensor/atomic_file.hpp>
#include <vector>

#include "cli/output.hpp"
#include "cli/progress.hpp"

namespace tendon::cli {

/// Whether tensors are written where the peer reads them, or sent from where they are.
enum class SendMode : std::uint8_t { loan, copy };
TENDON_WORDS(SendMode, loan, copy);

[[nodiscard]] inline std::chrono::nanoseconds to_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

/// The peer that a command wants, and its own credentials.
struct SecurityOptions {
  Profile profile = Profile::local;
  CredentialFiles files;
  std::optional<int> key_descriptor;  ///< in place of files.key: inherited, and read once
  std::string peer;  ///< a name of the peer's certificate; empty: the host that is dialled
};

struct SendOptions {
  std::string file;
  std::string address;
  std::string name;  ///< the name at the receiver; empty: that of the file
  double timeout_s = 30;
  double max_rate_mb_per_s = 0;  ///< 0: no limit
  SendMode mode = SendMode::loan;
  Transport transport = Transport::automatic;
  ProgressStyle progress = ProgressStyle::automatic;
  SecurityOptions security;
  Format format = Format::text;

  [[nodiscard]] Deadline step() const { return to_duration(timeout_s); }
};
[[nodiscard]] int run_send(SendOptions options);

enum class Duration : std::uint8_t { one_file, until_stopped };

struct RecvOptions {
  std::string address;
  std::string directory = ".";
  std::optional<double> timeout_s;
  ExistingFile existing = ExistingFile::keep;
  Duration duration = Duration::one_file;
  Transport transport = Transport::automatic;
  ProgressStyle progress = ProgressStyle::automatic;
  SecurityOptions security;
  Format format = Format::text;

  /// How long a connected sender may be silent.
  [[nodiscard]] Deadline step() const { return to_duration(timeout_s.value_or(30)); }
};
[[nodiscard]] int run_recv(const RecvOptions& options);

enum class Tagging : std::uint8_t { tagged, raw };
enum class OnFailure : std::uint8_t { end_all, keep_going };

struct LaunchOptions {
  std::vector<std::string> command;  ///< the program and its arguments
  int local_count = 1;               ///< ranks on this node
  int node_count = 1;
  int node_rank = 0;
  int restart_count = 0;   ///< starts after the first one, at most
  double grace_s = 5;      ///< the time that the others have to end by themselves after a failure
  std::string rendezvous;  ///< empty: the launcher chooses
  std::string output_folder;  ///< empty: this command's own streams
  Tagging tagging = Tagging::tagged;
  OnFailure on_failure = OnFailure::end_all;
  Format format = Format::text;
};
[[nodiscard]] int run_launch(const LaunchOptions& options);

[[nodiscard]] int run_info(Format format);

struct InfoCollectivesOptions {
  int ranks = 8;
  std::optional<int> hosts;                 ///< null: one, and one for each rank
  std::optional<std::uint64_t> size_bytes;  ///< null: typical sizes
  Format format = Format::text;
};
[[nodiscard]] int run_info_collectives(const InfoCollectivesOptions& options);
/// An empty `code` lists all.
[[nodiscard]] int run_explain(const std::string& code, Format format);
[[nodiscard]] int run_completion();
/// Hidden, for tools/demo.sh: a file of about `size_mb` MB in the shape of a model's checkpoint.
[[nodiscard]] int run_make_checkpoint(const std::string& file, double size_mb);
/// Hidden: success when both files have the same tensors.
[[nodiscard]] int run_compare_checkpoints(const std::string& first, const std::string& second);

/// How the command joins a fabric.
struct FabricOptions {
  std::string domain;  ///< empty: TENDON_DOMAIN, else "default"
  std::vector<std::string> routers;
  std::vector<std::string> peers;
  std::string listen;
  double timeout_s = 5;  ///< the time to find nodes
  Transport transport = Transport::automatic;
  bool routed = true;  ///< links through routers
  DiscoveryNeed discovery = DiscoveryNeed::required;
  Profile profile = Profile::local;
  Format format = Format::text;

  [[nodiscard]] Deadline patience() const { return to_duration(timeout_s); }
  /// Whether nodes are found by addresses alone, without Zenoh.
  [[nodiscard]] bool is_static() const {
    return routers.empty() && (!peers.empty() || !listen.empty());
  }
};

/// Endpoints as NodeOptions::routers says.
struct RouterOptions {
  std::vector<std::string> listen;
  std::vector<std::string> connect;
  Profile profile = Profile::local;  ///< for a routable place to listen at: `plaintext`
  Format format = Format::text;
};

/// The detail of `topic info` about publishers: their announcements, or how they are reached.
enum class TopicDetail : std::uint8_t { announced, why };
/// The source of samples: publishers of Tendon, or plain Zenoh peers as well.
enum class TopicSources : std::uint8_t { publishers, plain_too };
/// The receivers of `topic pub`: subscribers of Tendon first, or anyone, as a plain Zenoh peer
/// itself.
enum class TopicSink : std::uint8_t { subscribers, bare };

struct TopicOptions : FabricOptions {
  std::string key;
  TopicDetail detail = TopicDetail::announced;
  std::string node;
  std::string file;
  std::uint64_t count = 0;  ///< samples; 0: without end
  double rate_hz = 1;
  std::size_t subscriber_count = 1;
  std::optional<double> sample_timeout_s;
  TopicSources sources = TopicSources::publishers;
  TopicSink sink = TopicSink::subscribers;
  std::optional<std::string> encoding;  ///< the file is bytes of this kind; null: tensors

  [[nodiscard]] Deadline patience_for_sample() const {
    return sample_timeout_s ? Deadline(to_duration(*sample_timeout_s)) : Deadline::never();
  }
};
[[nodiscard]] int run_topic_list(const TopicOptions& options);
[[nodiscard]] int run_topic_info(const TopicOptions& options);
[[nodiscard]] int run_topic_why(const TopicOptions& options);
[[nodiscard]] int run_node_list(const TopicOptions& options);
[[nodiscard]] int run_node_info(const TopicOptions& options);
[[nodiscard]] int run_router(const RouterOptions& options);
[[nodiscard]] int run_topic_echo(const TopicOptions& options);
[[nodiscard]] int run_topic_pub(const TopicOptions& options);

enum class CallUntil : std::uint8_t { first_answer, all_answers };

struct CallOptions : TopicOptions {
  std::string output_file;  ///< empty: the answer is only printed
  CallUntil until = CallUntil::first_answer;
};
[[nodiscard]] int run_call(const CallOptions& options);

enum class TopicMeasure : std::uint8_t { rate, bandwidth, delay };
[[nodiscard]] int run_topic_measure(const TopicOptions& options, TopicMeasure measure);

}  // namespace tendon::cli
