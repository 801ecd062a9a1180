// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// All errors, one number each. Append only: numbers reach other processes, other languages and
/// shell scripts. `tendon explain TD-E0107` shows the page of a code.
enum class ErrorCode : std::uint16_t {
#define TENDON_ERROR(number, name, remedy, exit_code, python, builtin, said_by_peer, summary) \
  name = number,
#include <tendon/core/error_codes.def>
#undef TENDON_ERROR
};

/// The next step for the caller: the property of an error on which a caller branches.
enum class Remedy : std::uint8_t {
  fix_the_call,  ///< the same call will fail again: change it
  retry_later,   ///< the same call may succeed later
  reconnect,     ///< this object has ended: make a new one; for a group, its next epoch
  use_another,   ///< choose another path, type, address or version
  report_bug,    ///< not the caller's fault
};
TENDON_WORDS(Remedy, fix_the_call, retry_later, reconnect, use_another, report_bug);

/// A row of the table of errors, from which exceptions, exit codes and pages are made.
struct ErrorInfo {
  ErrorCode code;
  std::string_view name;              ///< "peer_lost"
  Remedy remedy;                      ///< the next step, unless Error::remedy() knows more
  int exit_code;                      ///< of the `tendon` command
  std::string_view python_exception;  ///< class name in the Python package
  std::string_view python_builtin;    ///< the built-in exception that this class also is
  std::string_view summary;           ///< one line, no full stop
};

/// All rows, by rising number.
[[nodiscard]] TENDON_API std::span<const ErrorInfo> error_table();
/// The row of `code`; the row of `internal` if the number is unknown (a newer peer may send one).
[[nodiscard]] TENDON_API const ErrorInfo& error_info(ErrorCode code);
/// "TD-E0107".
[[nodiscard]] TENDON_API std::string error_id(ErrorCode code);
/// Finds a row by "TD-E0107", "0107", "107" or "peer_lost".
[[nodiscard]] TENDON_API std::optional<ErrorInfo> find_error(std::string_view id_or_name);
/// The code's name, "peer_lost".
[[nodiscard]] TENDON_API std::string_view to_string(ErrorCode code);

/// An error: what failed, where, why, and what to do.
///
/// Owns:    its text.
/// Threads: a value.
/// Errors:  is one.
/// Blocks:  never.
/// Cost:    one string.
struct TENDON_API Error {
  ErrorCode code = ErrorCode::internal;
  /// A stable literal chosen by the author, to grep for: "shm.attach".
  std::string_view where;
  /// Names the object, the value and the legal range.
  std::string detail;
  /// errno of the system call that failed, 0 if none.
  int system_errno = 0;

  /// The remedy of its code, but `reconnect` for an error that ended an epoch of a group. The same
  /// call fails then until shrink() or rebuild() has made the next one. `use_another` if the peer
  /// speaks another protocol than this end, and `fix_the_call` if it has proved two identities.
  [[nodiscard]] Remedy remedy() const;
  /// "TD-E0107 peer lost: DETAIL\n do: ..." as a user meets it.
  [[nodiscard]] std::string message() const;
};

/// The error of a failed system call: EMFILE, ENOSPC, EADDRINUSE, EACCES ... have codes of their
/// own, the rest is `system`. `what` names the call and its object: "open('model.safetensors')".
[[nodiscard]] TENDON_API Error system_error(std::string_view where, std::string_view what,
                                            int errno_value);

/// The exception that `Result::value()` and conveniences on the caller's own memory throw. Calls
/// that touch a peer never throw.
class TENDON_API Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  ~Exception() override;
  [[nodiscard]] const Error& error() const noexcept { return error_; }
  [[nodiscard]] ErrorCode code() const noexcept { return error_.code; }

 private:
  Error error_;
};

}  // namespace v0
}  // namespace tendon
