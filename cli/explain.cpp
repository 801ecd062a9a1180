// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tendon/core/error.hpp>

#include "cli/embedded.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"

namespace tendon::cli {
namespace {

std::string_view page_of(ErrorCode code) {
  const std::string id = error_id(code);
  const auto pages = error_pages();
  const auto found = std::ranges::find(pages, id, &ErrorPage::id);
  return found == pages.end() ? std::string_view() : found->text;
}

Value::Map row_as_json(const ErrorInfo& row) {
  return {{"code", error_id(row.code)}, {"name", row.name},
          {"summary", row.summary},     {"remedy", to_string(row.remedy)},
          {"exit_code", row.exit_code}, {"python_exception", row.python_exception}};
}

int list_all(Format format) {
  if (format == Format::json) {
    Value::List rows;
    for (const ErrorInfo& row : error_table()) rows.emplace_back(row_as_json(row));
    print_json({{"errors", rows}});
    return 0;
  }
  const Table table({{"code", -8}, {"exit", 4}, {"name", -19}, {"remedy", -12}, {"meaning", -1}});
  print_line(table.header());
  for (const ErrorInfo& row : error_table()) {
    print_line(table.row({error_id(row.code), std::to_string(row.exit_code), std::string(row.name),
                          std::string(to_string(row.remedy)), std::string(row.summary)}));
  }
  return 0;
}

}  // namespace

int run_explain(const std::string& code, Format format) {
  if (code.empty()) return list_all(format);
  const std::optional<ErrorInfo> row = find_error(code);
  if (!row) {
    return report(Error{ErrorCode::not_found, "cli.explain",
                        fmt::format("there is no error '{}'; `tendon explain` lists all", code)},
                  format);
  }
  if (format == Format::json) {
    auto document = row_as_json(*row);
    document.emplace_back("page", page_of(row->code));
    print_json(document);
    return 0;
  }
  print_line(fmt::format("{}\nRemedy: {}. Exit code: {}. Python: tendon.{}.", page_of(row->code),
                         to_string(row->remedy), row->exit_code, row->python_exception));
  return 0;
}

}  // namespace tendon::cli
