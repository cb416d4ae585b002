"""``metrics.csv``: a row for each step, numbers in full precision."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from types import TracebackType
from typing import TextIO

from g2c.artifacts.files import replacing
from g2c.training.records import StepRecord

COLUMNS = (
    "step",
    "loss",
    "lr",
    "tokens_per_s",
    "grad_norm",
    "seconds",
    "val_loss",
    "val_tokens",
)
_HEADER = ",".join(COLUMNS) + "\n"


class MetricsFile:
    """Appends rows to a CSV file, continuing after a given step.

    Rows after ``step``, and a last one that was cut off, are dropped from the file when it is
    opened; ``records`` holds those that stay.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.records = [record for record in read_metrics(path) if record.step <= step]
        with replacing(path) as temp:
            temp.write_text(_HEADER + "".join(map(_row, self.records)), encoding="utf-8")
        self._stream: TextIO = path.open("a", encoding="utf-8", newline="")

    def append(self, record: StepRecord) -> None:
        """Write a row and hand it to the system, so that it outlives this process."""
        self._stream.write(_row(record))
        self._stream.flush()
        self.records.append(record)

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        os.fsync(self._stream.fileno())

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()


def read_metrics(path: Path) -> list[StepRecord]:
    """The rows of a metrics file, in order, up to the first that is cut off or damaged.

    An absent file has none.

    Raises:
        ValueError: the file has other columns.
    """
    if not path.exists():
        return []
    header, _, body = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    if header + "\n" != _HEADER and header:
        raise ValueError(f"{path}: expected the columns {_HEADER.strip()}, got {header[:100]}")
    whole = body[: body.rfind("\n") + 1]
    records: list[StepRecord] = []
    for row in csv.reader(io.StringIO(whole)):
        try:
            record = _record(row)
        except ValueError:
            break
        records.append(record)
    return records


def _row(record: StepRecord) -> str:
    values = (getattr(record, name) for name in COLUMNS)
    return ",".join("" if value is None else repr(value) for value in values) + "\n"


def _record(row: list[str]) -> StepRecord:
    values = dict(zip(COLUMNS, row, strict=True))
    return StepRecord(
        step=int(values["step"]),
        loss=float(values["loss"]),
        lr=float(values["lr"]),
        grad_norm=float(values["grad_norm"]),
        tokens_per_s=float(values["tokens_per_s"]),
        seconds=float(values["seconds"]),
        val_loss=float(values["val_loss"]) if values["val_loss"] else None,
        val_tokens=int(values["val_tokens"]) if values["val_tokens"] else None,
    )
