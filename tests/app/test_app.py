"""The page to try a learner: what it answers, what it refuses, and how it is used in a browser."""

import base64
import contextlib
import http.client
import json
import re
import socket
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import arml
import chromium
from arml.algorithms import ALGORITHMS
from arml.app import answers, server
from arml.app.uploads import Limits
from arml.cli import app as command
from arml.cli import main
from arml.experiment.options import Experiment
from arml.experiment.recipes import build
from arml.experiment.running import Portable
from arml.nn.networks import Conv4Options, MLPOptions
from arml.predict.learner import FewShotLearner
from arml.tasks.options import FoldersOptions, FunctionsOptions
from serving import Site, serving

SIZE = 16


def untrained(name: str, tasks: Any, network: Any, problem: arml.Problem, **options: Any) -> Any:
    """A learner with its initial weights: how well it predicts does not matter here."""
    algorithm = replace(
        ALGORITHMS[name.partition("/")[2]].options(problem), inner_steps=1, width=8, **options
    )
    experiment = Experiment(name, algorithm, tasks, network)
    return FewShotLearner(Portable(experiment, build(experiment, problem), problem, ("tones",)))


@pytest.fixture(scope="module")
def site():
    """Both tabs, on small learners that have a meta-knowledge graph."""
    pictures = arml.Problem("classification", (SIZE, SIZE, 3), 3, 1, 1)
    points = arml.Problem("regression", (2,), 1, 10, 10)
    served = server.Served(
        untrained("folders/arml-paper", FoldersOptions(), Conv4Options(filters=2), pictures),
        untrained(
            "regression2d/arml", FunctionsOptions(), MLPOptions(hidden=(8,)), points, hidden=(8,)
        ),
        {"pictures": "small", "functions": "flat"},
        Limits(pictures=12, megabytes=1, megapixels=1, points=20),
    )
    with serving(served) as site:
        yield site


def asked(site: Site, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the JSON (or text) that the server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=300)
    try:
        body = content if isinstance(content, bytes | None) else json.dumps(content)
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        assert "default-src 'none'" in (response.getheader("content-security-policy") or "")
        kind = response.getheader("content-type") or ""
        return response.status, json.loads(text) if "json" in kind else text
    finally:
        connection.close()


