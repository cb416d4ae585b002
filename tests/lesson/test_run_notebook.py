"""Running a notebook without a browser."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from g2c.lesson import run_notebook


def write(folder: Path, *sources: str, name: str = "some") -> Path:
    cells = [new_markdown_cell("See [there](../docs/lesson.md#mask).")]
    cells += [new_code_cell(source) for source in sources]
    path = folder / "notebooks" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(nbformat.writes(new_notebook(cells=cells)), encoding="utf-8")
    return path


def printed(path: Path) -> list[str]:
    """What each code cell of an executed notebook printed; errors as their names."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [
        "".join(out.get("text", out.get("ename", "")) for out in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_executed_notebook_report_and_progress(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    source = write(tmp_path, "import os; print(os.environ['ADDED'], os.getcwd())", "print(1 + 1)")
    run_dir = tmp_path / "deep" / "run"
    stream = io.StringIO()
    code = run_notebook.run(source, run_dir, environment={"ADDED": "here"}, stream=stream)
    assert code == 0
    assert printed(run_dir / "some.ipynb") == [f"here {run_dir}\n", "2\n"]
    report = (run_dir / "some.html").read_text(encoding="utf-8")
    assert "<title>g2c: some</title>" in report
    assert 'href="../../docs/lesson.md#mask"' in report
    assert "cell 1/2" in stream.getvalue() and "cell 2/2" in stream.getvalue()
    assert "outputs" in source.read_text() and printed(source) == ["", ""]


def test_progress_bars_are_text(tmp_path: Path) -> None:
    source = write(tmp_path, "from tqdm.auto import tqdm\nfor _ in tqdm(range(3), desc='bar'):\n    pass")
    assert run_notebook.run(source, tmp_path / "run", stream=io.StringIO()) == 0
    (text,) = printed(tmp_path / "run" / "some.ipynb")
    assert "bar: 100%" in text
    assert text.count("bar") == 1


def test_failing_cell_leaves_the_partial_notebook(tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", "1 / 0", "print('never')")
    stream = io.StringIO()
    assert run_notebook.run(source, tmp_path / "run", stream=stream) == 1
    assert printed(tmp_path / "run" / "some.ipynb") == ["first\n", "ZeroDivisionError", ""]
    assert "ZeroDivisionError" in (tmp_path / "run" / "some.html").read_text(encoding="utf-8")
    assert "FAILED" in stream.getvalue()
    assert "division by zero" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_kernel_that_dies(tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", "import os; os._exit(3)")
    stream = io.StringIO()
    assert run_notebook.run(source, tmp_path / "run", stream=stream) == 1
    assert printed(tmp_path / "run" / "some.ipynb")[0] == "first\n"
    assert "the kernel died" in stream.getvalue()


_WAITING = """
import pathlib, time
pathlib.Path("started").touch()
try:
    time.sleep(120)
except KeyboardInterrupt:
    print("saved")
    raise
"""


def test_ctrl_c_lets_the_cell_save_and_keeps_the_notebook(tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", _WAITING, "print('never')")
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "g2c.lesson.run_notebook", str(source)]
    process = subprocess.Popen([*command, "--run-dir", str(run_dir)], stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 90
        while not (run_dir / "started").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert printed(run_dir / "some.ipynb") == ["first\n", "saved\nKeyboardInterrupt", ""]
    assert (run_dir / "some.html").is_file()
    assert "partly executed notebook" in output


@pytest.mark.parametrize("content", ["", "{", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5}'])
def test_damaged_notebook(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.ipynb"
    path.write_text(content)
    assert run_notebook.main([str(path), "--run-dir", str(tmp_path / "run")]) == 1
    assert "is no valid notebook" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_unknown_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_notebook.main(["nonesuch"]) == 1
    assert "linear-attention" in capsys.readouterr().err
    assert run_notebook.main(["none/such.ipynb"]) == 1
    assert "there is no" in capsys.readouterr().err


def test_flags_become_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def record(path: Path, run_dir: Path, *, environment: dict[str, str]) -> int:
        seen.extend((path.name, run_dir, environment))
        return 0

    monkeypatch.setattr(run_notebook, "run", record)
    monkeypatch.setenv("G2C_RUN_DIR", str(tmp_path))
    assert run_notebook.main(["linear-attention", "--quick", "--all"]) == 0
    assert seen == ["linear-attention.ipynb", tmp_path, {"G2C_QUICK": "1", "G2C_RUN_ALL": "1"}]


def test_passing_lines_are_rare_off_a_terminal() -> None:
    stream = io.StringIO()
    terminal = run_notebook.Terminal(stream)
    for step in range(100):
        terminal.passing(f"\rstep {step}")
    terminal.passing("\n")
    assert stream.getvalue().splitlines() == ["    step 0"]


def test_lines_replace_each_other_on_a_terminal() -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as stream:
        terminal = run_notebook.Terminal(stream)
        terminal.passing("step 1\rstep 2")
        terminal.line("done")
        stream.flush()
        text = os.read(leader, 1000).decode()
    os.close(leader)
    assert "step 1" not in text
    assert text.endswith("step 2\r\x1b[Kdone\r\n")
