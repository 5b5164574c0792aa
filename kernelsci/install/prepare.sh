#!/bin/sh
# Check what this machine lacks, all of it at once, and make the virtual environment. Nothing is downloaded before.
#
#     sh kernelsci/install/prepare.sh .venv
#
# Plain sh, because a fresh machine may have no Python at all. PYTHON names the interpreter to use; otherwise the first
# one of 3.11 to 3.14 serves, or one that uv has or fetches.
set -u
venv=$1
here=$(cd "$(dirname "$0")/../.." && pwd)
oldest=11 newest=14
needed_mb=4000 # torch for the CPU, everything else, and room for what pip unpacks
memory_mb=1500 # the servers, workers and one kernel that is measured
problems='' packages=''

has() { command -v "$1" >/dev/null 2>&1; }

# lack SENTENCE [PACKAGE]: note what is missing; PACKAGE in Debian's spelling.
lack() {
  problems="$problems  - $1
"
  packages="$packages ${2:-}"
}

is_suitable() { "$1" -c "import sys; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null; }

choose_python() {
  for name in ${PYTHON:-python3 python3.13 python3.12 python3.14 python3.11}; do
    if has "$name" && is_suitable "$name"; then
      echo "$name"
      return
    fi
  done
}

check_python() {
  python=$(choose_python)
  has uv && return
  if [ -z "$python" ]; then
    found=$("${PYTHON:-python3}" -V 2>&1) || found="none"
    lack "Python 3.$oldest to 3.$newest is needed; ${PYTHON:-python3} is: $found. PYTHON=… names another, and uv, \
where it is installed, brings one" python
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian divides the standard library: venv is in a package of its own, and fails half-way without it.
    lack "$python has no module venv" venv
  fi
}

check_compiler() {
  for name in ${KERNELSCI_CXX:-g++ c++ clang++}; do has "$name" && return; done
  lack "no C++ compiler: kernels for the CPU are built with one" compiler
}

check_machine() {
  [ "$(uname -s)" = Linux ] || lack "this is $(uname -s): Linux is needed (a virtual machine or container will do)"
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *) lack "no server programs exist for $(uname -m): set DATABASE_URL and REDIS_URL, or use x86_64 or aarch64" ;;
  esac
  if ls /lib/ld-musl-* >/dev/null 2>&1; then
    lack "this is musl, for which PyTorch has no packages: use a distribution with glibc, or the container image"
  fi
}

check_disk() {
  [ -x "$venv/bin/python" ] && needed_mb=500
  free_mb=$(df -Pm "$(dirname "$venv")" 2>/dev/null | awk 'NR == 2 { print $4 }')
  if [ "${free_mb:-$needed_mb}" -lt "$needed_mb" ]; then
    lack "$free_mb MB are free in $(cd "$(dirname "$venv")" && pwd), $needed_mb MB are needed: free some, or clone elsewhere"
  fi
  [ -w "$(dirname "$venv")" ] || lack "$(cd "$(dirname "$venv")" && pwd) cannot be written: clone into a folder of yours"
}

check_memory() {
  total_mb=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null)
  if [ "${total_mb:-$memory_mb}" -lt "$memory_mb" ]; then
    lack "$total_mb MB of memory, $memory_mb MB are needed: use a larger machine"
  fi
}

# Builds and sandboxes run programs from there.
check_temporary_folder() {
  folder=${TMPDIR:-/tmp}
  trial=$(mktemp "$folder/kernelsci.XXXXXX" 2>/dev/null) || {
    lack "$folder cannot be written: set TMPDIR to a folder of yours, for example TMPDIR=\$HOME/tmp make start"
    return
  }
  printf '#!/bin/sh\n' >"$trial" && chmod 700 "$trial"
  "$trial" 2>/dev/null || lack "$folder is mounted noexec: set TMPDIR to another folder, for example TMPDIR=\$HOME/tmp make start"
  rm -f "$trial"
}

check_sandbox() {
  [ -n "$python" ] && [ "${KERNELSCI_ALLOW_UNSANDBOXED:-0}" = 0 ] || return 0
  (cd "$here" && "$python" -B -c 'import sys; from runners.sandbox.probe import probe; sys.exit(probe() == "none")') \
    >/dev/null 2>&1 || lack "neither bubblewrap nor Landlock confines kernels here" bubblewrap
}

# Print the minor version of the Python that a package would install, nothing where there is none. `apt-cache show` succeeds
# for packages that others merely name.
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: 3\.\([0-9]*\).*$/\1/p'; }

# Print the package of a suitable Python, nothing where the distribution has none. One whose own is older may have a
# newer one beside it, as Ubuntu 22.04 has 3.11.
debian_python() {
  minor=$(candidate python3)
  [ -n "$minor" ] || { has python3 && minor=0; } # no lists of packages: what is here is unsuitable
  if [ "${minor:-$oldest}" -ge "$oldest" ] && [ "${minor:-$newest}" -le "$newest" ]; then
    echo python3
    return
  fi
  for name in python3.13 python3.12 python3.14 python3.11; do
    [ -z "$(candidate "$name")" ] || { echo "$name" && return; }
  done
}

# names DEBIAN... -> this distribution's names for what is missing, and the command before them.
install_command() {
  set -f # what follows are words, not patterns
  minor=$([ -n "${PYTHON:-}" ] && echo "$PYTHON" | sed -n 's/^.*python\(3\.[0-9]*\)$/\1/p')
  if has apt-get; then
    own=${minor:+python$minor} manager="apt-get install -y"
    [ -n "$own$python" ] || own=$(debian_python)
    map="python=${own:+$own,$own-venv} venv=${python:-$own}-venv compiler=g++ bubblewrap=bubblewrap"
  elif has dnf; then
    manager="dnf install -y" map="python=python${minor:-3} venv=python3 compiler=gcc-c++ bubblewrap=bubblewrap"
  elif has zypper; then
    manager="zypper install -y" map="python=python313 venv=python313 compiler=gcc-c++ bubblewrap=bubblewrap"
  elif has pacman; then
    manager="pacman -S --needed" map="python=python venv=python compiler=gcc bubblewrap=bubblewrap"
  else
    return
  fi
  names=''
  for wanted in $packages; do
    for pair in $map; do
      [ "${pair%%=*}" = "$wanted" ] && names="$names $(echo "${pair#*=}" | tr , ' ')"
    done
  done
  names=$(echo $names) # without the spaces of what has no name
  sudo=$([ "$(id -u)" = 0 ] || echo 'sudo ')
  [ -z "$names" ] || echo "$sudo$manager $names"
}

refuse() {
  printf 'This machine lacks something; nothing was installed:\n\n%s' "$problems" >&2
  command=$(install_command)
  [ -z "$command" ] || printf '\nInstall it with:\n\n    %s\n' "$command" >&2
  printf '\nThen run make start again.\n' >&2
  exit 1
}

make_environment() {
  [ -x "$venv/bin/python" ] && return
  if has uv && [ "${INSTALLER:-uv}" = uv ]; then
    uv venv --quiet --seed --python "${python:->=3.$oldest,<=3.$newest}" "$venv"
  else
    "$python" -m venv "$venv"
  fi || {
    # Half an environment would be taken for a whole one.
    rm -rf "$venv"
    echo "No virtual environment could be made in $venv, see above." >&2
    exit 1
  }
}

for check in machine python compiler disk memory temporary_folder sandbox; do "check_$check"; done
[ -z "$problems" ] || refuse
make_environment
