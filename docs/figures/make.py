"""Draws the figures of docs/lesson.md as SVG beside this file: python docs/figures/make.py [--png]

Each figure lies on a light card of its own, so that it reads on a dark page too.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from g2c.memory import bill, format_bytes

HERE = Path(__file__).resolve().parent
CARD, INK, FAINT = "#fbfaf7", "#22262b", "#8a9099"
BLUE, ORANGE, GREEN, VIOLET = "#2f6fb0", "#d2691e", "#2e8b57", "#7a5ca8"

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "g2c",
        "font.family": "DejaVu Sans",
        "mathtext.fontset": "dejavusans",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.facecolor": CARD,
        "axes.facecolor": CARD,
    }
)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A drawing area whose unit is a tenth of an inch, the origin at the lower left."""
    figure = Figure(figsize=(width / 10, height / 10))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.axis("off")
    return figure, axes


def box(axes: Axes, x: float, y: float, w: float, h: float, text: str, colour: str) -> None:
    axes.add_patch(Rectangle((x, y), w, h, facecolor=colour + "26", edgecolor=colour, lw=1.3))
    axes.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=9.5)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    bend: float = 0,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            lw=1.3,
            color=colour,
            connectionstyle=f"arc3,rad={bend}",
            shrinkA=1,
            shrinkB=1,
        )
    )


def label(axes: Axes, x: float, y: float, text: str, **options: object) -> None:
    axes.text(x, y, text, **({"ha": "center", "va": "center", "fontsize": 9.5} | options))  # type: ignore[arg-type]


def reassociation() -> Figure:
    figure, axes = canvas(76, 44)
    label(axes, 38, 41.5, "One product, two places for the bracket", fontsize=12, weight="bold")
    rows = (
        (24, ORANGE, r"$(\varphi(Q)\,\varphi(K)^\top)\,V$", 12, 12, r"$T\times T$ scores"),
        (4, BLUE, r"$\varphi(Q)\,(\varphi(K)^\top V)$", 5, 5, r"$d\times d$ state"),
    )
    for y, colour, formula, w, h, name in rows:
        label(axes, 2, y + 8.5, formula, ha="left", fontsize=12)
        x = 31 - w / 2
        box(axes, x, y + 6 - h / 2, w, h, "", colour)
        label(axes, 31, y + 6, name if w > 10 else "", fontsize=9.5)
        if w < 10:
            label(axes, 31, y + 1.2, name)
    label(axes, 2, 29, "score every pair first", ha="left", color=FAINT)
    label(axes, 2, 9, "sum up the past first", ha="left", color=FAINT)
    for y, first, then in (
        (30, r"cost $\;O(T^2 d)$", r"held $\;O(T^2)$, or all $T$ keys and values"),
        (10, r"cost $\;O(T d^2)$", r"held $\;d^2 + d$, whatever $T$ is"),
    ):
        arrow(axes, (38.5, y), (43, y))
        label(axes, 44.5, y + 1.5, first, ha="left", fontsize=10.5)
        label(axes, 44.5, y - 1.7, then, ha="left")
    axes.plot([2, 74], [20.5, 20.5], color=FAINT, lw=0.7)
    return figure


def two_forms() -> Figure:
    figure, axes = canvas(84, 40)
    size, cell = 12, 1.75
    titles = (
        (2, "parallel", ORANGE, "one decayed table of all\npairs: $O(T^2)$"),
        (30, "chunkwise", GREEN, "a small table per chunk, a state\nbetween them: $O(T)$"),
        (58, "recurrent", BLUE, "one state, one token\nafter another: $O(T)$"),
    )
    for left, name, colour, text in titles:
        label(axes, left + 12, 37, name, fontsize=12, weight="bold", color=colour)
        label(axes, left + 12, 3.2, text)
    for row in range(size):
        y = 32 - row * cell
        for column in range(row + 1):
            shade = f"{int(40 + 190 * 0.86 ** (row - column)):02x}"
            axes.add_patch(
                Rectangle((3.5 + column * cell, y - cell), cell, cell, facecolor=ORANGE + shade, lw=0)
            )
            if row // 4 == column // 4:
                axes.add_patch(
                    Rectangle((31.5 + column * cell, y - cell), cell, cell, facecolor=GREEN + shade, lw=0)
                )
    for left in (3.5, 31.5):
        axes.add_patch(
            Rectangle((left, 32 - size * cell), size * cell, size * cell, fill=False, ec=FAINT, lw=0.8)
        )
    for chunk in range(2):
        x, y = 31.5 + 4 * cell * (chunk + 1), 32 - 4 * cell * (chunk + 1)
        box(axes, x - 6.2, y - 5.2, 4.4, 3.6, "S, z", BLUE)
        arrow(axes, (x - 4, y + 0.2), (x - 4, y - 1.6), BLUE)
        arrow(axes, (x - 1.8, y - 3.4), (x + 0.4, y - 3.4), BLUE)
    for token in range(5):
        y = 29.5 - token * 4.6
        box(axes, 66.5, y - 1.5, 7, 3, "S, z", BLUE)
        arrow(axes, (61.5, y), (66.5, y))
        arrow(axes, (73.5, y), (78.5, y))
        label(axes, 60.2, y, f"$x_{token + 1}$")
        label(axes, 80.2, y, f"$o_{token + 1}$")
        if token < 4:
            arrow(axes, (70, y - 1.5), (70, y - 3.1), BLUE)
    label(axes, 14, 9.2, "key i →", color=FAINT, fontsize=8.5)
    axes.text(1.8, 21.5, "query t →", color=FAINT, fontsize=8.5, rotation=-90, ha="center", va="center")
    return figure


