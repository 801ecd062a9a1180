// SPDX-License-Identifier: Apache-2.0
// How the command prints: data on stdout, messages on stderr, sizes and times in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

namespace tendon::cli {

enum class Format : std::uint8_t { text, json };

/// Prints an error: in words on stderr, and as `{"error": {...}}` on stdout where data is JSON.
/// Returns the exit code.
[[nodiscard]] int report(const Error& error, Format format);
/// Puts `context` in front of the detail. For a detail that names the object already, `context` is
/// only the event.
[[nodiscard]] Error with_context(Error error, std::string_view context);
/// The error as every `--json` shows it.
[[nodiscard]] Value::Map error_document(const Error& error);
/// Writes one line to stdout and flushes it: readers of a pipe wait for it.
void print_line(std::string_view line);
void print_json(Value::Map document);
/// The text that print_json() prints: one line with its end.
[[nodiscard]] std::string json_line(Value::Map document);
/// Writes the text to stdout unchanged, and flushes it.
void print_text(const std::string& text);
/// Returns the exit code of the command. It is that of an error if stdout could not be written: a
/// reader that gets half of the data must not take it for all.
[[nodiscard]] int finish_output(int exit_code);
/// Writes one line to stderr.
void say(std::string_view line);

/// "90.9 MB": three digits, powers of 1000.
[[nodiscard]] std::string format_bytes(double bytes);
/// "1.25 us", "35.0 ms", "1.20 s".
[[nodiscard]] std::string format_seconds(double seconds);
/// "0.83 GB/s".
[[nodiscard]] std::string format_rate(double bytes_per_second);
/// Three significant digits, no exponent.
[[nodiscard]] std::string format_number(double value);

/// Columns under titles. Rows are printed one by one, so the widths are fixed beforehand.
///
/// Owns:    the titles.
/// Threads: a value.
/// Errors:  none; a cell that is too wide moves the others of its row.
/// Blocks:  never.
/// Cost:    one string a row.
class Table {
 public:
  struct Column {
    std::string title;
    int width;  ///< negative: aligned to the left
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

}  // namespace tendon::cli
