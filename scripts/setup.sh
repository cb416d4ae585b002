#!/usr/bin/env bash
# Set-up shared by notebook.sh, datasets.sh and tests/run.sh: system packages, .venv, pinned Python packages, the built extension.
# Safe to run again; with nothing changed it takes a second or two. Its last step builds, so an edit of C++ is picked up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'g2c: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

python=${G2C_PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  fail "needs Python 3.11 or newer as $python; set G2C_PYTHON to one"

# C++ compiler and headers. Installed where that is possible without asking, else one command to type.
need=()
has_header() { printf '#include <%s>\n' "$1" | "${CXX:-c++}" -std=c++17 $extra_include -E -x c++ - >/dev/null 2>&1; }
extra_include=""
if command -v brew >/dev/null 2>&1; then extra_include="-I$(brew --prefix)/include"; fi
command -v "${CXX:-c++}" >/dev/null 2>&1 || need+=(g++)
if [ ${#need[@]} -gt 0 ] || ! has_header fmt/format.h; then need+=(libfmt-dev); fi
if [ ${#need[@]} -gt 0 ] || ! has_header gtest/gtest.h; then need+=(libgtest-dev); fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || need+=(python3-venv python3-dev)
if [ ${#need[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
      say "installing ${need[*]}"
      apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${need[@]}" >/dev/null ||
        fail "could not install ${need[*]}"
    else
      fail "needs system packages, run: sudo apt-get install ${need[*]}"
    fi
  elif command -v brew >/dev/null 2>&1; then
    fail "needs system packages, run: xcode-select --install; brew install fmt googletest"
  else
    fail "needs a C++20 compiler, fmt and GoogleTest: install them with your package manager"
  fi
fi

if [ ! -x .venv/bin/python ]; then
  say "making .venv"
  "$python" -m venv .venv
fi

# A stamp in .venv holds the digest of what was installed from; a change of the files reinstalls.
digest() { cat "$@" | .venv/bin/python -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'; }
up_to_date() { [ "$(cat ".venv/$1.stamp" 2>/dev/null)" = "$2" ]; }

export G2C_BUILD_TESTS=ON PATH="$PWD/.venv/bin:$PATH"
log=build/build.log
mkdir -p build

# Quiet unless it fails.
pip_install() {
  .venv/bin/python -m pip install --disable-pip-version-check "$@" >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2; fail "pip install failed; the whole log is $log"; }
}

wanted=$(digest requirements.txt)
if ! up_to_date requirements "$wanted"; then
  say "installing the packages of requirements.txt into .venv"
  pip_install -r requirements.txt
  echo "$wanted" >.venv/requirements.stamp
fi

wanted=$(digest setup.py pyproject.toml)
if ! up_to_date package "$wanted"; then
  say "building the C++ extension (a few minutes the first time; log: $log)"
  pip_install --no-build-isolation --no-deps -e .
  echo "$wanted" >.venv/package.stamp
fi
.venv/bin/python setup.py -q build_ext --inplace >"$log" 2>&1 ||
  { grep -E 'error|Error' "$log" | head -n 20 >&2; fail "the build failed; the whole log is $log"; }
