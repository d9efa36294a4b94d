"""The page to try a learner: what it answers, what it refuses, and how it is used in a browser."""

import base64
import contextlib
import http.client
import io
import json
import socket
import struct
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import arml
import chromium
from arml.app import picture_tab, server
from arml.app.picture_tab import Limits
from arml.app.server import served
from arml.cli import main
from arml.datasets.decode import resize
from arml.datasets.starter import load_starter
from arml.predict.encoded import EncodedPredictor
from serving import Site, serving


@pytest.fixture(scope="module")
def site():
    """The page with the learners that ship, small limits, and `starter` for pictures."""
    with serving(replace(served(Path("starter")), limits=Limits(pictures=12, megabytes=1))) as site:
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


def encoded(path: Path) -> dict[str, str]:
    """A picture as the page sends it."""
    return {"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()}


def test_only_who_has_the_address_is_answered(site):
    assert asked(site, f"/{site.token}/")[0] == 200
    about = asked(site, f"/{site.token}/about")[1]
    assert about["pictures"]["size"] == 32
    assert about["limits"]["pictures"] == 12
    example = asked(site, f"/{site.token}/example-pictures")[1]
    assert [len(example[part]) for part in ("classes", "queries")] == [3, 6]
    assert example["queries"][0].startswith("data:image/png;base64,")
    for path in ("/", "/about", f"/{site.token}x/", f"/{site.token[:-1]}/about", "//about"):
        assert asked(site, path)[0] == 403
    assert asked(site, f"/{site.token}/", Host="evil.example")[0] == 400
    assert asked(site, f"/{site.token}/nothing")[0] == 404


def test_requests_that_cannot_be_answered_are_refused_in_a_line(site, tmp_path):
    good = encoded(draw(tmp_path / "own", "a", 1) / "a" / "0.png")

    def pictures(*given: Any) -> Any:
        classes = [{"name": "a", "pictures": [good]}, {"name": "b", "pictures": list(given)}]
        return {"classes": classes, "queries": [good]}

    long = {"name": "x" * 61, "pictures": [good]}
    twice = {"name": "a", "pictures": [good]}
    again = {"name": " a ", "pictures": [good]}
    text = {"name": "t.svg", "data": base64.b64encode(b"<svg/>").decode()}
    short = {"name": "s.png", "data": good["data"][: len(good["data"]) // 2 // 4 * 4]}
    packet = base64.b64encode(b"PK nothing").decode()
    for path, content, message in (
        ("classify", b" " * (2**20 + 1), "more than 1 MiB"),
        ("classify", b"no", "not JSON"),
        ("classify", b"[" * 100_000, "not JSON"),
        ("classify", [], "the request: Expected `object`, got `array`; use the page"),
        ("classify", pictures(*[good] * 12), "14 pictures are too many, at most 12"),
        ("classify", pictures(text, short), "t.svg (data that cannot be decoded), s.png"),
        ("trust", pictures(short), "no picture of 'b' can be read: add one; left out: s.png"),
        ("preview", pictures(text) | {"queries": [text]}, "t.svg: expected an image"),
        ("preview", {}, "expected one picture to preview, got 0"),
        ("preview", {"queries": [good, good]}, "expected one picture to preview, got 2"),
        ("classify", pictures({"data": "§"}), "base64"),
        ("classify", pictures(), "no picture of 'b'"),
        ("classify", {**pictures(good), "queries": []}, "no pictures to predict"),
        ("classify", {"classes": [twice, twice], "queries": [good]}, "named 'a'"),
        ("classify", {"classes": [twice, again], "queries": [good]}, "named 'a'"),
        ("classify", {"classes": [twice, long], "queries": [good]}, "1 to 60 letters"),
        ("classify", {"classes": [twice], "queries": [good]}, "2 or more classes, got 1"),
        ("open", {"predictor": packet}, "not a predictor that the page saved"),
    ):
        got, answer = asked(site, f"/{site.token}/{path}", content)
        assert got == 400, answer
        assert message in answer["error"]
        assert "\n" not in answer["error"]


def request(own: Path) -> Any:
    """Three pictures of each of two classes, which are also the queries."""
    files = sorted(own.rglob("*.png"))
    classes = [
        {"name": name, "pictures": [encoded(path) for path in files if path.parent.name == name]}
        for name in "ab"
    ]
    labels = [path.parent.name for path in files]
    return {"classes": classes, "queries": [encoded(path) for path in files], "labels": labels}


def test_the_page_answers_as_the_command(tmp_path):
    """Grey drawings, of which `starter` predicts the examples better than `photos`."""
    glyphs = load_starter()[0][0]
    for k, name in enumerate("ab"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(3):
            picture = glyphs.images[glyphs.first[k] + i]
            assert cv2.imwrite(str(tmp_path / "own" / name / f"{i}.png"), picture[:, :, ::-1])
    content, tab = request(tmp_path / "own"), served().pictures
    answer = picture_tab.classified(tab, content, Limits())
    files = sorted((tmp_path / "own").rglob("*.png"))
    estimator = arml.FewShotClassifier().fit(files, content["labels"])
    np.testing.assert_allclose(answer["probabilities"], estimator.predict_proba(files), atol=1e-3)
    name = "photos" if isinstance(estimator.predictor_, EncodedPredictor) else "starter"
    assert answer["remark"].startswith(f"{name} (the pictures are grey like drawings")
    assert answer["evaluation"]["summary"] == str(
        estimator.predictor_.evaluate(estimator._queries(files), content["labels"])
    )


def test_labels_that_are_empty_or_no_class_do_not_block_the_answers(tmp_path):
    content, tab = request(draw(tmp_path / "own", each=3)), served(Path("starter")).pictures
    want = picture_tab.classified(tab, content, Limits())
    assert (want["own"], want["notes"]) == ([0, 0, 0, 1, 1, 1], [])
    content["classes"][0]["name"] = " a"
    names = ["", " ", None, "b ", "dog", "Á"]
    got = picture_tab.classified(tab, {**content, "labels": names}, Limits())
    assert got["probabilities"] == want["probabilities"]
    assert got["classes"] == ["a", "b"]
    assert got["own"] == [None, None, None, 1, None, None]
    assert got["notes"] == ["labels that are not classes are ignored: dog, Á"]
    assert sum(map(sum, got["evaluation"]["confusion"])) == 1
    for labels in (["dog"] * 6, [""] * 6):
        got = picture_tab.classified(tab, {**content, "labels": labels}, Limits())
        assert got["evaluation"] is None


def test_lines_about_doubtful_pictures_are_in_the_answer(tmp_path):
    content, tab = request(draw(tmp_path / "own", each=3)), served().pictures
    deep = np.random.default_rng(0).integers(0, 3000, (20, 24)).astype(np.uint16)
    for name, picture in (("deep.png", deep), ("dot.png", np.zeros((1, 1, 3), np.uint8))):
        assert cv2.imwrite(str(tmp_path / name), picture)
    content["queries"] = [encoded(tmp_path / "deep.png"), encoded(tmp_path / "dot.png")]
    content.pop("labels")
    stretched = f"deep.png: {deep.max()} of 65535 values are used: stretched to the whole range"
    for _ in range(2):  # vectors are cached, but not those of doubtful pictures
        notes = picture_tab.classified(tab, content, Limits())["notes"]
        assert sorted(notes) == [stretched, "dot.png: a picture of 1 x 1 px shows very little"]
    content["classes"][0]["pictures"] += [{**content["queries"][0], "name": n} for n in "qrstuvw"]
    for answer in (picture_tab.trusted, picture_tab.packed_predictor):
        notes = answer(tab, content, Limits())["notes"]
        assert (len(notes), notes[-1]) == (6, "and 2 more such lines")
        assert all("stretched to the whole range" in note for note in notes[:5])


def test_a_kept_predictor_is_opened_again(tmp_path):
    content, tab = request(draw(tmp_path / "own", each=3)), served(Path("starter")).pictures
    packet = picture_tab.packed_predictor(tab, content, Limits())["zip"]
    assert picture_tab.opened_predictor(tab, {"predictor": packet}) == {"classes": ["a", "b"]}
    # With entries of folders and other files, which are not written anywhere.
    again = io.BytesIO(base64.b64decode(packet))
    with zipfile.ZipFile(again, "a") as more:
        for name in ("predictor/", "C:evil", "../evil", "predictor/sub/evil"):
            more.writestr(name, "")
    packet = base64.b64encode(again.getvalue()).decode()
    assert picture_tab.opened_predictor(tab, {"predictor": packet}) == {"classes": ["a", "b"]}
    again = {"predictor": packet, "queries": content["queries"]}
    with pytest.raises(ValueError, match="6 pictures are too many, at most 2"):
        picture_tab.classified(tab, again, Limits(pictures=2))
    want = picture_tab.classified(tab, content, Limits())["probabilities"]
    got = picture_tab.classified(tab, again, Limits())["probabilities"]
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_examples_that_cannot_be_read_are_left_out(tmp_path):
    content, tab = request(draw(tmp_path / "own", each=3)), served().pictures
    first, second = (known["pictures"] for known in content["classes"])
    second.append(first.pop())  # a wrong label
    want = picture_tab.classified(tab, content, Limits())
    doubtful = [one["place"] for one in picture_tab.trusted(tab, content, Limits())["doubtful"]]
    assert want["left_out"] == {}
    assert doubtful[0] == 5
    first.insert(0, {"name": "bad.png", "data": base64.b64encode(b"nothing").decode()})
    got, trust = (f(tab, content, Limits()) for f in (picture_tab.classified, picture_tab.trusted))
    assert got["left_out"] == trust["left_out"] == {"0": "data that cannot be decoded"}
    assert got["probabilities"] == want["probabilities"]
    assert [one["place"] for one in trust["doubtful"]] == [place + 1 for place in doubtful]
    assert picture_tab.packed_predictor(tab, content, Limits())["left_out"] == got["left_out"]


@pytest.fixture
def browsed(site):
    """The page in Chromium, which itself notes the one picture that is refused."""
    refused = "400 (Bad Request)"
    with chromium.opened(site.address, more=chromium.CAMERA, complaint=refused) as page:
        page.wait_for_selector("body[data-ready]")
        yield page


@pytest.mark.site
def test_the_page_in_a_browser(site, browsed, tmp_path):
    page, own = browsed, draw(tmp_path / "own", each=3)

    # A folder of classes, queries one by one, and files that are no pictures.
    page.set_input_files("#folder", str(own))
    page.wait_for_selector(".class:nth-child(2) li:nth-child(3)")
    names = page.locator(".class input[type=text]").all()
    assert [box.input_value() for box in names] == ["a", "b"]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nothing")
    queries = page.locator("#queries input")
    queries.set_input_files(str(broken))
    page.click("#predict")
    page.wait_for_selector("#pictures-status.bad >> text=None of these pictures can be read.")
    assert "broken.png: expected a picture" in page.inner_text("#queries .problem")
    queries.set_input_files({"name": "IMG.HEIC", "mimeType": "image/heic", "buffer": b"ftypheic"})
    page.click("#predict")
    page.wait_for_selector("#queries .problem >> text=IMG.HEIC: HEIC pictures cannot be read")
    page.click("[aria-label='Remove IMG.HEIC']")
    assert page.inner_text("#pictures-status") == ""
    files = [own / "a" / "0.png", own / "b" / "1.png"]
    queries.set_input_files([str(path) for path in files])
    assert page.inner_text("#count") == "9 of at most 12 pictures"
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=but 1 of 3 pictures cannot be read")
    assert page.locator("#queries .problem").count() == 1
    assert page.locator("#predictions .problem").count() == 1
    page.click("[aria-label='Remove broken.png']")
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")
    pixels = {path: resize(cv2.imread(str(path))[:, :, ::-1], 32) for path in own.rglob("*.png")}
    predictor = arml.load("starter").adapt(
        np.stack([*pixels.values()]), [path.parent.name for path in pixels]
    )
    predictor = predictor.using("ensemble")
    cards = page.locator("#predictions small").all_inner_texts()
    assert cards == ["0.png", "1.png"]
    page.select_option("#sort", "unsure")
    shares = [
        float(text.split()[1][:-1]) for text in page.locator("#predictions b").all_inner_texts()
    ]
    assert shares == sorted(shares)

    # An example that cannot be read is left out; on a phone its button is beside its problem.
    page.locator(".class:nth-child(1) input[type=file]").set_input_files(str(broken))
    page.set_viewport_size({"width": 390, "height": 900})
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=without 1 of the examples")
    boxes = [
        page.locator(f".class li.bad {part}").bounding_box() for part in (".problem", "button")
    ]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    page.set_viewport_size({"width": 1000, "height": 900})
    page.click("[aria-label='Remove broken.png']")
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")

    # How far to trust it, the answers as a table, and the predictor as a file that opens again.
    page.click("#check")
    page.wait_for_selector("#pictures-status >> text=Checked in")
    assert "accuracy" in page.inner_text("#trust-summary")
    cells = page.locator("#confusion td:not(:nth-child(2))").all_inner_texts()
    assert sum(int(text or 0) for text in cells) == 6
    with page.expect_download() as download:
        page.click("#save-csv")
    rows = download.value.path().read_text().splitlines()
    assert rows[0] == "file,label,probability,a,b"
    chances = predictor.predict_proba(np.stack([pixels[path] for path in files]))
    got = [[float(cell) for cell in row.split(",")[3:]] for row in rows[1:]]
    np.testing.assert_allclose(got, chances, atol=0.05)
    with page.expect_download() as download:
        page.click("#keep")
    kept = tmp_path / "predictor.zip"
    download.value.save_as(kept)
    page.set_input_files("#open", str(kept))
    page.wait_for_selector("#opened >> text=predictor.zip knows 2 classes: a, b.")
    page.click("#predict")
    page.wait_for_selector("#answer-remark >> text=a saved predictor")
    page.click("#close")
    main(["predict", str(kept), *map(str, files), "--out", str(tmp_path / "answers.csv")])
    assert (tmp_path / "answers.csv").read_text().count("\n") == 3

    # Labels of the queries, by a CSV file and by folders, say how good the predictions are.
    table = tmp_path / "labels.csv"
    table.write_text('label,"file"\n"b",a/0.png\nb,1.png\n')
    page.set_input_files("#query-labels", str(table))
    page.wait_for_selector("#pictures-status >> text=2 of 2 pictures have a label.")
    page.click("#predict")
    page.wait_for_selector("#evaluation-table td")
    table.write_text("file,label\nC:\\fotos\\0.png,dog\nC:\\fotos\\1.png,\n")
    page.set_input_files("#query-labels", str(table))
    page.wait_for_selector("#pictures-status >> text=1 of 2 pictures have a label; without a label")
    assert page.inner_text("#pictures-status").endswith(": 1.png.")
    page.click("#predict")
    page.wait_for_selector("#pictures-notes >> text=labels that are not classes are ignored: dog")
    assert page.locator("#predictions li:not(.wrong)").count() == 2
    assert page.locator("#evaluation").is_hidden()
    table.write_text("file,label\nx/0.png,a\ny/0.png,b\n1.png,b\n")
    page.set_input_files("#query-labels", str(table))
    page.wait_for_selector("#pictures-status >> text=without a label: 0.png.")
    assert page.inner_text("#pictures-notes") == ""
    page.click("#no-labels")
    assert page.locator("#no-labels").is_hidden()
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")
    assert page.locator("#evaluation").is_hidden()
    for _ in files:
        page.locator("#queries li:nth-child(1) button").click()
    page.set_input_files("#query-folder", str(own))
    page.click("#predict")
    page.wait_for_selector("#predictions li:nth-child(6)")
    cells = page.locator("#evaluation-table td:not(:nth-child(2))").all_inner_texts()
    assert sum(int(text or 0) for text in cells) == 6
    page.set_input_files("#query-folder", str(own))
    assert page.inner_text("#count").startswith("18 of at most 12 pictures: leave some out")
    assert page.is_disabled("#predict")
    for _ in range(12):
        page.locator("#queries li:nth-child(1) button").click()

    # A large picture is made small before it is sent, and a GIF is read.
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
        struct.unpack(">I", base64.b64decode(picture["data"])[16:20])[0]
        for picture in json.loads(sent.value.post_data or "")["queries"]
    ]
    assert widths == [307, 1]  # its height is 256

    # A large PNG of 16 bits is sent as it is, because a canvas would keep 8; a line says more.
    page.click("[aria-label='Remove large.png']")
    deep = np.kron(np.arange(64, 76).reshape(3, 4) * 32, np.ones((100, 150))).astype(np.uint16)
    assert cv2.imwrite(str(tmp_path / "deep.png"), deep)
    queries.set_input_files(str(tmp_path / "deep.png"))
    with page.expect_request("**/classify") as sent:
        page.click("#predict")
    page.wait_for_selector("#pictures-notes >> text=deep.png: 2400 of 65535 values are used")
    assert json.loads(sent.value.post_data or "")["queries"][1] == encoded(tmp_path / "deep.png")
    shown = page.locator("#queries img").last.evaluate("image => image.src")
    assert shown.startswith("data:image/jpeg;base64,")  # by the server

    # The pictures beside the answers are those that are classified, of a TIFF and a GIF, too.
    page.click("[aria-label='Remove deep.png']")
    page.click("[aria-label='Remove red.gif']")
    red, blue = (Image.new("RGB", (40, 20), tone) for tone in ("red", "blue"))
    red.save(tmp_path / "red.tif")
    red.save(tmp_path / "red.gif", save_all=True, append_images=[blue], duration=50)
    queries.set_input_files([str(tmp_path / name) for name in ("red.tif", "red.gif")])
    page.click("#predict")
    page.wait_for_selector("#pictures-status >> text=Answered in")
    page.wait_for_timeout(300)  # the animation goes on
    middle = """image => {
      const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      return [...context.getImageData(9, 9, 1, 1).data];
    }"""
    for place in ("#queries img", "#predictions img"):
        tones = [image.evaluate(middle) for image in page.locator(place).all()]
        np.testing.assert_allclose(tones[-2:], [[255, 0, 0, 255]] * 2, atol=2)

    # The webcam, by a device of the browser's own.
    page.locator("#queries button", has_text="Webcam").click()
    page.click("#shoot")
    page.wait_for_selector("#camera .status >> text=Picture 1 is added")
    page.click("#camera >> text=Close")
    assert page.locator("[aria-label='Remove webcam 1.png']").count() == 1


def test_the_command_refuses_in_a_line(monkeypatch, tmp_path, command):
    assert "port must be from 0 to 65535" in command("app --port 70000", code=2)[1]
    assert command("app", tmp_path, code=2)[1].startswith("arml: error: ")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'arml[app]'" in command("app", code=2)[1]


def test_half_open_connections_are_dropped_and_keep_nobody_out(site, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
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
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.4)
    monkeypatch.setattr(server, "UPLOAD_SECONDS", 0.8)
    path = f"/{site.token if token else 'none'}/classify"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=0.1) as slow:
        slow.sendall(head.encode())
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


@pytest.mark.parametrize("pause", [0.05, 3.0])
def test_an_upload_is_dropped_only_if_no_data_come(site, monkeypatch, pause):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.4)
    body = b" " * 40
    head = f"POST /{site.token}/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as slow:
        slow.sendall(f"{head}\r\n\r\n".encode())
        answer = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for i in range(len(body)):  # 2 seconds, five checks
                slow.sendall(body[i : i + 1])
                time.sleep(pause if i == len(body) // 2 else 0.05)
            answer = slow.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400" if pause < 1 else b"")
    assert (answer == b"") == (pause > 1)