def state_update() -> Figure:
    figure, axes = canvas(84, 33)
    label(axes, 42, 30.7, "One token, one head: fade, write, then read", fontsize=12, weight="bold")
    box(axes, 3, 14, 10, 10, r"$S_{t-1}$" + "\n" + r"$(d, d)$", BLUE)
    box(axes, 3, 6, 10, 4.6, r"$z_{t-1}\;\;(d)$", VIOLET)
    for y in (19, 8.3):
        arrow(axes, (13, y), (19, y))
        label(axes, 16, y + 1.6, r"$\times\,\gamma$", color=ORANGE, fontsize=11)
        axes.plot([20.3], [y], marker="o", ms=15, mfc=CARD, mec=INK)
        label(axes, 20.3, y, "+", fontsize=12)
    box(axes, 26, 24.2, 15, 4, r"$\varphi(k_t)\,v_t^\top$", GREEN)
    label(axes, 42, 26.2, "outer product", ha="left", color=GREEN)
    arrow(axes, (26, 25), (21, 20.4), GREEN)
    box(axes, 26, 1.4, 15, 4, r"$\varphi(k_t)$", GREEN)
    arrow(axes, (26, 3.4), (21.2, 7), GREEN)
    arrow(axes, (21.7, 19), (29, 19))
    arrow(axes, (21.7, 8.3), (29, 8.3))
    box(axes, 29, 14, 10, 8, r"$S_t$", BLUE)
    box(axes, 29, 6.6, 10, 3.6, r"$z_t$", VIOLET)
    arrow(axes, (39, 18), (48, 18))
    arrow(axes, (39, 8.4), (48, 8.4))
    box(axes, 48, 16, 13, 4, r"$\varphi(q_t)\cdot S_t$", BLUE)
    box(axes, 48, 6.4, 13, 4, r"$\varphi(q_t)\cdot z_t + \mathrm{EPS}$", VIOLET)
    axes.plot([68], [13.2], marker="o", ms=17, mfc=CARD, mec=INK)
    label(axes, 68, 13.2, "÷", fontsize=13)
    arrow(axes, (61, 17.6), (67.2, 14.2))
    arrow(axes, (61, 8.8), (67.2, 12.2))
    arrow(axes, (69.5, 13.2), (75, 13.2))
    label(axes, 78.6, 13.2, r"$\mathrm{out}_t$", fontsize=12)
    label(axes, 65, 3.2, "the same γ on both: S and z stay in step", color=FAINT)
    return figure


def decay_curves() -> Figure:
    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    axes = figure.subplots()
    ages = range(401)
    for gamma, colour in ((1.0, INK), (0.999, VIOLET), (0.99, BLUE), (0.97, GREEN), (0.9, ORANGE)):
        half = math.inf if gamma == 1 else math.log(2) / -math.log(gamma)
        name = "never" if half == math.inf else f"half after {half:.0f}"
        axes.plot(ages, [gamma**n for n in ages], color=colour, lw=2, label=f"γ = {gamma:g}: {name}")
        if half <= 400:
            axes.plot([half], [0.5], "o", color=colour)
    axes.axhline(0.5, color=FAINT, lw=0.8, ls=":")
    axes.set(
        xlabel="age of a token (tokens since it was written)",
        ylabel="weight left, $\\gamma^n$",
        xlim=(0, 400),
        ylim=(0, 1.1),
        title="How long a fixed decay remembers",
    )
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.42))
    return figure


