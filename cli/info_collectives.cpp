// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/environment.hpp"
#include "group/epochs/tuning.hpp"

namespace tendon::cli {
namespace {

using detail::Reach;

/// A number of ranks on a number of hosts.
struct Layout {
  int ranks;
  int hosts;

  [[nodiscard]] Reach reach() const { return hosts == 1 ? Reach::boards : Reach::links; }
  [[nodiscard]] std::string in_words() const {
    if (hosts == 1) return fmt::format("{} ranks on one host, by shared memory", ranks);
    return fmt::format("{} ranks on {} hosts, over links", ranks, hosts);
  }
};

std::vector<detail::Choices> choices_of(const detail::Tuning& tuning, const Layout& layout,
                                        const detail::SizeRange& sizes) {
  const auto hosts = detail::Hosts::shared_out(static_cast<std::uint32_t>(layout.ranks),
                                               static_cast<std::uint32_t>(layout.hosts));
  return detail::choices_of(tuning, layout.reach(), hosts, sizes);
}

bool was_read(const detail::ReadTuning& read, std::string_view name) {
  return std::find(read.names.begin(), read.names.end(), name) != read.names.end();
}
std::string_view source_of(const detail::ReadTuning& read, std::string_view name) {
  return was_read(read, name) ? "environment" : "default";
}

Value::List sizes_document(const detail::ReadTuning& read) {
  Value::List rows;
  for (const detail::TuningRow& row : detail::tuning_rows()) {
    rows.emplace_back(Value::Map{{"name", row.name},
                                 {"value", read.tuning.*row.size_bytes},
                                 {"default", detail::Tuning{}.*row.size_bytes},
                                 {"source", source_of(read, row.name)},
                                 {"meaning", row.meaning}});
  }
  return rows;
}

Value::List forced_document(const detail::ReadTuning& read) {
  Value::List rows;
  for (const detail::ForcedRow& row : detail::forced_rows(read.tuning)) {
    Value::List algorithms;
    for (const std::string_view algorithm : row.algorithms) algorithms.emplace_back(algorithm);
    rows.emplace_back(Value::Map{{"operation", row.name},
                                 {"forced", row.forced.empty() ? Value() : Value(row.forced)},
                                 {"algorithms", std::move(algorithms)}});
  }
  return rows;
}

Value::Map layout_document(const detail::Tuning& tuning, const Layout& layout,
                           const detail::SizeRange& sizes) {
  Value::List operations;
  for (const detail::Choices& row : choices_of(tuning, layout, sizes)) {
    Value::List by_size;
    for (const detail::Choice& choice : row.by_size) {
      by_size.emplace_back(
          Value::Map{{"from_bytes", choice.from_bytes}, {"algorithm", choice.algorithm}});
    }
    operations.emplace_back(
        Value::Map{{"operation", row.operation}, {"by_size", std::move(by_size)}});
  }
  return {{"ranks", layout.ranks},
          {"hosts", layout.hosts},
          {"reach", layout.reach() == Reach::boards ? "boards" : "links"},
          {"operations", std::move(operations)}};
}

void print_table(const detail::ReadTuning& read) {
  print_line("sizes [bytes]; TENDON_COLLECTIVES=name=BYTES,... overrides");
  for (const detail::TuningRow& row : detail::tuning_rows()) {
    print_line(fmt::format("  {:<20} {:>10}  {:<13} {}", row.name, read.tuning.*row.size_bytes,
                           fmt::format("({})", source_of(read, row.name)), row.meaning));
  }
  print_line("\nalgorithms; TENDON_COLLECTIVES=operation=algorithm,... forces one");
  for (const detail::ForcedRow& row : detail::forced_rows(read.tuning)) {
    print_line(fmt::format("  {:<20} {:<19} of {}", row.name,
                           row.forced.empty() ? std::string(row.otherwise)
                                              : fmt::format("{} (environment)", row.forced),
                           fmt::join(row.algorithms, ", ")));
  }
}

void print_layout(const detail::Tuning& tuning, const Layout& layout,
                  const detail::SizeRange& sizes) {
  print_line(fmt::format("\n{}\n  {:<20} {:>10}  {}", layout.in_words(), "operation", "from bytes",
                         "algorithm"));
  for (const detail::Choices& row : choices_of(tuning, layout, sizes)) {
    std::string_view name = row.operation;
    for (const detail::Choice& choice : row.by_size) {
      print_line(fmt::format("  {:<20} {:>10}  {}", name, choice.from_bytes, choice.algorithm));
      name = "";
    }
  }
}

}  // namespace

int run_info_collectives(const InfoCollectivesOptions& options) {
  if (options.hosts && *options.hosts > options.ranks) {
    return report(Error{ErrorCode::invalid_argument, "cli.info",
                        fmt::format("--hosts is {}, legal are 1 to the number of ranks, {}",
                                    *options.hosts, options.ranks)},
                  options.format);
  }
  const detail::ReadTuning read =
      detail::read_tuning(detail::environment_variable("TENDON_COLLECTIVES"));
  for (const std::string& complaint : read.complaints) say("tendon: " + complaint);

  detail::SizeRange sizes;
  if (options.size_bytes) sizes = {*options.size_bytes, *options.size_bytes};
  std::vector<Layout> layouts = {{options.ranks, options.hosts.value_or(1)}};
  if (!options.hosts && options.ranks > 1) layouts.push_back({options.ranks, options.ranks});

  if (options.format == Format::json) {
    Value::List documents;
    for (const Layout& layout : layouts)
      documents.emplace_back(layout_document(read.tuning, layout, sizes));
    Value::List complaints;
    for (const std::string& complaint : read.complaints) complaints.emplace_back(complaint);
    print_json({{"sizes", sizes_document(read)},
                {"forced", forced_document(read)},
                {"layouts", std::move(documents)},
                {"complaints", std::move(complaints)}});
    return 0;
  }
  print_table(read);
  for (const Layout& layout : layouts) print_layout(read.tuning, layout, sizes);
  return 0;
}

}  // namespace tendon::cli
