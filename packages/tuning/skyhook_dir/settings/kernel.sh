#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# kernel.sh: the key grub.conf, arguments of the kernel. They are added to those of the distribution and of others, and
# count from the next boot.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail

kernel_own=/etc/default/grub.d/$mark.cfg
kernel_late=/etc/default/grub.d/$late.cfg
kernel_menu=/boot/grub/grub.cfg
kernel_state=kernel-$package # what grubby was told, and the entries as they were before, see kernel_add

kernel_args=()

kernel_read() {
  local line number=0
  [ -f "$config/grub.conf" ] || return 0
  text "$config/grub.conf"
  while IFS= read -r line; do
    number=$((number + 1))
    trim "$line"
    case $REPLY in
    '' | '#'*) ;;
    *[\$\`\\\']*) fault "grub.conf line $number, \"${REPLY:0:60}\": \$, \`, \\ and ' mean something to GRUB; write arguments without them" ;;
    *) kernel_split "$REPLY" || fault "grub.conf line $number, \"${REPLY:0:60}\": a quote is not closed" ;;
    esac
  done <<<"$REPLY"
  ((${#kernel_args[@]} > 0)) || return 0
  if command -v update-grub >/dev/null; then
    return
  elif ! command -v grubby >/dev/null; then
    fault "grub.conf asks for kernel arguments, and this host has neither update-grub nor grubby to set them with; leave the key out for such hosts, or set them where their images are made"
  elif [[ ${kernel_args[*]} == *'"'* ]]; then
    fault "grub.conf has an argument in quotes, which grubby cannot set; write it without blanks"
  fi
}

# kernel_split LINE adds the arguments of a line; blanks between double quotes belong to the argument.
kernel_split() {
  local line=$1 arg='' quoted=false c i
  for ((i = 0; i < ${#line}; i++)); do
    c=${line:i:1}
    case $quoted:$c in
    false:' ' | false:$'\t')
      [ -z "$arg" ] || kernel_args+=("$arg")
      arg=''
      continue
      ;;
    false:'"') quoted=true ;;
    true:'"') quoted=false ;;
    esac
    arg+=$c
  done
  [ -z "$arg" ] || kernel_args+=("$arg")
  [ "$quoted" = false ]
}

# kernel_has LINE ARGUMENT: quotes are no part of what is compared, the kernel and GRUB set their own.
kernel_has() { [[ " ${1//\"/} " == *" ${2//\"/} "* ]]; }

# kernel_missing LINE: missing is the arguments that a line lacks. Some mean something only after others, such as hugepages
# after hugepagesz, so one that comes too early does not count.
kernel_missing() {
  local arg rest=" ${1//\"/} "
  missing=()
  for arg in "${kernel_args[@]}"; do
    arg=" ${arg//\"/} "
    if [[ $rest == *"$arg"* ]]; then
      rest=" ${rest#*"$arg"}"
    else
      trim "$arg"
      missing+=("$REPLY")
    fi
  done
}

kernel_apply() {
  if command -v update-grub >/dev/null; then
    kernel_apply_menu
  else
    take_away "$kernel_own" # an earlier release may have left them
    take_away "$kernel_late"
    ! command -v grubby >/dev/null || kernel_apply_grubby
  fi
}

# On Debian and its kin GRUB's menu is made from shell variables.

kernel_drop_in() {
  local all="$*"
  # shellcheck disable=SC2016 # the drop-in expands it
  printf '# Made by Skyhook package %s; changes are overwritten.\n%s%s"\n' "$package" \
    'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }' "${all//\"/\\\"}"
}

# kernel_variables LEFT_OUT prints what the files make of the arguments, as the menu's maker will see them.
kernel_variables() {
  sh -c 'exec 3>&1 >/dev/null; test ! -f /etc/default/grub || . /etc/default/grub
    for f in /etc/default/grub.d/*.cfg; do test "$f" = "$1" || test ! -f "$f" || . "$f"; done
    printf "%s\n" "${GRUB_CMDLINE_LINUX-} ${GRUB_CMDLINE_LINUX_DEFAULT-}" >&3' sh "$1"
}

# kernel_entry prints the first entry of the menu.
kernel_entry() { grep -m 1 -E '^[[:space:]]*linux(16|efi)?[[:space:]]' "$kernel_menu" 2>/dev/null || true; }

kernel_apply_menu() {
  local variables
  if ((${#kernel_args[@]} == 0)); then
    kernel_menu_without "$kernel_own"
    kernel_menu_without "$kernel_late"
  else
    kernel_menu_with "$kernel_own" "${kernel_args[@]}"
    variables=$(kernel_variables "$kernel_late") || {
      fault "/etc/default/grub or a file of /etc/default/grub.d cannot be read by the shell, so no menu can be made"
      end_with_faults
    }
    kernel_missing "$variables" # a file after ours replaces them
    if ((${#missing[@]} == 0)); then
      kernel_menu_without "$kernel_late"
    else
      kernel_menu_with "$kernel_late" "${kernel_args[@]}"
    fi
    kernel_missing "$(kernel_entry)"
    ((${#missing[@]} == 0)) || remember due "update-grub $package"
  fi
  if remembered due "update-grub $package"; then
    update-grub || {
      fault "update-grub failed, so the next boot goes without the change; the next attempt runs it again"
      end_with_faults
    }
    forget due "update-grub $package"
  fi
}

# kernel_menu_with FILE ARGUMENT… and kernel_menu_without FILE note that the menu is due before they change a file.
kernel_menu_with() {
  local file=$1 content
  shift
  content=$(kernel_drop_in "$@")
  ! cmp -s "$file" - <<<"$content" || return 0
  remember due "update-grub $package"
  put "$file" <<<"$content"
}

kernel_menu_without() {
  [ -e "$1" ] || return 0
  remember due "update-grub $package"
  take_away "$1"
}

# On the RHEL family grubby edits the entries themselves, and what later kernels begin with.

# grubby_entries prints KERNEL and its arguments, with a tab between them, for each entry.
grubby_entries() {
  local line kernel=''
  while IFS= read -r line; do
    case $line in
    kernel=*)
      kernel=${line#kernel=}
      kernel=${kernel//\"/}
      ;;
    args=*)
      line=${line#args=\"}
      printf '%s\t%s\n' "$kernel" "${line%\"}"
      ;;
    esac
  done <<<"$(grubby --info="$1")"
}

# grubby_args KERNEL: REPLY is the arguments of its entry.
grubby_args() {
  REPLY=$(grubby_entries "$1")
  REPLY=${REPLY%%$'\n'*}
  REPLY=${REPLY#*$'\t'}
}

# grubby_told MESSAGE…: what grubby is told to change.
grubby_told() {
  say "grubby $*"
  grubby "$@"
}

# grubby_others: others is what other packages of this image have added, each between blanks, and other_entries the entries
# as they were before them.
grubby_others() {
  local file
  others=' ' other_entries=''
  for file in "$state"/kernel-*; do
    if [ "$file" = "$state/$kernel_state" ] || [ ! -f "$file" ]; then continue; fi
    others+="$(sed -n 's/^added\t//p' "$file" | tr '\n' ' ')"
    other_entries+="$(sed -n 's/^entry\t//p' "$file")"$'\n'
  done
}

kernel_apply_grubby() {
  local arg foreign=false
  local -a added
  mapfile -t added <<<"$(recall "$kernel_state" | sed -n 's/^added\t//p')"
  [ -n "${added[0]}" ] || added=()
  ((${#kernel_args[@]} + ${#added[@]} > 0)) || return 0
  grubby_args DEFAULT
  if [ -z "$REPLY" ]; then
    fault "grubby does not tell the arguments of the default kernel, see grubby --info=DEFAULT; nothing was changed"
    end_with_faults
  fi
  kernel_missing "$REPLY"
  grubby_others
  for arg in "${kernel_args[@]}"; do
    if [[ $others == *" $arg "* ]]; then foreign=true; fi # it would go with the other package
  done
  if ((${#added[@]} > 0)); then
    if ((${#missing[@]} == 0)) && [ "${added[*]}" = "${kernel_args[*]}" ]; then return; fi
    kernel_take
    grubby_args DEFAULT
    kernel_missing "$REPLY"
  fi
  if ((${#missing[@]} > 0)) || [ "$foreign" = true ]; then kernel_add; fi
}

# kernel_add adds the arguments as one, because their order can matter. grubby replaces what has the same name, so the
# values of that name that are there are given to it again, before ours. The entries are remembered as they were.
kernel_add() {
  local entries kernel line word arg
  local -a words again=()
  entries=$(grubby_entries ALL)
  while IFS=$'\t' read -r kernel line; do
    word=$(grep -m 1 -F -e "$kernel"$'\t' <<<"$other_entries") || word=$kernel$'\t'$line
    remember "$kernel_state" "entry"$'\t'"$word"
  done <<<"$entries"
  grubby_args DEFAULT
  read -r -a words <<<"$REPLY"
  for word in "${words[@]}"; do
    for arg in "${kernel_args[@]}"; do
      if [ "$word" = "$arg" ]; then continue 2; fi
    done
    for arg in "${kernel_args[@]}"; do
      if [[ $arg == *=* && $word == "${arg%%=*}="* ]]; then
        again+=("$word")
        continue 2
      fi
    done
  done
  for word in "${again[@]}"; do remember "$kernel_state" "again"$'\t'"$word"; done
  for arg in "${kernel_args[@]}"; do remember "$kernel_state" "added"$'\t'"$arg"; done
  grubby_told --update-kernel=ALL --args="${again[*]}${again[*]:+ }${kernel_args[*]}"
  grubby_args DEFAULT
  for word in "${again[@]}"; do
    kernel_has "$REPLY" "$word" || warn "grubby took out $word, because it keeps one value of a name; it comes back when this package is uninstalled"
  done
}

# kernel_take takes out what was added, and makes each entry have what it had before.
kernel_take() {
  local kernel before word
  local -a words lost brought given mine=()
  for word in "${added[@]}"; do [[ $others == *" $word "* ]] || mine+=("$word"); done
  ((${#mine[@]} == 0)) || grubby_told --update-kernel=ALL --remove-args="${mine[*]}"
  mapfile -t given <<<"$(recall "$kernel_state" | sed -n 's/^a[a-z]*\t//p')"
  while IFS=$'\t' read -r kernel before; do
    grubby_args "$kernel"
    [ -n "$REPLY" ] || continue # it was removed since
    lost=() brought=()
    read -r -a words <<<"$before"
    for word in "${words[@]}"; do kernel_has "$REPLY" "$word" || lost+=("$word"); done
    for word in "${given[@]}"; do
      [[ $others != *" $word "* ]] || continue
      if kernel_has "$REPLY" "$word" && ! kernel_has "$before" "$word"; then brought+=("$word"); fi
    done
    ((${#brought[@]} == 0)) || grubby_told --update-kernel="$kernel" --remove-args="${brought[*]}"
    ((${#lost[@]} == 0)) || grubby_told --update-kernel="$kernel" --args="${lost[*]}"
  done <<<"$(recall "$kernel_state" | sed -n 's/^entry\t//p')"
  grubby_args DEFAULT
  for word in "${added[@]}"; do
    kernel_has "$REPLY" "$word" || printf 'kernel\t%s\n' "$word" >>"$undone"
  done
  rm -f "${state:?}/$kernel_state"
}

# kernel_check looks at what the next boot begins with.
kernel_check() {
  local arg
  if ((${#kernel_args[@]} == 0)); then
    gone "$kernel_own"
    gone "$kernel_late"
    return
  fi
  kernel_missing "$(kernel_next)"
  for arg in "${missing[@]}"; do
    fault "the next boot goes without the kernel argument $arg: it is not in $(kernel_where)"
  done
}

kernel_where() {
  if command -v update-grub >/dev/null; then echo "$kernel_menu"; else echo "the default entry, see grubby --info=DEFAULT"; fi
}

kernel_next() {
  if command -v update-grub >/dev/null; then
    kernel_entry
  elif command -v grubby >/dev/null; then
    grubby_args DEFAULT
    printf '%s\n' "$REPLY"
  fi
}

# kernel_check_running looks at what this boot began with.
kernel_check_running() {
  local arg
  kernel_missing "$(cat /proc/cmdline)"
  for arg in "${missing[@]}"; do
    fault "the kernel runs without the argument $arg, see /proc/cmdline: was the node rebooted?"
  done
}
