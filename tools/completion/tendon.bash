# SPDX-License-Identifier: Apache-2.0
# Completion of the tendon command for bash: source <(tendon completion bash)
_tendon() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local verb=${COMP_WORDS[1]:-}
  COMPREPLY=()

  case $previous in
    --mode | --path | --discovery | --memory | --policy | --wait | --progress)
      # The command's own help lists the words of a flag.
      mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[@]:0:COMP_CWORD-1}" --help 2>/dev/null |
        sed -n "s/^ *[^{]*$previous[ ,].*{\(.*\)}.*/\1/p" | tr , ' ')" -- "$word")
      return ;;
    -o | --output | --output-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
  esac

  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "send recv bench launch topic node call router info explain completion --help --version" -- "$word")
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
        mapfile -t COMPREPLY < <(compgen -W "pipe topic fabric checkpoint detect deadline allreduce allgather reducescatter alltoall broadcast sendrecv stage group-detect" -- "$word")
      elif [ "${COMP_WORDS[2]}" = pipe ]; then
        mapfile -t COMPREPLY < <(compgen -W "-b -e -f -n -w --path --mode --policy --streams --check --no-pin --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = topic ]; then
        mapfile -t COMPREPLY < <(compgen -W "-b -e -f -n --readers --path --mode --fill --policy --no-pin --listen --router --readers-by --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = fabric ]; then
        mapfile -t COMPREPLY < <(compgen -W "--seconds --path --discovery --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = checkpoint ] && [[ $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      elif [[ ${COMP_WORDS[2]} =~ ^(allreduce|allgather|reducescatter|alltoall|broadcast|sendrecv)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--minbytes --maxbytes --stepfactor --stepbytes --iters --warmup_iters --check --datatype --op --root --memory --ranks --path --policy --no-pin --insecure-plaintext --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = stage ]; then
        mapfile -t COMPREPLY < <(compgen -W "--way --minbytes --maxbytes --stepfactor --stepbytes --iters --warmup_iters --check --datatype --memory --ranks --path --policy --no-pin --insecure-plaintext --json --help" -- "$word")
      elif [ "${COMP_WORDS[2]}" = group-detect ]; then
        mapfile -t COMPREPLY < <(compgen -W "-n --ranks --path --json --help" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "-n --path --json --help" -- "$word")
      fi
      ;;
    topic)
      local fabric="--router --peer --listen --domain --timeout --path --no-routed --insecure-plaintext --json --help"
      if [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "list info echo hz bw delay pub" -- "$word")
      elif [ "${COMP_WORDS[2]}" = pub ] && [[ $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      elif [ "${COMP_WORDS[2]}" = pub ]; then
        mapfile -t COMPREPLY < <(compgen -W "--rate --count --once --subscribers --bare --encoding $fabric" -- "$word")
      elif [[ ${COMP_WORDS[2]} =~ ^(echo|hz|bw|delay)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--count --sample-timeout $fabric" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "$fabric" -- "$word")
      fi
      ;;
    call)
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--all --output --router --peer --listen --domain --timeout --path --no-routed --insecure-plaintext --json --help" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      fi
      ;;
    node)
      if [ "$COMP_CWORD" -eq 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "list info" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "--router --peer --listen --domain --timeout --path --no-routed --insecure-plaintext --json --help" -- "$word")
      fi
      ;;
    router)
      mapfile -t COMPREPLY < <(compgen -W "--listen --connect --json --help" -- "$word")
      ;;
    launch)
      # The words after the program's name are the program's own.
      local place=2
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
      elif [ "$place" -eq "$COMP_CWORD" ]; then
        mapfile -t COMPREPLY < <(compgen -W "-n --restart --grace --keep-going --rendezvous --nodes --node-rank --no-tag --output-dir --json --help --" -- "$word")
      fi
      ;;
    explain)
      mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" explain 2>/dev/null | awk 'NR > 1 {print $1; print $3}') --json" -- "$word")
      ;;
    info)
      if [ "${COMP_WORDS[2]}" = collectives ] && [ "$COMP_CWORD" -gt 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "--ranks --hosts --size --json --help" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "collectives --json --help" -- "$word")
      fi
      ;;
    completion) mapfile -t COMPREPLY < <(compgen -W "bash" -- "$word") ;;
  esac
}
complete -o filenames -F _tendon tendon
