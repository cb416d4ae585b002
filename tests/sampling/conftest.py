"""One thread, as in the training tests."""

from tests.training.conftest import one_thread

__all__ = ["one_thread"]
