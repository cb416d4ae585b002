"""What ./notebook.sh does once everything is set up: get data, then run or open a notebook."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from g2c.artifacts import available_corpora, prepare
from g2c.artifacts.files import replacing
from g2c.artifacts.home import home
from g2c.lesson import run_notebook
from g2c.lesson.run_notebook import FAILED, INTERRUPTED


def working_copy(notebook: Path) -> Path:
    """Where the learner's own copy lies: beside the original, so that its links work; git ignores it."""
    return notebook.with_suffix(".work.ipynb")


def prepare_working_copy(notebook: Path, *, fresh: bool) -> Path:
    """The learner's copy, made if there is none; `fresh` archives the old one under a time stamp.

    Raises ValueError for a copy that isn't a notebook, with the command that mends it.
    """
    copy = working_copy(notebook)
    if fresh and copy.exists():
        archived = copy.with_name(f"{notebook.stem}.{time.strftime('%Y%m%d-%H%M%S')}.work.ipynb")
        copy.rename(archived)
        print(f"the old copy is now {archived}")
    if not copy.exists():
        with replacing(copy) as path:
            shutil.copyfile(notebook, path)
        return copy
    try:
        run_notebook.read_notebook(copy)
    except ValueError as error:
        raise ValueError(
            f"{error}\nTo archive it and start anew: ./notebook.sh {notebook.stem} --fresh"
        ) from error
    return copy


def ensure_data() -> int:
    """A corpus to train on: the best one present, else TinyStories' tiny tier or what serves for it."""
    if os.environ.get("G2C_CORPUS") or available_corpora():
        return 0
    return prepare.main(["--tiny"])


def open_in_jupyter(copy: Path) -> int:
    """JupyterLab on the copy, until it is left."""
    command = [sys.executable, "-m", "jupyter", "lab", str(copy)]
    return subprocess.run(command, cwd=home(), check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see --help."""
    parser = argparse.ArgumentParser(
        prog="./notebook.sh",
        description="Open a lesson's notebook in JupyterLab, or run it without a browser.",
        epilog="example: ./notebook.sh linear-attention --run --quick",
    )
    parser.add_argument("notebook", help="the lesson: linear-attention")
    parser.add_argument("--run", action="store_true", help="execute it, and leave a report in runs/")
    parser.add_argument("--quick", action="store_true", help="with --run: a trial of a few minutes")
    parser.add_argument("--all", action="store_true", help="with --run: optional exercises too")
    parser.add_argument("--run-dir", type=Path, help="with --run: folder of the results")
    parser.add_argument("--fresh", action="store_true", help="archive your copy and start anew")
    parser.add_argument("--no-launch", action="store_true", help="stop before the browser")
    options = parser.parse_args(arguments)
    if not options.run and (options.quick or options.all or options.run_dir):
        parser.error("--quick, --all and --run-dir go with --run")
    if options.run and (options.fresh or options.no_launch):
        parser.error("--fresh and --no-launch don't go with --run")
    try:
        notebook = run_notebook.find_notebook(options.notebook)
        status = ensure_data()
        if status != 0:
            return status
        if options.run:
            command = [str(notebook)]
            command += ["--quick"] * options.quick + ["--all"] * options.all
            command += ["--run-dir", str(options.run_dir)] if options.run_dir else []
            return run_notebook.main(command)
        copy = prepare_working_copy(notebook, fresh=options.fresh)
        if options.no_launch:
            print(f"ready: {copy}")
            return 0
        return open_in_jupyter(copy)
    except (FileNotFoundError, ValueError) as error:
        print(f"notebook.sh: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
