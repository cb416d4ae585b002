#!/usr/bin/env bash
# Cross-compiles the kernels and their tests for 64-bit Arm and runs them under emulation: the path that Apple CPUs take, without one.
# Needs Debian's g++-aarch64-linux-gnu, qemu-user, googletest (its sources) and libhwy-dev. Arguments go to the tests.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
build=${G2C_NEON_BUILD:-"$root/build/neon"}
googletest=/usr/src/googletest/googletest
sysroot=/usr/aarch64-linux-gnu
mkdir -p "$build/include"
# Highway is headers only here, and those are the same for every architecture; the rest of /usr/include is not.
ln -sfn /usr/include/hwy "$build/include/hwy"

flags=(-O3 -std=c++20 -DHWY_COMPILE_ONLY_STATIC -isystem "$build/include" -isystem "$googletest/include")
own=(-Wall -Wextra -Werror -I"$root/csrc" -I"$root/tests/cpp/kernels")
objects=()
compile() {
  local source=$1
  shift
  local object="$build/$(basename "$source").o"
  aarch64-linux-gnu-g++ "${flags[@]}" "$@" -c "$source" -o "$object"
  objects+=("$object")
}
for source in "$root"/csrc/kernels/*.cpp "$root"/tests/cpp/kernels/*.cpp; do
  compile "$source" "${own[@]}"
done
compile "$googletest/src/gtest-all.cc" -I"$googletest"
compile "$googletest/src/gtest_main.cc" -I"$googletest"
aarch64-linux-gnu-g++ "${objects[@]}" -pthread -o "$build/kernel_tests"
exec qemu-aarch64 -L "$sysroot" "$build/kernel_tests" --gtest_brief=1 "$@"
