#!/usr/bin/env bash
# Sets everything up and runs every check: format, lint, types, GoogleTest, pytest. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"

build=$(ls -td build/torch-*-py* | head -n 1)
step() { printf '\n== %s\n' "$*"; }

if [ $# -eq 0 ]; then
  step "clang-format, ruff, mypy"
  git ls-files -z '*.h' '*.cpp' | xargs -0 clang-format --dry-run --Werror
  ruff check --quiet .
  ruff format --quiet --check .
  mypy --no-error-summary
  step "GoogleTest"
  ctest --test-dir "$build" --output-on-failure
fi
step "pytest"
python -m pytest "$@"
