#!/usr/bin/env bash
# ./datasets.sh [--tiny | --embedded | --from FILE]     see --help
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
"$root/scripts/setup.sh"
# Not from inside the root: FILE is relative to where the command is typed.
exec "$root/.venv/bin/python" -m g2c.artifacts.prepare "$@"
