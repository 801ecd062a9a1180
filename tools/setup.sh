#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing Debian packages of the given groups (tools/packages.txt). If none is missing it only runs
# dpkg-query, so every other command may call it first. With --missing before the groups it prints the missing packages
# and installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

only_say=
if [ "${1:-}" = --missing ]; then
  only_say=yes
  shift
fi
if [ $# -eq 0 ]; then
  echo "usage: tools/setup.sh [--missing] GROUP...   groups: $(awk -F: '/^[a-z]/ {print $1}' tools/packages.txt | uniq | xargs)" >&2
  exit 2
fi

# packages_of GROUP: prints its packages, including those of the groups that it refers to.
packages_of() {
  local word
  for word in $(awk -F: -v group="$1" '$1 == group {print $2}' tools/packages.txt); do
    case $word in @*) packages_of "${word#@}" ;; *) echo "$word" ;; esac
  done
}

wanted=()
for group in "$@"; do
  packages=$(packages_of "$group")
  if [ -z "$packages" ]; then
    echo "setup: tools/packages.txt has no group '$group'" >&2
    exit 2
  fi
  # shellcheck disable=SC2206  # one word per package
  wanted+=($packages)
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian; please provide by yourself: ${wanted[*]}" >&2
  exit 0
fi

# A Rust compiler may be installed from another source.
if tools/find_cargo.sh >/dev/null; then
  for index in "${!wanted[@]}"; do
    case ${wanted[index]} in cargo-web | rustc-web) unset "wanted[$index]" ;; esac
  done
fi
[ ${#wanted[@]} -eq 0 ] && exit 0

# dpkg-query fails for an unknown package; packages that it does not list are missing as well.
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
            awk '$2 == "installed" {print $1}' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ -n "$only_say" ]; then
  echo "${missing[*]}"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "setup: these Debian packages are missing: ${missing[*]}" >&2
    echo "setup: install them, then run the same command again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

echo "setup: installing ${missing[*]}"
apt_get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get
         -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -q)
"${apt_get[@]}" update
"${apt_get[@]}" install -y --no-install-recommends "${missing[@]}"
