#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# entrypoint.sh PROGRAM [ARGUMENT...]: runs a node of the brain that listens at the address of this container, unless
# BRAIN_LISTEN is set. Others connect to the address that a node announces, so it must be numeric, and only the
# container itself knows it.
set -eu

if [ -z "${BRAIN_LISTEN:-}" ]; then
  address=$(hostname -i)
  address=${address%% *}
  case $address in
    '' | 127.* | ::1)
      echo "entrypoint.sh: the name of this container has the address '$address', which others cannot dial; set BRAIN_LISTEN" >&2
      exit 1
      ;;
    *:*) address="[$address]" ;;
  esac
  export BRAIN_LISTEN="$address:0"
fi
exec "$@"
