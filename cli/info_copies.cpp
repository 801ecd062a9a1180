// SPDX-License-Identifier: Apache-2.0
#include "cli/info_copies.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.hpp"
#include "memory/large_copy.hpp"

namespace tendon::cli {
namespace {

using detail::CopyHint;
using detail::LargeCopies;

/// A trial copies about a third of it; the rest is for pieces that are disturbed.
constexpr std::uint64_t kMostTriedBytes = std::uint64_t{2} << 30;

Value::Map row_of(std::uint64_t from_bytes, const std::optional<LargeCopies::Choice>& choice) {
  Value::Map rates;
  for (const CopyHint way : detail::kCopyHints) {
    if (choice)
      rates.emplace_back(detail::to_string(way), 1 / choice->figures.ns_per_byte(way));
    else
      rates.emplace_back(detail::to_string(way), Value());
  }
  return {{"from_bytes", from_bytes},
          {"way", choice ? Value(detail::to_string(choice->way)) : Value()},
          {"gb_per_s", std::move(rates)}};
}

}  // namespace

Value::List try_copies() {
  LargeCopies copies;
  std::vector<std::byte> source(LargeCopies::kFirstBytes.back(), std::byte{1});
  std::vector<std::byte> destination(source.size(), std::byte{2});
  Value::List rows;
  for (const std::uint64_t size_bytes : LargeCopies::kFirstBytes) {
    const auto to = MutableBytes(destination).first(size_bytes);
    const auto from = Bytes(source).first(size_bytes);
    for (std::uint64_t done = 0; done < kMostTriedBytes; done += size_bytes) {
      if (copies.choice(size_bytes)) break;
      copies.copy(to, from, size_bytes);
    }
    rows.emplace_back(row_of(size_bytes, copies.choice(size_bytes)));
  }
  return rows;
}

void print_copies(const Value::List& rows) {
  print_line("\nlarge copies, tried here [GB/s]; smaller ones are cached");
  std::string header = fmt::format("  {:<20} {:<11}", "from bytes", "way");
  for (const CopyHint way : detail::kCopyHints)
    header += fmt::format(" {:>11}", detail::to_string(way));
  print_line(header);
  for (const Value& row : rows) {
    const Value& way = *row.find("way");
    std::string line = fmt::format("  {:<20} {:<11}", row.find("from_bytes")->as_u64(),
                                   way.is_null() ? "not known" : way.as_string());
    for (const auto& [name, rate] : row.find("gb_per_s")->as_map())
      line +=
          rate.is_null() ? fmt::format(" {:>11}", "-") : fmt::format(" {:>11.1f}", rate.as_f64());
    print_line(line);
  }
}

}  // namespace tendon::cli
