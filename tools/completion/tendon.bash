# SPDX-License-Identifier: Apache-2.0
# Completion of the tendon command for bash: source <(tendon completion bash)
# The help of the command lists its verbs, its flags, and the words of a flag.
_tendon() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[0]} place=1 help verbs words
  COMPREPLY=()

  help=$("$command" --help 2>/dev/null)
  while verbs=$(sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p' <<<"$help"); do
    [ "$place" -lt "$COMP_CWORD" ] && grep -qxF -e "${COMP_WORDS[place]}" <<<"$verbs" || break
    place=$((place + 1))
    help=$("${COMP_WORDS[@]:0:place}" --help 2>/dev/null)
  done

  if [ "${COMP_WORDS[1]:-}" = launch ]; then
    # The words after the program's name are the program's own.
    while [ "$place" -lt "$COMP_CWORD" ]; do
      case ${COMP_WORDS[place]} in
        --) break ;;
        --keep-going | --no-tag | --json | --help) place=$((place + 1)) ;;
        -*) place=$((place + 2)) ;;
        *) break ;;
      esac
    done
    if [ "$place" -lt "$COMP_CWORD" ]; then
      if [ "${COMP_WORDS[place]}" = -- ] && [ "$place" -eq $((COMP_CWORD - 1)) ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      fi
      return
    fi
  fi

  case $previous in
    -o | --output | --output-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
    --*) words=$(sed -n "s/^  [^{]*$previous[ ,][^{]*{\([^}]*\)}.*/\1/p" <<<"$help" | tr , ' ') ;;
  esac
  if [ -n "${words:-}" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/^  \(-[^ ]*\) .*/\1/p' <<<"$help" | tr , ' ')" -- "$word")
  elif [ "${COMP_WORDS[1]}" = explain ]; then
    mapfile -t COMPREPLY < <(compgen -W "$("$command" explain 2>/dev/null | awk 'NR > 1 {print $1; print $3}')" -- "$word")
  elif [ -n "$verbs" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _tendon tendon
