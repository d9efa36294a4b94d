"""Downloads: checked and cached."""

import hashlib
import io
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import archives
from archives import tar
from arml.cli import main
from arml.datasets.folders import default_folder
from arml.datasets.prepare import download, open_store, place
from arml.datasets.published import PUBLISHED_FAMILIES, Archive


def offered(folder: Path, content: bytes) -> Archive:
    """An archive at a file's address."""
    (folder / "x.bin").write_bytes(content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Archive("x.bin", md5, (folder / "x.bin").as_uri(), "fetch it")


def refused(archive: Archive, said: str) -> None:
    with pytest.raises(ValueError, match=rf"expected to download x\.bin, got: .*{said}") as caught:
        download(archive)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("try again, or: fetch it, and give it with --from")
    assert not [*(default_folder() / "downloads").iterdir()]


def test_a_download_is_cached(tmp_path):
    seen: list[tuple[str, int, int]] = []
    archive = offered(tmp_path, b"content" * 1000)
    path = download(archive, lambda *at: seen.append(at))
    assert path.read_bytes() == b"content" * 1000
    assert seen[-1] == ("downloading x.bin", 7000, 7000)
    (tmp_path / "x.bin").unlink()
    assert download(archive) == path


def test_a_download_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    content = bytes(range(256)) * 8000
    archive, broken = offered(tmp_path, content), io.BytesIO(content[:1_500_000])
    broken.headers = {"Content-Length": str(len(content))}  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(urllib.request, "urlopen", lambda *_, **__: broken)
        refused(archive, "the connection broke off after 1500000 of 2048000 bytes")
    assert download(archive).read_bytes() == content


def test_other_bytes_and_other_addresses_are_refused(tmp_path):
    archive = offered(tmp_path, b"<html>quota</html>")
    refused(replace(archive, md5=None), "a web page")
    archive = offered(tmp_path, b"content")
    refused(replace(archive, md5="0" * 32), "expected MD5 000000000000")
    for url in ("file:///none", "http://127.0.0.1:9/x.bin"):
        refused(replace(archive, url=url), "")


def test_prepare_downloads_and_checks(tmp_path, monkeypatch, capsys):
    content = tar(tmp_path / "made.tar.gz", archives.dtd()).read_bytes()
    archive = replace(offered(tmp_path, content), name="dtd-r1.0.1.tar.gz")
    known = replace(PUBLISHED_FAMILIES["texture"], archives=(archive,))
    monkeypatch.setitem(PUBLISHED_FAMILIES, "texture", known)
    assert main(["data", "prepare", "texture", "--size", "16"]) == 0
    store = open_store(place("texture"))
    assert store.index["families"]["texture"]["source"] == [
        {"archive": "dtd-r1.0.1.tar.gz", "md5": archive.md5}
    ]
    # It is there now: nothing is fetched or decoded.
    (tmp_path / "x.bin").unlink()
    (default_folder() / "downloads" / archive.name).unlink()
    assert main(["data", "prepare", "texture", "--size", "16"]) == 0
    assert main(["data", "prepare", "texture", "--size", "32"]) == 2
    assert "holds a data set with the size 16, not 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("art-multi", "github.com/visipedia/fgvcx_fungi_comp"),
        ("fungi", "github.com/visipedia/fgvcx_fungi_comp"),
        ("mini-imagenet", "image-net.org"),
    ],
)
def test_what_only_the_user_can_fetch_is_asked_for_before_anything_is_fetched(name, where, capsys):
    assert main(["data", "prepare", name]) == 2
    said = capsys.readouterr().err
    assert all(text in said for text in ("cannot fetch", where, "--from"))
    assert not default_folder().exists()