def draw(folder: Path, names: str = "ab", each: int = 2) -> Path:
    """Noisy pictures, a folder a class, each class of one tone."""
    rng = np.random.default_rng(0)
    for i, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for j in range(each):
            picture = rng.integers(60 * i, 60 * i + 90, (20, 24, 3)).astype(np.uint8)
            assert cv2.imwrite(str(folder / name / f"{j}.png"), picture)
    return folder


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def bomb(side: int) -> str:
    """A small PNG whose header promises `side x side` pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def test_only_who_has_the_address_is_answered(site):
    assert asked(site, f"/{site.token}/")[0] == 200
    about = asked(site, f"/{site.token}/about")[1]
    assert about["pictures"]["size"] == SIZE
    assert about["limits"]["pictures"] == 12
    for path in ("/", "/about", f"/{site.token}x/", f"/{site.token[:-1]}/about", "//about"):
        assert asked(site, path)[0] == 403
    assert asked(site, f"/{site.token}/", Host="evil.example")[0] == 400
    assert asked(site, f"/{site.token}/nothing")[0] == 404


def test_what_is_too_much_or_no_picture_is_refused_in_a_line(site, tmp_path):
    good = encoded(draw(tmp_path / "own", "a", 1) / "a" / "0.png")

    def refused(path: str, content: Any) -> tuple[int, str]:
        status, answer = asked(site, f"/{site.token}/{path}", content)
        assert "\n" not in answer["error"]
        return status, answer["error"]

    def pictures(*texts: Any) -> Any:
        classes = [{"name": "a", "pictures": [good]}, {"name": "b", "pictures": list(texts)}]
        return {"classes": classes, "queries": [good]}

    long = {"name": "x" * 61, "pictures": [good]}
    twice = {"name": "a", "pictures": [good]}
    text = base64.b64encode(b"<svg/>").decode()
    for content, status, said in (
        (b" " * (2**20 + 1), 413, "at most 1 MiB"),
        (b"no", 400, "expected JSON"),
        (b"[" * 100_000, 400, "expected JSON"),
        ([], 400, "expected a list of classes"),
        (pictures(*[good] * 12), 400, "at most 12 pictures, got 14"),
        (pictures(bomb(30_000)), 400, "a picture of 'b': expected a picture of at most 1 mega"),
        (pictures(bomb(1_001)), 400, "at most 1 megapixels"),
        (pictures(text), 400, "expected a PNG, JPEG"),
        (pictures(good[: len(good) // 2 // 4 * 4]), 400, "cut short"),
        (pictures("§"), 400, "base64"),
        (pictures(7), 400, "base64"),
        (pictures(), 400, "at least one picture of 'b'"),
        ({**pictures(good), "queries": []}, 400, "at least one picture to predict"),
        ({"classes": [twice, twice], "queries": [good]}, 400, "'a' twice"),
        ({"classes": [twice, long], "queries": [good]}, 400, "1 to 60 letters"),
        ({"classes": [twice], "queries": [good]}, 400, "expected 2 or more classes, got 1"),
    ):
        assert said in (answer := refused("classify", content))[1]
        assert answer[0] == status
    for points, said in (
        ([], "1 to 20 points"),
        ([[1, 1, 1]] * 21, "1 to 20 points"),
        ([[1, 1, float("nan")]], "three numbers a point"),
        ([[1, 1]], "three numbers a point"),
        ([[1, 6, 1]], "from 0 to 5"),
        ([[1, 1, 1e9]], "within ±1e+06"),
    ):
        status, answer = refused("surface", {"points": points})
        assert status == 400
        assert said in answer


def test_examples_are_pictures_and_points(site):
    status, example = asked(site, f"/{site.token}/example-pictures")
    assert status == 200
    assert len(example["classes"]) == 3
    assert len(example["queries"]) == 6
    assert example["queries"][0].startswith("data:image/png;base64,")
    status, example = asked(site, f"/{site.token}/example-function")
    assert status == 200
    assert np.asarray(example["points"]).shape == (10, 3)


def test_the_learner_that_ships_answers_as_its_predictor(tmp_path):
    own, learner = draw(tmp_path / "own", each=3), arml.load("starter")
    files = sorted(own.rglob("*.png"))
    content = {
        "classes": [
            {"name": name, "pictures": [encoded(own / name / f"{i}.png") for i in range(3)]}
            for name in "ab"
        ],
        "queries": [encoded(path) for path in files],
        "labels": [path.parent.name for path in files],
    }
    answer = answers.classified(learner, content, Limits())
    learned = answers._learned(learner, content, Limits(), asked=True)
    predictor, queries = learned.predictor, learned.asked
    chances = [query["probabilities"] for query in answer["queries"]]
    np.testing.assert_allclose(chances, predictor.predict_proba(queries), rtol=1e-3, atol=1e-4)
    assert answer["marks"]["said"] == str(predictor.evaluate(queries, content["labels"]))
    with pytest.raises(ValueError, match=r"none of the predictor's classes \(a, b\)"):
        answers.classified(learner, {**content, "labels": ["c"] * 6}, Limits())


@pytest.fixture
def browsed(site):
    """The page in Chromium, and every address that it asked for."""
    with chromium.opened(site.address, more=chromium.CAMERA) as tab:
        tab.page.wait_for_selector("body[data-ready]")
        yield tab.page
    # The browser itself notes the one picture that is refused.
    assert [text for text in tab.complaints if "400 (Bad Request)" not in text] == []
    here = (site.address, "data:", "blob:")
    assert not [asked for asked in tab.asked if not asked.startswith(here)]


def test_the_page_in_a_browser(site, browsed, tmp_path):
    page, own = browsed, draw(tmp_path / "own", each=3)

    # Pictures: a folder of classes, queries one by one, and a picture that is none.
    page.set_input_files("#folder", str(own))
    page.wait_for_selector(".class:nth-child(2) li:nth-child(3)")
    assert [box.input_value() for box in page.locator(".class input[type=text]").all()] == [
        "a",
        "b",
    ]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nothing")
    queries = page.locator("#queries input")
    queries.set_input_files(str(broken))
    page.click("#predict")
    page.wait_for_selector("#pictures-status.bad >> text=broken.png: expected a picture")
    page.click("[aria-label='Remove broken.png']")
    queries.set_input_files({"name": "IMG.HEIC", "mimeType": "image/heic", "buffer": b"ftypheic"})
    page.click("#predict")
    page.wait_for_selector("#pictures-status.bad >> text=IMG.HEIC: HEIC pictures cannot be read")
    page.click("[aria-label='Remove IMG.HEIC']")
    files = [own / "a" / "0.png", own / "b" / "1.png"]
    queries.set_input_files([str(path) for path in files])
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")
    size = (SIZE, SIZE)
    seen = {
        path: cv2.resize(cv2.imread(str(path)), size, interpolation=cv2.INTER_AREA)[:, :, ::-1]
        for path in sorted(own.rglob("*.png"))
    }
    learner = site.served.pictures
    predictor = learner.adapt(np.stack([*seen.values()]), [path.parent.name for path in seen])
    chances = predictor.predict_proba(np.stack([seen[path] for path in files]))
    shown = page.locator("#predictions .bar b").all_inner_texts()
    assert [float(text[:-1]) for text in shown] == pytest.approx(100 * chances.ravel(), abs=0.06)
    assert page.locator("#prototypes .nearest").count() == 2
    reading = predictor.reading()
    said = page.get_attribute("#pictures-graph svg", "aria-label") or ""
    weights = [float(text) for text in re.findall(r"V\d+ ([\d.]+)", said)]
    best = "ab".index(said[0])
    assert weights == pytest.approx(reading[best], abs=0.006)
    page.locator("#pictures-graph input").nth(1 - best).check()
    other = page.get_attribute("#pictures-graph svg", "aria-label") or ""
    assert other[0] == "ab"[1 - best]

    # How far to trust it, the answers as a table, and the predictor as files.
    page.click("#check")
    page.wait_for_selector("#pictures-status >> text=Checked in")
    # The browser gives the pictures of a folder in an order of its own, so the folds may differ.
    assert page.inner_text("#trust-said").startswith(str(predictor.reliability()).split(";")[0])
    assert page.locator("#odd li").count() == len(predictor.reliability().doubtful)
    cells = page.locator("#confusion td:not(:nth-child(2))").all_inner_texts()
    assert [int(text or 0) for text in cells] == predictor.reliability().confusion.ravel().tolist()
    with page.expect_download() as download:
        page.click("#save-csv")
    rows = download.value.path().read_text().splitlines()
    assert rows[0] == "file,label,a,b"
    assert rows[1] == "0.png,{},{:.4f},{:.4f}".format("ab"[chances[0].argmax()], *chances[0])
    with page.expect_download() as download:
        page.click("#keep")
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path)
    again = arml.load_predictor(tmp_path / "predictor")
    x = predictor.x
    np.testing.assert_allclose(again.predict_proba(x), predictor.predict_proba(x), rtol=1e-4)

    # Labels of the queries, by a CSV file and by folders, say how good the predictions are.
    table = tmp_path / "labels.csv"
    table.write_text('label,"file"\n"b",a/0.png\nb,1.png\n')
    page.set_input_files("#query-labels", str(table))
    page.wait_for_selector("#pictures-status >> text=2 of 2 pictures have a label")
    page.click("#predict")
    page.wait_for_selector("#marks-table td")
    marks = predictor.evaluate(np.stack([seen[path] for path in files]), ["b", "b"])
    assert page.inner_text("#marks-said") == f"The labelled pictures: {marks}."
    assert page.locator("#worst li").count() == len(marks.mistakes)
    for _ in files:
        page.locator("#queries li:nth-child(1) button").click()
    page.set_input_files("#query-folder", str(own))
    page.click("#predict")
    page.wait_for_selector("#predictions .answer:nth-child(6)")
    marks = predictor.evaluate(np.stack([*seen.values()]), [*"aaabbb"])
    cells = page.locator("#marks-table td:not(:nth-child(2))").all_inner_texts()
    assert [int(text or 0) for text in cells] == marks.confusion.ravel().tolist()
    for _ in seen:
        page.locator("#queries li:nth-child(1) button").click()
    queries.set_input_files([str(path) for path in files])

    # A large picture is made small before it is sent, a GIF is read, and old answers go.
    large = np.kron(cv2.imread(str(files[0])), np.ones((60, 60, 1), np.uint8))
    assert cv2.imwrite(str(tmp_path / "large.png"), large)
    gif = base64.b64decode("R0lGODlhAQABAIAAAP8AAP///ywAAAAAAQABAAACAkQBADs=")
    queries.set_input_files(str(tmp_path / "large.png"))
    assert page.locator("#answer").is_hidden()
    assert page.locator("#trust").is_hidden()
    queries.set_input_files({"name": "red.gif", "mimeType": "image/gif", "buffer": gif})
    with page.expect_request("**/classify") as sent:
        page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")
    widths = [
        struct.unpack(">I", base64.b64decode(text)[16:20])[0]
        for text in json.loads(sent.value.post_data or "")["queries"]
    ]
    assert widths == [24, 24, 8 * SIZE, 1]

    # The webcam, by a device of the browser's own.
    page.locator("#queries button", has_text="Webcam").click()
    page.click("#shoot")
    page.wait_for_selector("#camera .status >> text=Picture 1 is added")
    page.click("#camera >> text=Close")
    assert page.locator("[aria-label='Remove webcam 1.png']").count() == 1

    # A function, with the keyboard alone, in a narrow window.
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.focus("#tab-pictures")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-functions"
    page.fill("#height", "2")
    page.focus("#plane svg")
    for key in (
        "Enter",
        "Shift+ArrowRight",
        "ArrowUp",
        "Enter",
        "Shift+ArrowUp",
        "Enter",
        "Delete",
    ):
        page.keyboard.press(key)
    page.wait_for_selector("#functions-status >> text=Fitted to 2 points")
    points = [[2.5, 2.5, 2.0], [3.0, 2.6, 2.0]]
    boxes = page.locator("#points input").all()
    assert [float(box.input_value()) for box in boxes] == [x for point in points for x in point]
    flat = np.asarray(points, np.float32)
    predictor = site.served.functions.adapt(flat[:, :2], flat[:, 2])
    fitted = predictor.predict(flat[:, :2])
    cells = page.locator("#points .fitted").all_inner_texts()
    assert [float(text) for text in cells] == pytest.approx(fitted, abs=0.006)
    assert page.locator("#plane image").count() == 1
    assert page.locator("#functions-graph input").count() == len(predictor.reading())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_command_refuses_in_a_line(monkeypatch, tmp_path, capsys):
    assert main(["app", "--port", "70000"]) == 2
    assert "port must be from 0 to 65535" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["app"]) == 2
    assert "pip install 'arml[app]'" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["app", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_half_open_connections_are_dropped_and_keep_nobody_out(site, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.5)
    half = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(100)]
    for one in half:
        one.sendall(b"GET / HTTP/1.1\r\n")
    assert asked(site, f"/{site.token}/about")[0] == 200
    for one in half:
        one.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
        one.close()


@pytest.mark.parametrize("token", [True, False])
def test_a_request_that_comes_slowly_is_dropped(site, monkeypatch, token):
    monkeypatch.setattr(server, "PATIENCE", 0.4)
    path = f"/{site.token if token else 'none'}/surface"
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as slow:
        slow.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode())
        slow.sendall(b"Content-Length: 1000\r\n\r\n{")
        slow.settimeout(0.1)
        answers = []
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(100):
                slow.sendall(b" ")
                with contextlib.suppress(TimeoutError):
                    answers.append(slow.recv(4096))
                if answers and not answers[-1]:
                    break
            else:
                pytest.fail("a connection that never ends its request is kept")
        assert any(b"403" in answer for answer in answers) != token
    assert asked(site, f"/{site.token}/about")[0] == 200


def test_a_number_of_four_hundred_digits_is_a_bad_request(site):
    body = b'{"points": [[1, 1, ' + b"9" * 400 + b"]]}"
    status, said = asked(site, f"/{site.token}/surface", body)
    assert status == 400
    assert "expected three numbers a point" in said["error"]
