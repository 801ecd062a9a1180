#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# machine_speed.sh: prints the CPU seconds of one compilation of a fixed program while every core runs the same, the
# least of three rounds. tools/check_budget.py divides by it, because the same step takes twice the CPU time on a slow
# machine.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/fixed.cpp" <<'END'
#include <functional>
#include <map>
#include <regex>
#include <string>
int main(int argc, char** argv) {
  std::map<std::string, std::function<int(const std::string&)>> table;
  table["match"] = [](const std::string& text) { return int(std::regex_match(text, std::regex("a+(b|c)*"))); };
  return table["match"](argv[argc - 1]);
}
END

cores=$(nproc)
least=
for _ in 1 2 3; do
  # `times` reports on this shell only: a pipe or a substitution would run it in another one.
  times >"$folder/before"
  for ((core = 0; core < cores; core++)); do
    g++ -std=c++20 -O2 -c "$folder/fixed.cpp" -o "$folder/$core.o" &
  done
  wait
  times >"$folder/after"
  least=$(awk -v cores="$cores" -v least="$least" '
    function seconds(text) { split(text, part, "[ms]"); return part[1] * 60 + part[2] }
    FNR == 2 { sum[FILENAME] = seconds($1) + seconds($2) }
    END {
      taken = (sum[ARGV[2]] - sum[ARGV[1]]) / cores
      printf "%.2f", least == "" || taken < least ? taken : least
    }' "$folder/before" "$folder/after")
done
echo "$least"
