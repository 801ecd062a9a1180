# SPDX-License-Identifier: Apache-2.0
# Completion of the tendon command for bash: source <(tendon completion bash)
_tendon() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local verb=${COMP_WORDS[1]:-}
  COMPREPLY=()

  case $previous in
    --mode) mapfile -t COMPREPLY < <(compgen -W "loan copy" -- "$word"); return ;;
    --path) mapfile -t COMPREPLY < <(compgen -W "auto shm tcp" -- "$word"); return ;;
    --policy) mapfile -t COMPREPLY < <(compgen -W "latency balanced blocking" -- "$word"); return ;;
    --progress) mapfile -t COMPREPLY < <(compgen -W "auto lines off" -- "$word"); return ;;
    -o | --output) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
  esac

  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "send recv bench info explain completion --help --version" -- "$word")
    return
  fi
  case $verb in
    send)
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--timeout --name --mode --path --max-rate --progress --insecure-plaintext --json --help" -- "$word")
      elif [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      fi
      ;;
    recv)
      mapfile -t COMPREPLY < <(compgen -W "--output --keep --force --timeout --path --progress --insecure-plaintext --json --help" -- "$word")
      ;;
    bench)
      if [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "pipe checkpoint detect deadline" -- "$word")
      elif [ "${COMP_WORDS[2]}" = pipe ]; then
        mapfile -t COMPREPLY < <(compgen -W "-b -e -f -n -w --path --mode --policy --streams --check --no-pin --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = checkpoint ] && [[ $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "-n --path --json --help" -- "$word")
      fi
      ;;
    explain)
      mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" explain 2>/dev/null | awk 'NR > 1 {print $1; print $3}') --json" -- "$word")
      ;;
    info) mapfile -t COMPREPLY < <(compgen -W "--json --help" -- "$word") ;;
    completion) mapfile -t COMPREPLY < <(compgen -W "bash" -- "$word") ;;
  esac
}
complete -o filenames -F _tendon tendon
