// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tendon/core/completion.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/reduce_op.hpp>
#include <utility>
#include <vector>

#include "group/epochs/epoch.hpp"
#include "group/operands/fingerprint.hpp"
#include "group/operands/flat.hpp"
#include "group/scripts/script.hpp"

namespace tendon::v0::detail {

/// A collective, from its call to its end. The thread that has the call queue of its group advances
/// it, one at a time, in the order of the calls.
class Operation {
 public:
  Operation(const Fingerprint& fingerprint, std::uint64_t sequence)
      : fingerprint_(fingerprint), sequence_(sequence) {}
  virtual ~Operation() = default;

  /// Does the work that is possible now. True: it is complete.
  [[nodiscard]] virtual Result<bool> advance(Epoch& epoch) = 0;
  /// A glance: true if advance() would find something new.
  [[nodiscard]] virtual bool has_input(Epoch& epoch) = 0;
  /// The members for which it waits.
  [[nodiscard]] virtual std::vector<GroupRank> waits_for(Epoch& epoch) = 0;
  /// Changes when advance() has done something, and only then: a waiting thread relies on it.
  [[nodiscard]] virtual std::uint64_t steps_done() const noexcept = 0;
  /// Ends it before it is complete: nothing touches its memory after this.
  virtual void give_up(Epoch&) {}

  [[nodiscard]] const Fingerprint& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// This member's tensors, for errors; without tensors: nothing to say.
  [[nodiscard]] const FlatSummary& given() const noexcept { return given_; }
  void set_given(FlatSummary given) { given_ = std::move(given); }
  [[nodiscard]] FlatSummary take_given() noexcept { return std::exchange(given_, {}); }
  /// The member whose call differs, for errors that show both sides.
  [[nodiscard]] std::optional<GroupRank> differs_from() const noexcept { return differs_from_; }
  /// Notes that its call is the same, but its tensors differ.
  void note_difference(GroupRank member) noexcept { differs_from_ = member; }
  /// False once another member was found to have made other calls before it: numbers of operations
  /// mean nothing between the two.
  [[nodiscard]] bool counts_alike() const noexcept { return counts_alike_; }

 protected:
  [[nodiscard]] Error mismatch(const Epoch& epoch, GroupRank member, const Fingerprint& theirs) {
    counts_alike_ =
        theirs.sequence == fingerprint_.sequence && theirs.history == fingerprint_.history;
    differs_from_ = member;
    return mismatch_error(epoch, fingerprint_, member, theirs);
  }

 private:
  const Fingerprint fingerprint_;
  const std::uint64_t sequence_;
  FlatSummary given_;
  std::optional<GroupRank> differs_from_;
  bool counts_alike_ = true;
};

class Rounds;
/// Rounds on the board of an epoch.
enum class Staged : std::uint8_t {
  no,
  first_round,  ///< already published
};
[[nodiscard]] std::shared_ptr<Operation> make_board_operation(const Fingerprint& fingerprint,
                                                              std::uint64_t sequence,
                                                              std::unique_ptr<Rounds> rounds,
                                                              const Staging::Plan& plan = {},
                                                              Staged staged = Staged::no);

/// One script and its tensors: blocks one after another, as scripts take them.
struct ScriptJob {
  Script script;
  std::vector<Flat> input;
  std::vector<Flat> output;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;  ///< of the reduced elements: then input and output have no gaps
};
class Mesh;
/// Runs scripts over the channels of an epoch, one after another; then `finish`.
[[nodiscard]] std::shared_ptr<Operation> make_script_operation(const Fingerprint& fingerprint,
                                                               std::uint64_t sequence, Mesh& mesh,
                                                               std::uint64_t group,
                                                               std::vector<ScriptJob> jobs,
                                                               std::function<void()> finish);
/// The fingerprint in the envelope of a step.
[[nodiscard]] Fingerprint fingerprint_of(const Envelope& envelope);

}  // namespace tendon::v0::detail
