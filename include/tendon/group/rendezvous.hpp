// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>

namespace tendon {
inline namespace v0 {

/// A service in which processes leave short texts for each other: a torch Store, etcd, a shared
/// directory. Implement it to join a group through a service that your program already has.
///
/// Example:
///   struct InMemory final : RendezvousStore {  // for members that are threads of one process
///     Result<void> set(std::string_view key, std::string_view value, Deadline) override;
///     Result<std::string> get(std::string_view key, Deadline deadline) override;
///   };
///   auto store = std::make_shared<InMemory>();
///   Rendezvous meeting = Rendezvous::through(store, GroupRank{0}, 2);
///   Group group = Group::join(context, meeting, 60s).value();
///
/// Threads: called by the thread in Group::join, and in Group::rebuild while rank 0 is looked for.
/// Errors:  join() returns those of the store.
class TENDON_API RendezvousStore {
 public:
  virtual ~RendezvousStore();
  virtual Result<void> set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  /// Waits until the key was set; returns `timeout` when it was not, and in no other case.
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;
  /// The host of the service, as this process dials it ("10.0.0.7", "[::1]", "etcd.lan"), or empty.
  /// The first address that rank 0 leaves is that of the interface that leads there.
  [[nodiscard]] virtual std::string host() const;
};

/// How the members of a group find each other, and which of them this process is: all meet at rank
/// 0. Group::join reports its faults.
///
/// Example:
///   // Under torchrun, mpirun, srun or `tendon launch`:
///   Group world = Group::join(context, Rendezvous::from_environment(), 60s).value();
///   // Or by hand, on each of two hosts with its own rank:
///   Rendezvous meeting = Rendezvous::at("10.0.0.7:29500", GroupRank{1}, 2);
///   Group pair = Group::join(context, meeting, 60s, {.name = "pair"}).value();
///
/// Owns:    its texts, a share of the store.
/// Threads: a value.
/// Errors:  none here; see Group::join.
/// Blocks:  never.
/// Cost:    a few strings.
class TENDON_API Rendezvous {
 public:
  /// Reads the environment that the launcher left. Rank and size: RANK and WORLD_SIZE (torchrun,
  /// `tendon launch`), else those of mpirun (OMPI_COMM_WORLD_*, PMI_*) or srun (SLURM_*). The
  /// address: TENDON_RENDEZVOUS, else MASTER_ADDR and MASTER_PORT; else, when mpirun or srun has
  /// started all of them on one host, a socket named after the job. Under torchrun, whose agent
  /// listens at that port itself, join() explains what to do instead.
  [[nodiscard]] static Rendezvous from_environment();
  /// Makes rank 0 listen at the port of `address`, and the others connect to `address`. For the
  /// interfaces at which it listens see docs/collectives.md#where-a-member-listens.
  [[nodiscard]] static Rendezvous at(std::string address, GroupRank rank, std::uint32_t size);
  /// Makes rank 0 listen at a free port and leave its addresses in the store, at most 4.
  [[nodiscard]] static Rendezvous through(std::shared_ptr<RendezvousStore> store, GroupRank rank,
                                          std::uint32_t size);

  /// The rank of this process and the size of the group; 0 and 0 when they could not be read.
  [[nodiscard]] GroupRank rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// Empty with a store.
  [[nodiscard]] const std::string& address() const& noexcept { return address_; }
  const std::string& address() const&& = delete;
  [[nodiscard]] const std::shared_ptr<RendezvousStore>& store() const& noexcept { return store_; }
  const std::shared_ptr<RendezvousStore>& store() const&& = delete;
  /// The reason why the environment could not be used.
  [[nodiscard]] const std::optional<Error>& problem() const& noexcept { return problem_; }
  const std::optional<Error>& problem() const&& = delete;

 private:
  Rendezvous() = default;
  GroupRank rank_;
  std::uint32_t size_ = 0;
  std::string address_;
  std::shared_ptr<RendezvousStore> store_;
  std::optional<Error> problem_;
};

}  // namespace v0
}  // namespace tendon
