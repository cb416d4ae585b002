"""The whole notebook, with so few steps that it is about running and not about results."""

from __future__ import annotations

import io
import json
import random
import string
from pathlib import Path

import nbformat
import pytest

from g2c.artifacts import prepare
from g2c.lesson import run_notebook
from g2c.memory import bill


def stories(count: int) -> str:
    """Text with enough different words for a tokenizer of 4,096 entries."""
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9))) for _ in range(3000)]
    lines = (" ".join(draw.choices(words, k=40)).capitalize() + "." for _ in range(count))
    return "".join(f"{line}\n<|endoftext|>\n" for line in lines)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder after `G2C_STEPS=2`, on a small corpus of its own."""
    folder = tmp_path_factory.mktemp("lesson")
    text = folder / "stories.txt"
    text.write_text(stories(1500), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("G2C_HOME", str(folder / "home"))
        assert prepare.main(["--from", str(text), "--name", "small"]) == 0
        stream = io.StringIO()
        code = run_notebook.run(
            run_notebook.find_notebook("linear-attention"),
            folder / "run",
            environment={
                "G2C_HOME": str(folder / "home"),
                "G2C_CORPUS": "small",
                "G2C_STEPS": "2",
            },
            stream=stream,
        )
    assert code == 0, stream.getvalue()
    return folder / "run"


def rows(run_dir: Path, name: str) -> list[dict[str, object]]:
    content = json.loads((run_dir / "tables" / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(content["rows"], list)
    return content["rows"]


def test_every_code_cell_ran_in_order(run_dir: Path) -> None:
    notebook = nbformat.read(run_dir / "linear-attention.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


def test_every_figure_and_table_is_kept_in_both_formats(run_dir: Path) -> None:
    figures = {path.stem for path in (run_dir / "figures").glob("*.png")}
    assert len(figures) == 9
    assert {path.stem for path in (run_dir / "figures").glob("*.svg")} == figures
    tables = {path.stem for path in (run_dir / "tables").glob("*.csv")}
    assert {path.stem for path in (run_dir / "tables").glob("*.json")} == tables
    assert {name[0] for name in tables} == {"1", "2", "3", "4", "5"}


def test_forms_agree(run_dir: Path) -> None:
    table = rows(run_dir, "1-equivalence")
    assert len(table) == 5
    assert all(row["all within 0.0001"] for row in table)


def test_decode_histories(run_dir: Path) -> None:
    histories = [row["history (tokens)"] for row in rows(run_dir, "1-decode-time")]
    assert histories == [64, 256, 1024, 4096, 16384]
    for row in rows(run_dir, "1-decode-memory"):
        assert row["KV cache (bytes)"] == row["its bill (bytes)"]
        assert row["(S, z) (bytes)"] == row["its bill (bytes) "]


def test_variants_differ_in_their_decays_only(run_dir: Path) -> None:
    table = rows(run_dir, "2-parameters")
    assert [row["beyond FFFF"] for row in table] == [0, 16, 12]


def test_a_run_of_few_steps_says_so(run_dir: Path) -> None:
    notebook = nbformat.read(run_dir / "linear-attention.ipynb", as_version=4)
    text = nbformat.writes(notebook)
    assert "TRIAL RUN" in text
    content = json.loads((run_dir / "tables" / "2-losses.json").read_text(encoding="utf-8"))
    assert content["title"] == "small: 2 steps, trial run"
    svg = (run_dir / "figures" / "2-learning-curves.svg").read_text(encoding="utf-8")
    assert "small, 2 steps (trial run)" in svg


def test_bill(run_dir: Path) -> None:
    table = rows(run_dir, "5-layers")
    sizes = {"tokens": 1_000_000, "embedding_dim": 4096, "num_heads": 32}
    assert table[0]["bytes"] == bill("mha", **sizes)
    assert [row["layers that still grow"] for row in rows(run_dir, "5-stacks")] == [
        "1, 2, 3, 4",
        "4",
        "4",
        "none",
    ]


def test_trained_models_and_probes_are_kept_for_the_next_run(run_dir: Path) -> None:
    assert len(list((run_dir / "training").glob("storylm-1m-*/result.json"))) == 3
    assert len(list((run_dir / "recall").glob("*.json"))) == 3
