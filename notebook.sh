#!/usr/bin/env bash
# ./notebook.sh linear-attention [--run [--quick] [--all]]     see --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scripts/setup.sh
exec .venv/bin/python -m g2c.lesson.launch "$@"
