// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>

#include "core/text.hpp"

namespace tendon::v0 {
namespace {

constexpr std::array kTable = {
#define TENDON_ERROR(number, name, remedy, exit_code, python, builtin, said_by_peer, summary) \
  ErrorInfo{ErrorCode::name, #name, Remedy::remedy, exit_code, #python, #builtin, summary},
#include <tendon/core/error_codes.def>
#undef TENDON_ERROR
};

constexpr bool is_sorted_by_number() {
  for (std::size_t i = 1; i < kTable.size(); ++i)
    if (kTable[i - 1].code >= kTable[i].code) return false;
  return true;
}
static_assert(is_sorted_by_number(),
              "error_codes.def must rise: numbers are never reused or reordered");

std::string_view advice(Remedy remedy) {
  switch (remedy) {
    case Remedy::fix_the_call:
      return "fix this call; retrying it unchanged fails again";
    case Remedy::retry_later:
      return "retry; the cause may be temporary";
    case Remedy::reconnect:
      return "open a new connection; this one is closed";
    case Remedy::use_another:
      return "use an alternative; this one cannot work here";
    case Remedy::report_bug:
      return "report a bug, and include this message";
  }
  return "report a bug, and include this message";
}

// True for a failure of a collective, which has ended the epoch of its group for all members.
bool ends_an_epoch(const Error& error) {
  return error.where == "group" || error.where == "group.collective" ||
         error.where == "group.abort" || error.where == "group.board";
}

// True where an end has begun with another protocol: an address is wrong, or one end alone has
// credentials.
bool is_of_another_protocol(const Error& error) {
  return error.where == "secure.first_bytes" || error.where == "session.first_bytes";
}

// True where a peer has proved two identities: its keys or certificates are being changed.
bool is_of_two_identities(const Error& error) { return error.where == "context.identity"; }

std::string_view advice_of(const Error& error) {
  if (error.code == ErrorCode::device_lost)
    return "end this process and start it again; until then it cannot use this GPU";
  if (is_of_another_protocol(error))
    return "check the address; where both ends are Tendon, use the same credentials on both, or "
           "none";
  if (ends_an_epoch(error) && error.code == ErrorCode::mismatch)
    return "make the same call on every member; this epoch has ended, and shrink() starts the next";
  if (ends_an_epoch(error) && error.remedy() == Remedy::reconnect)
    return "call shrink() or rebuild() on every surviving member, or end the job";
  return advice(error.remedy());
}

ErrorCode code_of_errno(int value) {
  switch (value) {
    case EMFILE:
    case ENFILE:
      return ErrorCode::too_many_open_files;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::storage_full;
    case ENOMEM:
      return ErrorCode::resource_exhausted;
    case EADDRINUSE:
      return ErrorCode::address_in_use;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::permission_denied;
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::file_not_found;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
      return ErrorCode::unreachable;
    case ECONNRESET:
    case EPIPE:
      return ErrorCode::peer_lost;
    case ETIMEDOUT:
      return ErrorCode::timeout;
    default:
      return ErrorCode::system;
  }
}

// The remedy behind the system's own words, if changing the call does not help.
std::string_view remedy_of_errno(int value) {
  switch (value) {
    case EMFILE:
      return " (this process has as many as it may: raise RLIMIT_NOFILE, `ulimit -n`)";
    case ENFILE:
      return " (all processes together have as many as they may: raise fs.file-max)";
    case EFBIG:
      return " (beyond RLIMIT_FSIZE, `ulimit -f`, or what the file system has)";
    default:
      return "";
  }
}

}  // namespace

std::span<const ErrorInfo> error_table() { return kTable; }

const ErrorInfo& error_info(ErrorCode code) {
  for (const ErrorInfo& row : kTable)
    if (row.code == code) return row;
  return kTable.back();  // `internal`: the last group, 9xx
}

std::string error_id(ErrorCode code) {
  std::string digits = std::to_string(static_cast<unsigned>(code));
  return "TD-E" + std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
}

std::optional<ErrorInfo> find_error(std::string_view id_or_name) {
  for (const ErrorInfo& row : kTable)
    if (row.name == id_or_name) return row;
  for (std::string_view prefix : {"TD-E", "td-e"})
    if (id_or_name.starts_with(prefix)) id_or_name.remove_prefix(prefix.size());
  unsigned number = 0;
  const char* end = id_or_name.data() + id_or_name.size();
  const auto [stop, failure] = std::from_chars(id_or_name.data(), end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  for (const ErrorInfo& row : kTable)
    if (static_cast<unsigned>(row.code) == number) return row;
  return std::nullopt;
}

std::string_view to_string(ErrorCode code) { return error_info(code).name; }

Remedy Error::remedy() const {
  if (is_of_another_protocol(*this)) return Remedy::use_another;
  if (is_of_two_identities(*this)) return Remedy::fix_the_call;
  const Remedy of_code = error_info(code).remedy;
  return of_code == Remedy::retry_later && ends_an_epoch(*this) ? Remedy::reconnect : of_code;
}

std::string Error::message() const {
  const ErrorInfo& row = error_info(code);
  std::string name(row.name);
  std::replace(name.begin(), name.end(), '_', ' ');
  std::string text = error_id(code) + " " + name + ": ";
  // The words that it quotes may be a peer's: they begin no line and hide nothing.
  text += detail.empty() ? std::string(row.summary) : ::tendon::detail::cleaned(detail);
  if (!where.empty()) text.append(" [").append(where).append("]");
  text.append("\n do: ");
  text.append(advice_of(*this));
  text.append(" (`tendon explain ").append(error_id(code)).append("`)");
  return text;
}

Error system_error(std::string_view where, std::string_view what, int errno_value) {
  std::string detail(what);
  detail.append(": ").append(detail::errno_text(errno_value)).append(remedy_of_errno(errno_value));
  return Error{code_of_errno(errno_value), where, std::move(detail), errno_value};
}

Exception::Exception(Error error) : std::runtime_error(error.message()), error_(std::move(error)) {}
Exception::~Exception() = default;

namespace detail {
void throw_error(Error error) { throw Exception(std::move(error)); }

void abort_without_value(const Error& error) noexcept {
  const std::string text =
      "tendon: the value of a Result that holds an error was used: " + error.message() + " [" +
      std::string(error.where) + "]\n  do: ask has_value() first, or call value(), which throws\n";
  // The process ends here: a log callback of a broken program cannot be trusted with it.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}
}  // namespace detail

}  // namespace tendon::v0
