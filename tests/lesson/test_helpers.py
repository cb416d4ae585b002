"""What the notebook's cells call."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from g2c.lesson import compare, cost, decay, decode, equivalence, probes, timing
from g2c.lesson.decode import DecodeTime
from g2c.lesson.results import Results, Table, show
from g2c.lesson.settings import Settings
from g2c.linear_attention import HybridTransformerLM, LinearAttention
from g2c.recall import Accuracy, RecallResult

CPU = torch.device("cpu")


# --- settings


def test_settings_of_a_full_and_of_a_quick_run(tmp_path: Path) -> None:
    full = Settings.from_env({"G2C_RUN_DIR": str(tmp_path)})
    assert full.run_dir == tmp_path
    assert (full.story_steps, full.recall_steps, full.story_5m_steps) == (1000, 600, 2000)
    assert len(full.recall_seeds) > 1
    assert (full.quick, full.run_all, full.corpus, full.note) == (False, False, None, "")
    assert "TRIAL" not in full.describe()

    quick = Settings.from_env({"G2C_QUICK": "1", "G2C_RUN_ALL": "yes", "G2C_CORPUS": "embedded"})
    assert quick.story_steps < full.story_steps
    assert quick.recall_steps < full.recall_steps
    assert quick.decode_histories == full.decode_histories
    assert (quick.run_all, quick.corpus, quick.note) == (True, "embedded", "trial run")
    assert "TRIAL" in quick.describe()


def test_settings_for_tests_of_the_notebook() -> None:
    few = Settings.from_env({"G2C_STEPS": "3"})
    assert {few.story_steps, few.recall_steps, few.story_5m_steps} == {3}
    assert few.note == "trial run"


@pytest.mark.parametrize(
    ("name", "value"),
    [("G2C_QUICK", "maybe"), ("G2C_STEPS", "0"), ("G2C_STEPS", "1e3"), ("G2C_DEVICE", "abacus")],
)
def test_bad_settings_are_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*{value}"):
        Settings.from_env({name: value})


# --- results


def test_table_is_kept_and_shown(tmp_path: Path) -> None:
    table = Table("A <title>", ("name", "count", "rate"), (("x", 12345, 0.5), ("y", None, 2e6)))
    assert Results(tmp_path).table("t", table) is table
    with (tmp_path / "tables" / "t.csv").open(newline="") as stream:
        assert list(csv.reader(stream))[1] == ["x", "12345", "0.5"]
    content = json.loads((tmp_path / "tables" / "t.json").read_text())
    assert content["rows"][1] == {"name": "y", "count": None, "rate": 2e6}
    html = table._repr_html_()
    assert "A &lt;title&gt;" in html
    assert ">12,345<" in html
    assert str(table).splitlines()[0] == "A <title>"
    assert table.column("count") == (12345, None)


def test_table_refuses_ragged_rows() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table("t", ("a",), ((1, 2),))


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "–"), (True, "yes"), (1234, "1,234"), (0.123456, "0.1235"), (12345.6, "12,346")],
)
def test_cells_as_text(cell: Any, text: str) -> None:
    assert show(cell) == text


def test_figure_is_kept_as_png_and_svg(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().set_title("something")
    image = Results(tmp_path).figure("f", figure, "a figure")
    png = (tmp_path / "figures" / "f.png").read_bytes()
    assert png.startswith(b"\x89PNG") and image.data == png
    assert (tmp_path / "figures" / "f.svg").read_text().lstrip().startswith("<?xml")


# --- equivalence


def test_oracle_against_a_sum_over_pairs() -> None:
    layer = equivalence.with_gamma(LinearAttention(6, 2), 0.7)
    x = torch.randn(2, 5, 6)
    exact = layer.state_dict()
    q, k, v = (
        torch.nn.functional.linear(x, exact[f"{n}.weight"], exact[f"{n}.bias"]).double()
        for n in ("q_proj", "k_proj", "v_proj")
    )
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    out = torch.zeros(2, 5, 6, dtype=torch.float64)
    for b in range(2):
        for h in range(2):
            part = slice(3 * h, 3 * h + 3)
            for t in range(5):
                weights = [0.7 ** (t - i) * (q[b, t, part] @ k[b, i, part]) for i in range(t + 1)]
                values = sum(w * v[b, i, part] for i, w in enumerate(weights))
                out[b, t, part] = values / (sum(weights) + 1e-6)
    expected = torch.nn.functional.linear(
        out, exact["out_proj.weight"].double(), exact["out_proj.bias"].double()
    )
    assert torch.allclose(equivalence.oracle(layer, x), expected, atol=1e-6)


def test_deviations_are_small_for_every_form_and_decay() -> None:
    found = equivalence.deviations((1.0, 0.5), tokens=70)
    assert {d.form for d in found} == {"forward", "step", *equivalence.FORMS}
    assert all(d.error < equivalence.TOLERANCE for d in found)
    assert equivalence.table(found).column("all within 0.0001") == (True, True)


def test_a_wrong_form_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    right = equivalence.by_steps

    def one_late(layer: LinearAttention, x: torch.Tensor) -> torch.Tensor:
        return right(layer, x).roll(1, dims=1)

    monkeypatch.setattr(equivalence, "by_steps", one_late)
    found = equivalence.deviations((0.9,), tokens=20)
    assert equivalence.table(found).column("all within 0.0001") == (False,)


def test_nan_is_not_within_tolerance() -> None:
    table = equivalence.table([equivalence.Deviation(1.0, "step", math.nan)])
    assert table.rows[0][-1] is False


@pytest.mark.parametrize("gamma", [0.0, -1.0, 1.5])
def test_gamma_outside_its_range(gamma: float) -> None:
    with pytest.raises(ValueError, match=str(gamma)):
        equivalence.with_gamma(LinearAttention(4, 1), gamma)


# --- decode


def times(*pairs: tuple[float, float]) -> list[DecodeTime]:
    return [DecodeTime(64 * 4**i, full, linear, 0, 0) for i, (full, linear) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("measured", "expected", "said"),
    [
        (times((1, 2), (3, 2), (9, 2)), 256, "from 256 tokens on"),
        (times((3, 2), (4, 2)), 64, "at or below the shortest history measured, 64"),
        (times((1, 2), (1.5, 2)), None, "none in this range"),
        (times((3, 2), (1, 2)), None, "none in this range"),
        (times((3, 2), (1, 2), (5, 2)), 1024, "from 1,024 tokens on"),
        (times((2, 2)), None, "none in this range"),
    ],
)
def test_crossover(measured: list[DecodeTime], expected: int | None, said: str) -> None:
    assert decode.crossover(measured) == expected
    assert said in decode.describe_crossover(measured)


def test_benchmark_measures_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    histories: list[int] = []
    forward = decode.MultiHeadAttention.forward_cached

    def recording(self: Any, x: torch.Tensor, cache: Any) -> Any:
        histories.append(cache.length)
        return forward(self, x, cache)

    monkeypatch.setattr(decode.MultiHeadAttention, "forward_cached", recording)
    measured = decode.benchmark((64, 128), embedding_dim=16, num_heads=2)
    assert len(histories) == 2 * (decode.REPEATS + decode.WARMUPS)
    timed = histories[decode.WARMUPS : decode.WARMUPS + decode.REPEATS]
    assert sorted(timed)[decode.REPEATS // 2] == 64
    assert [t.history for t in measured] == [64, 128]
    assert all(t.full_seconds > 0 and t.linear_seconds > 0 for t in measured)
    table = decode.memory_table(measured, embedding_dim=16, num_heads=2)
    for row in table.rows:
        assert row[1] == row[2] and row[3] == row[4]


def test_median_is_of_the_timed_calls_only() -> None:
    calls: list[int] = []
    timing.median_seconds(lambda: calls.append(1), CPU, repeats=4, warmups=3)
    assert len(calls) == 7


# --- training cost


def test_peak_memory_counts_what_is_alive_together() -> None:
    x = torch.zeros(1000, 1000)

    def together() -> torch.Tensor:
        first, second = x + 1, x + 2
        return first.add_(second)

    def apart() -> None:
        for _ in range(3):
            x.add(1)

    assert cost.peak_bytes(together, CPU) == pytest.approx(8e6, rel=0.01)
    assert cost.peak_bytes(apart, CPU) == pytest.approx(4e6, rel=0.01)


def test_measuring_memory_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    cost.peak_bytes(lambda: torch.zeros(10), CPU)
    assert capfd.readouterr() == ("", "")


def test_parallel_form_is_quadratic_in_memory_and_chunkwise_is_not() -> None:
    costs = cost.measure((256, 512, 1024), embedding_dim=32, num_heads=2, repeats=1)
    _, parallel = cost.growth(costs, "parallel")
    _, chunkwise = cost.growth(costs, "chunkwise")
    assert parallel is not None and chunkwise is not None
    assert parallel > 3.0
    assert chunkwise < 2.5
    assert "parallel: at the longest T" in cost.describe_growth(costs)
    assert len(cost.table(costs).rows) == 9


def test_growth_needs_two_lengths() -> None:
    with pytest.raises(ValueError, match="two lengths"):
        cost.growth([cost.TrainingCost("parallel", 64, 1.0, 10)], "parallel")


# --- comparison


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("FFFF", "full ×4"), ("LLLF", "linear ×3, full"), ("LLLFLL", "linear ×3, full, linear ×2")],
)
def test_pattern_names(pattern: str, name: str) -> None:
    assert compare.pattern_name(pattern) == name


def test_recipes_are_the_lessons() -> None:
    small = compare.recipe("storylm-1m", 1000, quick=False)
    assert (small.steps, small.batch_size, small.context_length) == (1000, 16, 128)
    assert (small.max_lr, small.min_lr, small.warmup) == (3e-4, 3e-5, 100)
    assert (small.weight_decay, small.max_grad_norm) == (0.05, 1.0)
    larger = compare.recipe("storylm-5m", 2000, quick=False)
    assert (larger.steps, larger.batch_size, larger.context_length) == (2000, 8, 128)
    assert larger.warmup == 200
    with pytest.raises(ValueError, match="storylm-9z"):
        compare.recipe("storylm-9z", 10, quick=True)


def test_comparison_names_best_and_worst() -> None:
    variants: Any = [
        SimpleNamespace(name="a", nats_per_byte=1.10),
        SimpleNamespace(name="b", nats_per_byte=1.00),
        SimpleNamespace(name="c", nats_per_byte=1.05),
    ]
    text = compare.describe(variants)
    assert "b with 1.0000" in text and "a with 1.1000" in text and "10.00 % above" in text


# --- recall


def result(pattern: str, right: int, seed: int = 0) -> RecallResult:
    by_distance = tuple(Accuracy(d, right // 12, 100) for d in range(1, 13))
    return RecallResult(pattern, seed, 5, Accuracy(None, right, 1200), by_distance, (2.0,) * 5)


@pytest.mark.parametrize(
    ("right", "said"),
    [(120, "not above chance"), (288, "above chance, but not above the guess"), (900, "looks")],
)
def test_recall_is_judged_by_its_intervals(right: int, said: str) -> None:
    assert said in probes.describe([result("LLLL", right)], 0.24)


def test_one_weak_seed_is_enough_for_no_verdict() -> None:
    results = [result("FFFF", 900), result("FFFF", 120, seed=1)]
    assert "not above chance" in probes.describe(results, 0.24)


def test_probes_are_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def train(pattern: str, **options: Any) -> tuple[None, RecallResult]:
        trained.append(pattern)
        return None, result(pattern, 300, options["seed"])

    monkeypatch.setattr(probes, "train_probe", train)
    settings = Settings.from_env({"G2C_STEPS": "5", "G2C_RUN_DIR": str(tmp_path)})
    first = probes.run_probes(("LF", "FF"), settings, progress=False)
    assert trained == ["LF", "FF"]
    assert probes.run_probes(("LF", "FF"), settings, progress=False) == first
    assert trained == ["LF", "FF"]
    assert "trained earlier" in capsys.readouterr().out

    (kept,) = (tmp_path / "recall").glob("LF*.json")
    kept.write_text(kept.read_text()[:50])
    assert probes.run_probes(("LF",), settings, progress=False) == first[:1]
    assert trained == ["LF", "FF", "LF"]
    assert probes.table(first, settings).column("right (%)") == (25.0, 25.0)


# --- decay


def test_norms_settle_with_decay_and_grow_without() -> None:
    grows, settles = decay.state_norms((1.0, 0.5), tokens=64, embedding_dim=16, num_heads=2)
    assert grows.normaliser[-1] > 20 * grows.normaliser[0]
    assert settles.normaliser[-1] == pytest.approx(settles.normaliser[31], rel=0.5)
    assert len(grows.matrix) == 64
    table = decay.norm_table([grows, settles])
    assert table.column("limit 1/(1−γ) (tokens)") == ("none", "2")


def test_half_life() -> None:
    assert decay.half_life(0.5) == pytest.approx(1.0)
    assert decay.half_life(1.0) == math.inf
    with pytest.raises(ValueError, match="got 0"):
        decay.half_life(0.0)


def test_learned_decay_by_layer() -> None:
    model = HybridTransformerLM(7, 8, ["linear", "full", "linear"], 2, 16)
    with torch.no_grad():
        model.get_parameter("blocks.2.attn.gamma_logit").fill_(0.0)
    found = decay.learned(model)
    assert sorted(found) == [1, 3]
    assert found[1] == pytest.approx([0.99005] * 2, abs=1e-4)
    assert found[3] == pytest.approx([0.5] * 2)
    assert len(decay.learned_table({"m": model}).rows) == 4
    assert "from 0.5000 to 0.9900" in decay.describe_learned({"m": model})
    full = HybridTransformerLM(7, 8, ["full"], 2, 16)
    assert decay.describe_learned({"f": full}) == "f: no linear layer"