def delta_write() -> Figure:
    figure, axes = canvas(84, 36)
    label(axes, 42, 33.6, "Two values written under the same key", fontsize=12, weight="bold")
    for left, name, colour, rule in (
        (3, "additive write", ORANGE, r"$S \leftarrow S + k\,v^\top$"),
        (45, "delta write, β = 1", GREEN, r"$S \leftarrow S + k\,(v - k^\top S)^\top$"),
    ):
        label(axes, left + 18, 29.6, name, weight="bold", color=colour, fontsize=11)
        label(axes, left + 18, 26.4, rule, fontsize=11)
        axes.plot([left + 2, left + 34], [6.2, 6.2], color=FAINT, lw=0.9)
        label(axes, left + 9, 4, "after $k \\to v_1$", color=FAINT)
        label(axes, left + 27, 4, "after $k \\to v_2$", color=FAINT)
        box(axes, left + 5, 6.2, 8, 6.5, "$v_1$", BLUE)
    box(axes, 26, 6.2, 8, 6.5, "$v_1$", BLUE)
    box(axes, 26, 12.7, 8, 6.5, "$v_2$", VIOLET)
    label(axes, 30, 22, "asked for k: $v_1 + v_2$")
    arrow(axes, (17.5, 9.5), (25, 9.5))
    box(axes, 68, 6.2, 8, 6.5, "$v_2$", VIOLET)
    label(axes, 72, 15.4, "asked for k: $v_2$")
    arrow(axes, (59.5, 9.5), (67, 9.5))
    label(axes, 63.2, 11.7, "$v_2 - v_1$", fontsize=9)
    axes.plot([42, 42], [3, 31], color=FAINT, lw=0.7)
    label(axes, 42, 1.4, "(k of unit length, no decay)", color=FAINT, fontsize=8.5)
    return figure


def hybrid_stack() -> Figure:
    figure, axes = canvas(80, 42)
    label(axes, 40, 39.6, "Three linear layers to one full layer", fontsize=12, weight="bold")
    label(axes, 15, 36, "layers", color=FAINT)
    label(axes, 38.5, 36, "after 10 tokens", color=FAINT)
    label(axes, 62, 36, "after 50 tokens", color=FAINT)
    for layer in range(8):
        y = 3 + layer * 4
        full = layer % 4 == 3
        colour = ORANGE if full else BLUE
        box(axes, 6, y, 18, 3.1, f"{layer + 1}   {'FULL' if full else 'linear'}", colour)
        for x, tokens in ((31, 10), (50, 50)):
            if full:
                for token in range(tokens):
                    axes.add_patch(Rectangle((x + token * 0.5, y + 0.3), 0.34, 2.5, facecolor=ORANGE, lw=0))
            else:
                axes.add_patch(Rectangle((x, y + 0.3), 2.5, 2.5, facecolor=BLUE + "aa", edgecolor=BLUE, lw=1))
    arrow(axes, (3.4, 2.5), (3.4, 35), FAINT)
    label(axes, 57, 8.2, "(S, z): the same size for ever", ha="left", color=BLUE, fontsize=9)
    label(axes, 57, 24.3, "(S, z)", ha="left", color=BLUE, fontsize=9)
    label(axes, 76.4, 20.2, "KV cache", ha="center", color=ORANGE, fontsize=9)
    arrow(axes, (76.4, 19.2), (75.2, 17.6), ORANGE)
    return figure


def memory_bill() -> Figure:
    figure = Figure(figsize=(7.6, 3.1), layout="constrained")
    axes = figure.subplots()
    sizes = {"tokens": 1_000_000, "embedding_dim": 4096, "num_heads": 32}
    rows = (
        ("full attention, all 32 heads", bill("mha", **sizes), ORANGE),
        ("grouped queries, 8 KV heads", bill("gqa", kv_heads=8, **sizes), ORANGE),
        ("full, last 4,096 tokens", bill("window", window=4096, **sizes), GREEN),
        ("linear, (S, z)", bill("linear", **sizes), BLUE),
    )
    for place, (_, count, colour) in enumerate(rows):
        axes.barh(place, count, color=colour + "bb", edgecolor=colour, height=0.62)
        axes.text(count * 1.25, place, format_bytes(count), va="center", fontsize=10)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    axes.set(
        xscale="log",
        xlim=(1e5, 4e11),
        xlabel="bytes per layer and sequence (logarithmic)",
        title="One layer after 1,000,000 tokens (D = 4096, H = 32, fp16)",
    )
    axes.set_xticks([1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11])
    axes.minorticks_off()
    return figure


FIGURES = {
    "reassociation": reassociation,
    "two-forms": two_forms,
    "state-update": state_update,
    "decay-curves": decay_curves,
    "delta-write": delta_write,
    "hybrid-stack": hybrid_stack,
    "memory-bill": memory_bill,
}


def main() -> None:
    for name, draw in FIGURES.items():
        figure = draw()
        figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
        if "--png" in sys.argv[1:]:
            figure.savefig(HERE / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
