"""Downloads: checked and cached."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import archives
from archives import tar
from arml.cli import main
from arml.datasets.folders import default_folder
from arml.datasets.prepare import download, open_store, place
from arml.datasets.published import PUBLISHED, Archive


class Server(ThreadingHTTPServer):
    """Serves one content; breaks off after `broken` bytes of an answer."""

    content = b""
    broken: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.broken])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def offered(server: Server, content: bytes, *, checked: bool = True) -> Archive:
    server.content = content
    host, port = server.server_address[:2]
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest() if checked else None
    return Archive("x.bin", md5, f"http://{host}:{port}/x.bin", "fetch it")


def downloads() -> set[str]:
    return {path.name for path in (default_folder() / "downloads").iterdir()}


def test_a_download_is_cached(server):
    seen: list[tuple[str, int, int]] = []
    archive = offered(server, b"content" * 1000)
    path = download(archive, lambda *at: seen.append(at))
    assert path.read_bytes() == server.content
    assert seen[-1] == ("downloading x.bin", 7000, 7000)
    assert download(archive) == path
    assert server.asked == 1


def test_a_download_that_breaks_off_leaves_nothing(server):
    archive = offered(server, bytes(range(256)) * 8000)
    server.broken = 1_500_000
    with pytest.raises(ValueError, match=r"expected to download x\.bin, got: .* fetch it"):
        download(archive)
    assert downloads() == set()
    server.broken = None
    assert download(archive).read_bytes() == server.content


def test_a_wrong_checksum_and_a_web_page_are_refused(server):
    archive = replace(offered(server, b"other bytes"), md5="0" * 32)
    with pytest.raises(ValueError, match="expected MD5 000000000000"):
        download(archive)
    assert downloads() == set()
    with pytest.raises(ValueError, match="a web page"):
        download(offered(server, b"<html>quota</html>", checked=False))
    assert downloads() == set()


def test_what_is_not_there(server):
    archive = offered(server, b"content")
    for url in (archive.url.replace("http://", "https://"), "http://127.0.0.1:9/x.bin"):
        with pytest.raises(ValueError, match="fetch it, and give it with --from") as caught:
            download(replace(archive, url=url))
        assert "\n" not in str(caught.value)


def test_prepare_downloads_and_checks(server, tmp_path, monkeypatch, capsys):
    content = tar(tmp_path / "made.tar.gz", archives.dtd()).read_bytes()
    archive = replace(offered(server, content), name="dtd-r1.0.1.tar.gz")
    known = replace(PUBLISHED["texture"], archives=(archive,))
    monkeypatch.setitem(PUBLISHED, "texture", known)
    assert main(["data", "prepare", "texture", "--size", "16"]) == 0
    store = open_store(place("texture"))
    assert store.index["families"]["texture"]["source"] == [
        {"archive": "dtd-r1.0.1.tar.gz", "md5": archive.md5}
    ]
    # It is there now: nothing is fetched, decoded or even asked for.
    assert main(["data", "prepare", "texture", "--size", "16"]) == 0
    assert server.asked == 1
    assert main(["data", "prepare", "texture", "--size", "32"]) == 2
    assert "holds a data set with the size 16, not 32" in capsys.readouterr().err


def test_what_only_the_user_can_fetch_is_asked_for_before_anything_is_fetched(server, capsys):
    for name, where in (
        ("plain-multi", "github.com/visipedia/fgvcx_fungi_comp"),
        ("art-multi", "github.com/visipedia/fgvcx_fungi_comp"),
        ("fungi", "github.com/visipedia/fgvcx_fungi_comp"),
        ("mini-imagenet", "image-net.org"),
        ("tiered-imagenet", "image-net.org"),
    ):
        assert main(["data", "prepare", name]) == 2
        said = capsys.readouterr().err
        assert "is not fetched by this program" in said
        assert where in said
        assert "--from" in said
        assert not place(name).exists()
