"""The lesson's text and its notebook: links, anchors, figures and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from g2c.memory import bill

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "docs" / "lesson.md"
NOTEBOOK = ROOT / "notebooks" / "linear-attention.ipynb"

# Diagnoses and other pages point at these: they may not be renamed.
STABLE_ANCHORS = (
    "normaliser",
    "update-order",
    "decay-in-both-forms",
    "mask",
    "feature-map",
    "eps",
    "heads",
    "chunkwise",
    "memory-bill",
)


def anchors(text: str) -> set[str]:
    """Explicit anchors, and those that Markdown viewers make of headings."""
    found = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.fixture(scope="module")
def lesson() -> str:
    return LESSON.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.parametrize("anchor", STABLE_ANCHORS)
def test_stable_anchor(lesson: str, anchor: str) -> None:
    assert lesson.count(f'<a id="{anchor}"></a>') == 1


def test_links_within_the_lesson(lesson: str) -> None:
    wanted = set(re.findall(r"\]\(#([^)]+)\)", lesson))
    assert len(wanted) > 20
    assert wanted <= anchors(lesson)


def test_files_that_the_lesson_links_to(lesson: str) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", lesson)
    assert sum(target.endswith(".svg") for target in targets) >= 7
    for target in targets:
        assert (LESSON.parent / target).is_file(), target


def test_figures_are_small_and_described(lesson: str) -> None:
    for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", lesson):
        assert len(alt) > 20, target
        assert (LESSON.parent / target).stat().st_size < 100_000, target


@pytest.mark.parametrize(
    ("kind", "extra"),
    [("mha", {}), ("gqa", {"kv_heads": 8}), ("window", {"window": 4096}), ("linear", {})],
)
def test_bill_in_the_lesson_is_the_computed_one(lesson: str, kind: str, extra: dict[str, int]) -> None:
    count = bill(kind, tokens=1_000_000, embedding_dim=4096, num_heads=32, **extra)
    assert f"| {count:,} |" in lesson


def test_notebook_is_valid_and_carries_no_results(notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    assert notebook.nbformat == 4
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 20
    for cell in code:
        assert cell.outputs == []
        assert cell.execution_count is None
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_cells_are_short(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= 16, cell.id


def test_every_question_is_followed_by_a_blank_answer(notebook: nbformat.NotebookNode) -> None:
    questions = [i for i, c in enumerate(notebook.cells) if c.source.startswith("Question:")]
    answers = [i for i, c in enumerate(notebook.cells) if c.source.startswith("Answer:")]
    assert len(questions) >= 10
    assert answers == [i + 1 for i in questions]
    for i in answers:
        assert notebook.cells[i].cell_type == "markdown"
        assert notebook.cells[i].source.strip() == "Answer:"


def test_every_exercise_has_a_section_and_a_question(notebook: nbformat.NotebookNode) -> None:
    exercise = 0
    asked: dict[int, int] = {}
    for cell in notebook.cells:
        heading = re.match(r"## Exercise (\d)", cell.source)
        if heading:
            assert int(heading[1]) == exercise + 1
            exercise += 1
        if cell.source.startswith("Question:"):
            asked[exercise] = asked.get(exercise, 0) + 1
    assert sorted(asked) == [1, 2, 3, 4, 5, 6]


def test_notebook_links_reach_the_lesson(notebook: nbformat.NotebookNode, lesson: str) -> None:
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 8
    for target in targets:
        path, _, anchor = target.partition("#")
        assert (NOTEBOOK.parent / path).resolve() == LESSON
        assert not anchor or anchor in anchors(lesson), target
