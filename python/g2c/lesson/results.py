"""Results of the notebook: tables and figures that are shown and kept in the run folder."""

from __future__ import annotations

import csv
import html
import io
import json
from dataclasses import dataclass
from pathlib import Path

from IPython.display import Image
from matplotlib.figure import Figure

from g2c.artifacts.files import replacing, write_json

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """A table with a title; ``columns`` carry their units. Shown as HTML in a notebook."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Table {self.title!r}: a row of {len(row)} cells for {len(self.columns)} "
                    f"columns: {row!r}"
                )

    def column(self, name: str) -> tuple[Cell, ...]:
        """The cells of one column."""
        index = self.columns.index(name)
        return tuple(row[index] for row in self.rows)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in self.rows)
        return (
            f"<table><caption><b>{html.escape(self.title)}</b></caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def __str__(self) -> str:
        cells = [list(self.columns), *([show(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.title, *lines])


class Results:
    """Writes tables (CSV and JSON) and figures (PNG and SVG) below one run folder."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def table(self, name: str, table: Table) -> Table:
        """Keep ``table`` as tables/NAME.csv and .json, and give it back to be shown."""
        folder = self.run_dir / "tables"
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
        with replacing(folder / f"{name}.csv") as temp:
            temp.write_text(text.getvalue(), encoding="utf-8")
        write_json(
            folder / f"{name}.json",
            {
                "title": table.title,
                "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
            },
        )
        return table

    def figure(self, name: str, figure: Figure, alt: str) -> Image:
        """Keep ``figure`` as figures/NAME.png and .svg; return the picture, with ``alt`` text."""
        folder = self.run_dir / "figures"
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=144)
        with replacing(folder / f"{name}.png") as temp:
            temp.write_bytes(png.getvalue())
        with replacing(folder / f"{name}.svg") as temp:
            figure.savefig(temp, format="svg")
        return Image(  # type: ignore[no-untyped-call]
            data=png.getvalue(), format="png", retina=True, alt=alt
        )

    def load_json(self, name: str) -> object | None:
        """Content of NAME.json below the run folder; None when it is missing or damaged."""
        try:
            content: object = json.loads((self.run_dir / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return None
        return content


def show(cell: Cell) -> str:
    """A cell as text: whole numbers with thousands separators, others with four digits."""
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return cell


def _html_cell(cell: Cell) -> str:
    align = "left" if isinstance(cell, str) else "right"
    return f'<td style="text-align:{align}">{html.escape(show(cell))}</td>'
