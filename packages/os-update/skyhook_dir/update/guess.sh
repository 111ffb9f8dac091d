#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# guess.sh works out what services run with where maps of other processes cannot be read, as in a preflight. A process is taken to run
# its program and each library that this, or one of these in turn, names anywhere: by its file, or by its folder, as for plugins; where
# that cannot be told, as for interpreters, it is all libraries. A file counts as replaced if it changed after the process began.
# So this names more than what runs with replaced files, and not less.
# shellcheck disable=SC2154 # the parts of this package share their variables
set -euo pipefail

loads_anything='^(python|pypy|perl|ruby|node|java|php|lua|tclsh|guile|mono|dotnet|gjs)[0-9.]*$'

# Files are known by device and inode. A library is named by its file name or its folder.
declare -A changed=()   # when a file changed, in 1/100 s
declare -A paths=()     # its paths, each in a line
declare -A libraries=() # the libraries that a name stands for
declare -A named=()     # the libraries that a file names

# add_file FILE CHANGED PATH
add_file() {
  changed[$1]=${2/./}
  paths[$1]+=$3$'\n'
}

find_libraries() {
  local file time path folder
  find /usr /lib /lib32 /lib64 /opt \( -path /usr/lib/modules -o -path /lib/modules \) -prune -o \
    \( -name '*.so' -o -name '*.so.[0-9]*' \) ! -name '*.gz' ! -type d -exec stat -L -c '%d:%i %.2Z %n' {} + >"$scratch/libraries" 2>/dev/null || true
  while read -r file time path; do
    add_file "$file" "$time" "$path"
    libraries[${path##*/}]+=" $file"
    case $path in */libnss_*) libraries[libnss_]+=" $file" ;; esac # the rest of the name is in nsswitch.conf
    folder=${path%/*}
    folder=${folder#/usr}
    while [[ ! ${folder##*/} =~ ^(|lib|lib32|lib64|libexec|bin|sbin|local|share|opt|.*-linux-.*)$ ]]; do
      libraries[$folder]+=" $file"
      folder=${folder%/*}
    done
  done <"$scratch/libraries"
  ((${#changed[@]} > 0)) || fail "the libraries of this host cannot be looked at"
}

# find_named FILE… finds the libraries that the files name, and those that these name, until there is nothing new.
find_named() {
  local file path name
  local -A known=() at=()
  local -a more
  printf '%s\n' "${!libraries[@]}" >"$scratch/names"
  while (($# > 0)); do
    at=()
    for file; do
      known[$file]=yes
      at[${paths[$file]%%$'\n'*}]=$file
    done
    grep -aoHZFf "$scratch/names" -- "${!at[@]}" >"$scratch/found" || (($? == 1))
    while IFS=$'\t' read -r path name; do
      [ -z "$path" ] || named[${at[$path]}]+=${libraries[$name]}
    done <<<"$(tr '\0' '\t' <"$scratch/found" | sort -u)"
    set --
    for path in "${!at[@]}"; do
      read -r -a more <<<"${named[${at[$path]}]-}"
      for file in "${more[@]}"; do
        [ -z "${known[$file]+x}" ] || continue
        known[$file]=yes
        set -- "$@" "$file"
      done
    done
  done
}

# find_uses FILE: uses is the file, and all libraries that it needs.
find_uses() {
  local i file
  local -A known=([$1]=yes)
  local -a more
  uses=("$1")
  for ((i = 0; i < ${#uses[@]}; i++)); do
    read -r -a more <<<"${named[${uses[i]}]-}"
    for file in "${more[@]}"; do
      [ -z "${known[$file]+x}" ] || continue
      known[$file]=yes
      uses+=("$file")
    done
  done
}

# find_program NAME TITLE: program is that of a process, by its name and its first argument. Fails if they do not agree, and if it may
# load any library.
find_program() {
  local name
  case $2 in
  /*) program=$2 ;;
  *' /'*) # sshd: /usr/sbin/sshd -D
    program=/${2#* /}
    program=${program%% *}
    ;;
  *) program=$(type -P -- "$1") || program= ;;
  esac
  name=${program##*/}
  case $name in
  sh | bash | dash) ;; # the name is that of the script
  *) if [ "${name:0:15}" != "$1" ] || [[ $name =~ $loads_anything ]]; then return 1; fi ;;
  esac
  [ -f "$program" ]
}

# print_files PID START FILE…
print_files() {
  local pid=$1 start=$2 file path mark
  shift 2
  for file; do
    mark=
    ((${changed[$file]} + 5 < start)) || mark=' (deleted)' # neither clock is exact
    while read -r path; do
      [ -z "$path" ] || printf '%s %s%s\n' "$pid" "$path" "$mark"
    done <<<"${paths[$file]}"
  done
}

guess_mapped() {
  local pid stat name program file time path boot up ticks
  local -a fields words uses every
  local -A start=() program_of=() program_file=() is_sure=()
  : </proc/1/cgroup || fail "the processes of this host cannot be looked at; is /proc mounted with hidepid?"
  boot=$(date +%s%2N)
  read -r up _ </proc/uptime
  boot=$((boot - 10#${up/./}))
  ticks=$(getconf CLK_TCK 2>/dev/null || echo 100)
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    service_of "$pid" || continue
    { stat=$(<"/proc/$pid/stat") && mapfile -d '' -t words <"/proc/$pid/cmdline"; } 2>/dev/null || continue # it has ended
    read -r -a fields <<<"${stat##*) }" # what follows the name; the 20th is the start, in ticks since the boot
    [ "${fields[0]}" != Z ] || continue
    name=${stat#*\(}
    start[$pid]=$((boot + fields[19] * 100 / ticks))
    if find_program "${name%)*}" "${words[0]-}"; then is_sure[$pid]=yes; fi
    program_of[$pid]=$program
  done
  ((${#start[@]} > 0)) || return 0
  find_libraries
  every=("${!changed[@]}")
  stat -L -c $'%d:%i\t%.2Z\t%n' -- "${program_of[@]}" >"$scratch/programs" 2>/dev/null || true
  while IFS=$'\t' read -r file time path; do
    program_file[$path]=$file
    [ -n "${changed[$file]+x}" ] || add_file "$file" "$time" "$(readlink -m "$path")"
  done <"$scratch/programs"
  words=()
  for pid in "${!is_sure[@]}"; do words+=("${program_file[${program_of[$pid]}]}"); done
  find_named "${words[@]}"
  for pid in "${!start[@]}"; do
    program=${program_of[$pid]}
    file=${program_file[$program]-}
    if [ -n "${is_sure[$pid]+x}" ]; then
      find_uses "$file"
    else
      uses=("${every[@]}" ${file:+"$file"})
      [[ -n $file || $program != /* ]] || printf '%s %s (deleted)\n' "$pid" "$program"
    fi
    print_files "$pid" "${start[$pid]}" "${uses[@]}"
  done
}
