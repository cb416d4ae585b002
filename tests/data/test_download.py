from __future__ import annotations

import errno
import hashlib
import http.server
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from g2c.artifacts import download as download_module
from g2c.artifacts.download import RemoteFile, Unreachable, download

CONTENT = bytes(range(256)) * 4000  # over a million bytes: several blocks


class Server:
    """A file server on this machine that can be told to misbehave.

    ``ranges``: whether it honours Range. ``stop_after``: body bytes of each answer before it hangs
    up. ``status``: an error to answer with. ``total``: the size that it claims.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.total = len(content)
        self.ranges = True
        self.stop_after: int | None = None
        self.status = 200
        self.shift = 0
        self.requests: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                wanted = self.headers["Range"]
                server.requests.append(wanted)
                if server.status != 200:
                    self.send_error(server.status)
                    return
                start, end = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups())
                if server.ranges:
                    body = server.content[start : end + 1]
                    self.send_response(206)
                    begin = start + server.shift
                    self.send_header("Content-Range", f"bytes {begin}-{end}/{server.total}")
                    self.send_header("Content-Length", str(len(body)))
                else:
                    body = server.content
                    self.send_response(200)
                    self.send_header("Content-Length", str(server.total))
                self.end_headers()
                with suppress(ConnectionError):  # the client hangs up when it has enough
                    self.wfile.write(body[: server.stop_after])

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    running = Server(CONTENT)
    yield running
    running.close()


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "deep" / "file.txt"


def part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def fetch(server: Server, target: Path, first: int = 900_000, **checks) -> None:
    remote = RemoteFile(server.url + "/file", first, len(CONTENT), **checks)
    download(remote, target, attempts=3, retry_seconds=0.0)


def test_takes_only_the_wanted_beginning(server, target):
    fetch(server, target)
    assert target.read_bytes() == CONTENT[:900_000]
    assert server.requests == ["bytes=0-899999"]
    assert not part(target).exists()


def test_a_second_call_asks_nothing(server, target):
    fetch(server, target)
    fetch(server, target)
    assert len(server.requests) == 1


def test_goes_on_from_the_part_file(server, target):
    target.parent.mkdir()
    part(target).write_bytes(CONTENT[:300_001])
    fetch(server, target)
    assert server.requests == ["bytes=300001-899999"]
    assert target.read_bytes() == CONTENT[:900_000]


def test_a_whole_part_file_needs_no_server(server, target):
    target.parent.mkdir()
    part(target).write_bytes(CONTENT[:900_000])
    fetch(server, target)
    assert server.requests == []
    assert target.read_bytes() == CONTENT[:900_000]


def test_a_part_file_that_is_too_long_is_dropped(server, target):
    target.parent.mkdir()
    part(target).write_bytes(b"x" * 900_001)
    fetch(server, target)
    assert server.requests == ["bytes=0-899999"]
    assert target.read_bytes() == CONTENT[:900_000]


def test_a_target_of_the_wrong_size_is_replaced(server, target):
    target.parent.mkdir()
    target.write_bytes(b"damaged")
    fetch(server, target)
    assert target.read_bytes() == CONTENT[:900_000]


def test_a_server_that_ignores_ranges_is_read_from_the_beginning(server, target):
    target.parent.mkdir()
    part(target).write_bytes(b"y" * 300_000)
    server.ranges = False
    fetch(server, target)
    assert target.read_bytes() == CONTENT[:900_000]


def test_broken_connections_are_taken_up_again(server, target):
    server.stop_after = 400_000
    fetch(server, target)
    assert server.requests == ["bytes=0-899999", "bytes=400000-899999", "bytes=800000-899999"]
    assert target.read_bytes() == CONTENT[:900_000]


def test_a_server_that_sends_nothing_more_is_given_up_and_the_part_stays(server, target):
    target.parent.mkdir()
    part(target).write_bytes(CONTENT[:1000])
    server.stop_after = 0
    with pytest.raises(Unreachable, match=r"closed early; 1,000 bytes are kept"):
        fetch(server, target)
    assert len(server.requests) == 3
    assert part(target).read_bytes() == CONTENT[:1000]
    server.stop_after = None
    fetch(server, target)
    assert target.read_bytes() == CONTENT[:900_000]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_http_errors(server, target, status):
    server.status = status
    with pytest.raises(Unreachable, match=f"HTTP {status}"):
        fetch(server, target)
    assert not target.exists() and not part(target).exists()


def test_no_server(target):
    closed = Server(b"")
    closed.close()
    with pytest.raises(Unreachable, match="refused"):
        fetch(closed, target)


def test_unknown_host(target):
    remote = RemoteFile("http://no-such-host.invalid/file", 10, 10)
    with pytest.raises(Unreachable):
        download(remote, target, retry_seconds=0.0)


@pytest.mark.parametrize("ranges", [True, False])
def test_another_size_on_the_server(server, target, ranges):
    server.ranges = ranges
    server.total = len(CONTENT) - 1
    with pytest.raises(ValueError, match="1,023,999 bytes instead of 1,024,000"):
        fetch(server, target)
    assert not target.exists()


def test_an_answer_from_another_place(server, target):
    server.shift = 5
    with pytest.raises(ValueError, match="asked for bytes from 0, got Content-Range 'bytes 5-"):
        fetch(server, target)


def test_another_text_is_refused_and_forgotten(server, target):
    good = hashlib.sha256(CONTENT[:5000]).hexdigest()
    fetch(server, target, prefix_bytes=5000, prefix_sha256=good)
    target.unlink()
    server.content = b"Z" + CONTENT[1:]
    with pytest.raises(ValueError, match="does not begin with the expected text"):
        fetch(server, target, prefix_bytes=5000, prefix_sha256=good)
    assert not target.exists() and not part(target).exists()


def test_another_text_in_the_place_of_the_target_is_refused_and_kept(server, target):
    good = hashlib.sha256(CONTENT[:5000]).hexdigest()
    target.parent.mkdir()
    target.write_bytes(b"Z" + CONTENT[1:900_000])
    with pytest.raises(ValueError, match=r"file\.txt: does not begin with the expected text"):
        fetch(server, target, prefix_bytes=5000, prefix_sha256=good)
    assert target.exists() and server.requests == []


def test_interruption_keeps_the_part_and_the_next_call_goes_on(server, target, monkeypatch):
    class Interrupting:
        """A progress bar during which somebody presses Ctrl-C."""

        n = 0

        def __init__(self, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def update(self, count):
            if part(target).stat().st_size > 300_000:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(download_module, "tqdm", Interrupting)
        with pytest.raises(KeyboardInterrupt):
            fetch(server, target)
    kept = part(target).stat().st_size
    assert 300_000 < kept < 900_000 and not target.exists()
    fetch(server, target)
    assert server.requests[-1] == f"bytes={kept}-899999"
    assert target.read_bytes() == CONTENT[:900_000]


def test_full_disk_is_seen_before_the_download(server, target, monkeypatch):
    monkeypatch.setattr(download_module, "_free_bytes", lambda folder: 1000)
    with pytest.raises(OSError, match="needs 900,000 bytes, 1,000 are free") as caught:
        fetch(server, target)
    assert caught.value.errno == errno.ENOSPC
    assert server.requests == []
