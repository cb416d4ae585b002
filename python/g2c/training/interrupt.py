"""Ctrl-C between steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """Holds back the first SIGINT until `check` is called; a second one interrupts at once.

    Outside the main thread, which alone receives signals in Python, it does nothing.
    """

    def __init__(self) -> None:
        self._pending = False
        self._previous: Any = None

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed since the last check."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def __enter__(self) -> DeferredInterrupt:
        in_main_thread = threading.current_thread() is threading.main_thread()
        # A process that ignores SIGINT (started with nohup, say) is left to ignore it.
        if in_main_thread and callable(signal.getsignal(signal.SIGINT)):
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if kind is None:
            self.check()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt
        self._pending = True
