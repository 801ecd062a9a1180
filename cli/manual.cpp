// SPDX-License-Identifier: Apache-2.0
#include "cli/manual.hpp"

#include <fmt/format.h>

#include <cctype>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/version.hpp>

#include "cli/output.hpp"

namespace tendon::cli {
namespace {

/// Escapes text for roff: a hyphen stays a hyphen, and no line is taken for a macro.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\') {
      escaped += "\\e";
    } else if (letter == '-') {
      escaped += "\\-";
    } else if (letter == '\n') {
      escaped += "\n.br\n";
    } else {
      escaped += letter;
    }
  }
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

/// Turns a sentence into a clause as whatis(1) shows it: "moves tensors".
std::string as_clause(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::tolower(text.front()));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string described(const ManualOption& option) {
  const std::string value =
      option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(option.value));
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(option.names), value, roff(option.help));
}

/// Writes a section, under its whole name ("bench pipe"), for each verb that does something.
void describe_verb(const ManualVerb& verb, const std::string& path, std::string& page) {
  std::string synopsis = fmt::format("\\fBtendon {}\\fR", roff(path));
  if (!verb.flags.empty()) synopsis += " [\\fIflags\\fR]";
  for (const ManualOption& argument : verb.arguments)
    synopsis += fmt::format(" \\fI{}\\fR", roff(argument.names));
  if (!verb.arguments.empty() || !verb.flags.empty() || verb.verbs.empty()) {
    page += fmt::format(".SS {}\n{}\n.PP\n{}.\n", roff(path), synopsis, roff(verb.help));
    for (const ManualOption& argument : verb.arguments) page += described(argument);
    for (const ManualOption& flag : verb.flags) page += described(flag);
  }
  for (const ManualVerb& below : verb.verbs) describe_verb(below, path + " " + below.name, page);
}

}  // namespace

std::string manual_page(const ManualVerb& command) {
  std::string page = fmt::format(
      ".\\\" Written by `tendon manual`.\n"
      ".TH TENDON 1 \"\" \"tendon {}\" \"User Commands\"\n"
      ".SH NAME\ntendon \\- {}\n"
      ".SH SYNOPSIS\n\\fBtendon\\fR \\fIverb\\fR [\\fIflags\\fR] [\\fIarguments\\fR]\n",
      kVersion, roff(as_clause(command.help)));
  page +=
      ".SH DESCRIPTION\n"
      "What a verb finds goes to standard output, what it says of its work to standard error.\n"
      "An address is \\fIHOST:PORT\\fR, \\fI[IPV6]:PORT\\fR, \\fIunix:/PATH\\fR or "
      "\\fIunix:@NAME\\fR.\n"
      "A default is in brackets.\n";
  for (const ManualOption& flag : command.flags) page += described(flag);
  page += ".SH VERBS\n";
  for (const ManualVerb& verb : command.verbs) describe_verb(verb, verb.name, page);
  page +=
      ".SH EXIT STATUS\n.TP\n0\nThe verb did its work.\n.TP\n2\nThe command line is wrong.\n"
      ".PP\nEvery other failure has the exit status of its error:\n";
  for (const ErrorInfo& row : error_table()) {
    page += fmt::format(".TP\n{}\n\\fB{}\\fR, {}: {}\n", row.exit_code, roff(row.name),
                        roff(error_id(row.code)), roff(row.summary));
  }
  page += ".PP\n\\fBtendon explain\\fR \\fIcode\\fR says what an error means and what to do.\n";
  return page;
}

int run_manual(const ManualVerb& command) {
  print_text(manual_page(command));
  return 0;
}

}  // namespace tendon::cli
