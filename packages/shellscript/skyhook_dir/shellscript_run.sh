#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# shellscript_run.sh STAGE runs the configMap's STAGE.sh as a file of its own, with the interpreter that its first line
# names. STAGE is a mode of the agent with _ for -: apply, apply_check and so on.
#
# A stage without a script has nothing to do. A key that looks like a misspelt stage is named with the one that was
# probably meant: a warning, or the end with SHELLSCRIPT_STRICT=true. All other keys are data.
set -euo pipefail
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "error: the package needs bash 4.4 or later; this host has $BASH_VERSION" >&2
  exit 1
fi

stage=${1:?usage: shellscript_run.sh STAGE}
keys=${SKYHOOK_DIR:?is set by the agent}/configmaps

stages=(apply config post_interrupt upgrade uninstall)
known=()
for s in "${stages[@]}"; do known+=("$s.sh" "${s}_check.sh"); done

# An uninstall is never refused for a key: nothing could take the package away then.
strict=${SHELLSCRIPT_STRICT:-false}
[[ $stage != uninstall* ]] || strict=false
case $strict in
true | false) ;;
*)
  echo "error: SHELLSCRIPT_STRICT is \"${SHELLSCRIPT_STRICT:0:20}\"; write true or false" >&2
  exit 1
  ;;
esac

# distance A B: REPLY is how many letters have to be added, removed or changed to make B of A.
distance() {
  local a=$1 b=$2 i j above best corner
  local -a row
  for ((j = 0; j <= ${#b}; j++)); do row[j]=$j; done
  for ((i = 1; i <= ${#a}; i++)); do
    corner=${row[0]}
    row[0]=$i
    for ((j = 1; j <= ${#b}; j++)); do
      above=${row[j]}
      best=$corner
      [ "${a:i-1:1}" = "${b:j-1:1}" ] || best=$((corner + 1))
      ((above + 1 >= best)) || best=$((above + 1))
      ((row[j - 1] + 1 >= best)) || best=$((row[j - 1] + 1))
      corner=$above
      row[j]=$best
    done
  done
  REPLY=${row[${#b}]}
}

# closest NAME: REPLY is the key of a stage that NAME resembles most, and far how much it differs.
closest() {
  local key name=${1:0:40} best=''
  far=99
  for key in "${known[@]}"; do
    distance "$name" "$key"
    if ((REPLY < far)); then best=$key far=$REPLY; fi
  done
  REPLY=$best
}

# doubtful PATH tells whether a key looks like a script of a stage and is none: it ends in .sh, is nearly spelt like one, or
# has a stage's name and another ending while it is a script.
doubtful() {
  local name=${1##*/} stem first=''
  name=${name,,}
  name=${name//-/_}
  closest "$name"
  ((far > 2)) || return 0
  [[ $name != *.sh ]] || return 0
  stem=${name%%.*}
  for s in "${stages[@]}"; do
    if [ "$stem" = "$s" ] || [ "$stem" = "${s}_check" ]; then
      IFS= read -r first <"$1" || true
      if [ "$name" = "$stem" ] || [ "${first:0:2}" = '#!' ]; then
        REPLY=$stem.sh far=0
        return 0
      fi
    fi
  done
  return 1
}

# look names the keys that no stage runs although they look as if one should.
look() {
  local path name key kind=warning found=false
  [ "$strict" = false ] || kind=error
  for path in "$keys"/*; do
    [ -f "$path" ] || continue
    name=${path##*/}
    for key in "${known[@]}"; do [ "$name" != "$key" ] || continue 2; done
    doubtful "$path" || continue
    found=true
    if ((far > 3)); then REPLY=; fi
    echo "$kind: no stage runs the configMap's key $name${REPLY:+; did you mean $REPLY?}"
  done
  if [ "$kind:$found" = error:true ]; then
    echo "error: SHELLSCRIPT_STRICT is true, so nothing was run; rename these keys: the scripts of stages are ${known[*]}, and other keys must not look like them nor end in .sh"
    return 1
  fi
}

# interpreter FILE: words is what the first line says, or bash where it says nothing.
interpreter() {
  local first=''
  IFS= read -r first <"$1" || true
  if [[ $first == *$'\r' ]]; then
    echo "error: $stage.sh has Windows line ends, so no interpreter understands it; save it with Unix ones" >&2
    exit 1
  fi
  words=(/bin/bash)
  [[ $first != '#!'* ]] || read -r -a words <<<"${first#'#!'}"
  if ((${#words[@]} == 0)) || ! command -v "${words[0]}" >/dev/null; then
    echo "error: $stage.sh asks for the interpreter \"${words[*]}\", which this host does not have" >&2
    exit 1
  fi
}

# syntax FILE fails when the interpreter can tell, without running it, that FILE is wrong.
syntax() {
  local -a run=("${words[@]}")
  local word
  if [ "${run[0]##*/}" = env ]; then # the program is the first word that is no option and no variable
    for word in "${run[@]:1}"; do
      case $word in -* | *=*) continue ;; esac
      run=("$word")
      break
    done
  fi
  case ${run[0]##*/} in
  sh | bash | dash | ksh | zsh) "${run[0]}" -n "$1" ;;
  python | python3) "${run[0]}" -c 'import sys; compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec")' "$1" ;;
  esac
}

if ! look >&2; then exit 1; fi

script=$keys/$stage.sh
if [ ! -f "$script" ]; then
  echo "the configMap has no $stage.sh: nothing to do"
  exit 0
fi
if [[ $stage != *_check && ! -f $keys/${stage}_check.sh ]]; then
  echo "warning: the configMap has no ${stage}_check.sh, so nothing proves that $stage.sh did its work"
fi

interpreter "$script"
if ! syntax "$script"; then
  echo "error: $stage.sh is not valid for ${words[*]}, so it was not run" >&2
  exit 1
fi
exec "${words[@]}" "$script" "$stage"
