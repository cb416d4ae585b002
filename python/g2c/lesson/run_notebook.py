"""Executes a notebook without a browser: python -m g2c.lesson.run_notebook linear-attention

Each finished cell is a line on the terminal; what a long cell prints, its progress bars included,
shows while it runs. The executed notebook and an HTML report of it are left in the run folder, also
when a cell fails (exit code 1) or Ctrl-C is pressed (130): they then hold what was done so far.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.validator import NotebookValidationError
from traitlets.config import Config

from g2c.artifacts.files import replacing
from g2c.artifacts.home import checkout, home

FAILED, INTERRUPTED = 1, 130

# A bar of widgets can't be read on a terminal or in a report; a bar of text can.
_TEXT_BARS = "import tqdm, tqdm.auto; tqdm.auto.tqdm = tqdm.tqdm"
_SECONDS_BETWEEN_LINES = 15.0
_ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Terminal:
    """Shows progress on ``stream``: in place on a terminal, else a line now and then."""

    stream: TextIO
    _last: float = field(default=0.0, init=False)
    _unfinished: bool = field(default=False, init=False)

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self.stream.isatty():
            text = _ANSI_COLOUR.sub("", text)
        self._clear()
        print(text, file=self.stream, flush=True)

    def passing(self, text: str) -> None:
        """What a running cell printed: shown until something newer comes."""
        parts = [part for part in text.replace("\r", "\n").split("\n") if part.strip()]
        if not parts:
            return
        shown = "    " + parts[-1].strip()
        if self.stream.isatty():
            # A terminal that doesn't know its width says 0.
            width = os.get_terminal_size(self.stream.fileno()).columns or 80
            self._clear()
            print(shown[: width - 1], end="", file=self.stream, flush=True)
            self._unfinished = True
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            print(shown, file=self.stream, flush=True)

    def _clear(self) -> None:
        if self._unfinished:
            print("\r\x1b[K", end="", file=self.stream)
            self._unfinished = False


class _Client(NotebookClient):
    """A client that tells a terminal what cells print, and hands Ctrl-C to the kernel."""

    def __init__(self, notebook: NotebookNode, terminal: Terminal, **options: Any) -> None:
        super().__init__(notebook, **options)
        self.terminal = terminal
        self.interrupted = False
        self._count = sum(c.cell_type == "code" for c in notebook.cells)
        self._done = 0
        self._began = 0.0
        self.on_cell_execute = self._starts
        self.on_cell_executed = self._ended

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            self.terminal.passing(msg["content"]["text"])
        return super().process_message(msg, cell, cell_index)

    def _starts(self, cell: NotebookNode, cell_index: int) -> None:
        # Only now: nbclient's own handler, set at the start, kills the kernel, and with it the
        # chance of a training run to save where it stands.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        self._began = time.monotonic()

    def _ended(self, cell: NotebookNode, cell_index: int, execute_reply: dict[str, Any]) -> None:
        self._done += 1
        state = "" if execute_reply["content"]["status"] == "ok" else "   FAILED"
        self.terminal.line(
            f"cell {self._done}/{self._count}   {time.monotonic() - self._began:6.1f} s   "
            f"{_first_line(cell)}{state}"
        )

    def _interrupt(self) -> None:
        manager: Any = self.km
        if self.interrupted:
            self._task = asyncio.ensure_future(manager.shutdown_kernel(now=True))
            return
        self.interrupted = True
        self.terminal.line("interrupted: waiting for the cell to stop (Ctrl-C again: at once)")
        self._task = asyncio.ensure_future(manager.interrupt_kernel())


def run(
    notebook_path: Path,
    run_dir: Path,
    *,
    environment: dict[str, str] | None = None,
    stream: TextIO | None = None,
) -> int:
    """Execute ``notebook_path``; leave the executed copy and its report in ``run_dir``.

    ``environment`` is added to the kernel's. Returns 0, 1 when a cell failed, or 130 after Ctrl-C.
    Raises FileNotFoundError for a missing notebook and ValueError for a damaged one.
    """
    terminal = Terminal(stream or sys.stdout)
    notebook = read_notebook(notebook_path)
    _redirect_links(notebook, notebook_path.parent, run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    client = _Client(
        notebook,
        terminal,
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),
        timeout=None,
        kernel_name="python3",
        coalesce_streams=True,
        extra_arguments=[f"--IPKernelApp.exec_lines={_TEXT_BARS}"],
        resources={"metadata": {"path": str(run_dir)}},
    )
    variables = {**os.environ, "G2C_RUN_DIR": str(run_dir), **(environment or {})}
    code = 0
    try:
        client.execute(env=variables)
    except CellExecutionError as error:
        code = FAILED
        if not client.interrupted:
            terminal.line(f"{notebook_path.name}: a cell failed\n{error.traceback}")
    except DeadKernelError:
        code = FAILED
        terminal.line(f"{notebook_path.name}: the kernel died")
    except RuntimeError as error:
        code = FAILED
        terminal.line(f"{notebook_path.name}: the kernel did not start: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        client.interrupted = True
    if client.interrupted:
        code = INTERRUPTED
    _write(notebook, notebook_path.stem, run_dir, terminal, partial=code != 0)
    return code


def read_notebook(path: Path) -> NotebookNode:
    """A valid notebook of format 4; FileNotFoundError or ValueError for anything else."""
    if not path.is_file():
        raise FileNotFoundError(f"notebook: there is no {path}")
    try:
        notebook: NotebookNode = nbformat.reads(  # type: ignore[no-untyped-call]
            path.read_text(encoding="utf-8"), as_version=4
        )
        nbformat.validate(notebook)
    except (NotebookValidationError, ValueError, TypeError, AttributeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"notebook: {path} is no valid notebook ({reason})") from error
    return notebook


def _write(notebook: NotebookNode, stem: str, run_dir: Path, terminal: Terminal, *, partial: bool) -> None:
    executed, report = run_dir / f"{stem}.ipynb", run_dir / f"{stem}.html"
    with replacing(executed) as temp:
        text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        temp.write_text(text + "\n", encoding="utf-8")
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]
    html, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": f"g2c: {stem}"}})
    with replacing(report) as temp:
        temp.write_text(html, encoding="utf-8")
    state = "partly executed notebook" if partial else "executed notebook"
    terminal.line(f"{state}: {executed}\nreport: {report}\nfigures and tables: {run_dir}")


def _redirect_links(notebook: NotebookNode, source: Path, target: Path) -> None:
    """Make links to ../docs reach the same files from the run folder."""
    docs = (source / ".." / "docs").resolve()
    if not docs.is_dir():
        return
    reached = os.path.relpath(docs, target.resolve())
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../docs/", f"]({reached}/")


def _first_line(cell: NotebookNode) -> str:
    first = str(cell.source).lstrip().splitlines()[0]
    return first if len(first) <= 60 else first[:59] + "…"


def find_notebook(name: str) -> Path:
    """The notebook called ``name`` in this checkout, or the file at that path."""
    if name.endswith(".ipynb"):
        return Path(name)
    root = checkout()
    if root is None:
        raise FileNotFoundError(
            f"notebook {name!r}: g2c doesn't run from a checkout here; give a path to an .ipynb"
        )
    path = root / "notebooks" / f"{name}.ipynb"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.ipynb"))) or "none"
        raise FileNotFoundError(f"notebook {name!r} isn't there; there are: {there}")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="run_notebook", description=__doc__)
    parser.add_argument("notebook", help="name, such as linear-attention, or path of an .ipynb")
    parser.add_argument("--quick", action="store_true", help="trial run with fewer steps")
    parser.add_argument("--all", action="store_true", help="optional exercises too")
    parser.add_argument("--run-dir", type=Path, help="folder for the results")
    options = parser.parse_args(arguments)
    environment = {}
    if options.quick:
        environment["G2C_QUICK"] = "1"
    if options.all:
        environment["G2C_RUN_ALL"] = "1"
    try:
        path = find_notebook(options.notebook)
        run_dir = options.run_dir or Path(os.environ.get("G2C_RUN_DIR") or home() / "runs" / path.stem)
        return run(path, run_dir.expanduser().resolve(), environment=environment)
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
