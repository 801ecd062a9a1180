// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

#include "core/text.hpp"
#include "tensor/text.hpp"

namespace tendon::cli {
namespace {

/// Makes text valid UTF-8, as JSON needs it: a file name or a peer's words may be none.
Value readable(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::string:
      return detail::is_utf8(value.as_string()) ? value
                                                : Value(detail::quote_text(value.as_string()));
    case Value::Kind::list: {
      Value::List items;
      for (const Value& item : value.as_list()) items.push_back(readable(item));
      return items;
    }
    case Value::Kind::map: {
      Value::Map entries;
      for (const auto& [key, entry] : value.as_map()) entries.emplace_back(key, readable(entry));
      return entries;
    }
    default:
      return value;
  }
}

/// Text for a terminal. A line may end in it, because help and errors have several.
std::string lines_of(std::string_view text) {
  std::string lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines += detail::cleaned(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

/// Writes a character as JSON spells it, in two halves of UTF-16 beyond U+FFFF.
void append_escaped(std::string& json, char32_t point) {
  if (point < 0x10000) {
    json += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(point));
  } else {
    const std::uint32_t rest = static_cast<std::uint32_t>(point) - 0x10000;
    json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }
}

// The errno of the first write to stdout that failed.
int stdout_errno = 0;

void note_failure(bool is_written) {
  if (!is_written && stdout_errno == 0) stdout_errno = errno;
}

}  // namespace

int report(const Error& error, Format format) {
  say(error.message());
  if (format == Format::json) print_json({{"error", error_document(error)}});
  // The end of a stream is a success only where the command waited for it.
  const int code = error_info(error.code).exit_code;
  return code == 0 ? 1 : code;
}

Error with_context(Error error, std::string_view context) {
  error.detail = fmt::format("{}: {}", context, error.detail);
  return error;
}

Value::Map error_document(const Error& error) {
  const ErrorInfo& row = error_info(error.code);
  return {{"code", error_id(error.code)},
          {"name", row.name},
          {"detail", error.detail},
          {"where", error.where},
          {"remedy", to_string(error.remedy())},
          {"exit_code", row.exit_code}};
}

void print_line(std::string_view line) { print_text(lines_of(line) + "\n"); }

void print_text(const std::string& text) {
  note_failure(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
  note_failure(std::fflush(stdout) == 0);
}

int finish_output(int exit_code) {
  note_failure(std::fflush(stdout) == 0);
  if (stdout_errno == 0) return exit_code;
  int code = 128 + SIGPIPE;  // the reader has closed the pipe
  if (stdout_errno != EPIPE)
    code = report(system_error("cli.output", "writing to stdout", stdout_errno), Format::text);
  return exit_code != 0 ? exit_code : code;
}

void print_json(Value::Map document) { print_text(json_line(std::move(document))); }

std::string json_line(Value::Map document) {
  Value value(std::move(document));
  auto text = v0::to_json(value);
  if (!text) text = v0::to_json(readable(value));
  // Such characters appear only in strings, where JSON can spell them.
  std::string safe;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t size = std::max<std::size_t>(detail::character_bytes(rest), 1);
    if (detail::is_hidden(rest, size))
      append_escaped(safe, detail::code_point(rest, size));
    else
      safe += rest.substr(0, size);
    rest.remove_prefix(size);
  }
  return safe + "\n";
}

// A failure is ignored: nobody could read it if stderr is closed.
void say(std::string_view line) { (void)std::fputs((lines_of(line) + "\n").c_str(), stderr); }

std::string format_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double magnitude = std::abs(value);
  const int before_point = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(3 - before_point, 0, 6));
}

std::string format_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", static_cast<std::uint64_t>(bytes))
                   : fmt::format("{} {}", format_number(bytes), kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return format_number(seconds * 1e6) + " us";
  if (seconds < 1) return format_number(seconds * 1e3) + " ms";
  return format_number(seconds) + " s";
}

std::string format_rate(double bytes_per_second) {
  return format_number(bytes_per_second / 1e9) + " GB/s";
}

std::string Table::header() const {
  std::vector<std::string> titles;
  titles.reserve(columns_.size());
  for (const Column& column : columns_) titles.push_back(column.title);
  return row(titles);
}

std::string Table::row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
    if (i > 0) line += "  ";
    const int width = columns_[i].width;
    line += width < 0 ? fmt::format("{:<{}}", cells[i], -width)
                      : fmt::format("{:>{}}", cells[i], width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace tendon::cli
