"""The page without a server: opened from its folder in Chromium, with WebAssembly and a webcam."""

import cv2
import numpy as np
import pytest

import arml
import chromium
import npm
from arml.app.standalone import write_offline_page
from arml.cli import main
from arml.datasets.decode import resize
from arml.datasets.starter import load_starter


@pytest.fixture(scope="module")
def adapted():
    """The learner that ships, adapted to three glyphs; and more pictures of them."""
    glyphs = load_starter()[0][0]
    places = [glyphs.first[i] + j for i in range(3) for j in range(2)]
    predictor = arml.load("starter").adapt(glyphs.images[places], list("aabbcc"))
    return predictor, glyphs.images[[glyphs.first[i] + j for i in range(3) for j in range(2, 8)]]


@pytest.mark.site
def test_the_page_predicts_in_a_browser_without_a_network(adapted, tmp_path):
    predictor, pictures = adapted
    runtime = npm.package("onnxruntime-web") / "dist"
    predictor.save(tmp_path / "kept")
    folder = tmp_path / "page"
    arguments = ["--html", str(folder), "--runtime", str(runtime)]
    assert main(["export", str(tmp_path / "kept"), *arguments]) == 0
    assert (folder / "model.js").stat().st_size < 2e6
    files, large = [], []
    for i, picture in enumerate(pictures):
        size = (32, 32) if i < 9 else (96, 64)
        large.append(cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR))
        files.append(tmp_path / f"{i}.png")
        assert cv2.imwrite(str(files[-1]), large[-1][:, :, ::-1])
    wanted = predictor.predict_proba(np.stack([resize(picture, 32) for picture in large]))
    address, refused = f"file://{folder}/index.html", "createImageBitmap"
    with chromium.opened(address, width=390, more=chromium.CAMERA, complaint=refused) as page:
        page.wait_for_selector("body[data-ready], .status.bad")
        assert page.locator(".status.bad").count() == 0, page.inner_text("#status")
        assert "3 classes: a, b, c" in page.inner_text("#about")
        # The same numbers from the same bytes.
        for picture, chances in zip(large[:3], wanted[:3], strict=True):
            got = page.evaluate(
                "([data, h, w]) => armlPredict(new Uint8Array(data), h, w)",
                [picture.ravel().tolist(), *picture.shape[:2]],
            )
            np.testing.assert_allclose(got["probabilities"], chances, atol=1e-4)
        # The same answers from the same files.
        page.set_input_files("#files", [str(path) for path in files])
        page.wait_for_selector(f"#answers > :nth-child({len(files)})")
        said = [text.split(",")[0] for text in page.locator("#answers h3").all_inner_texts()]
        best = predictor.classes[wanted.argmax(axis=1)]
        assert np.mean(np.asarray(said) == best) >= 0.99
        assert page.locator("#answers small").all_inner_texts() == [file.name for file in files]
        with page.expect_download() as download:
            page.click("#save")
        rows = download.value.path().read_text().splitlines()
        assert rows[0] == "file,label,probability,problem,a,b,c"
        assert len(rows) == 1 + len(files)
        # No picture, then the webcam.
        broken = tmp_path / "broken.png"
        broken.write_bytes(b"nothing")
        page.set_input_files("#files", str(broken))
        page.wait_for_selector("#answers .bad >> text=broken.png: expected a picture")
        assert page.inner_text("#status") == "1 of 19 pictures have no answer: see below."
        # A canvas keeps 8 of 16 bits, which would change the answer.
        assert cv2.imwrite(str(tmp_path / "deep.png"), np.full((40, 40), 3000, np.uint16))
        page.set_input_files("#files", str(tmp_path / "deep.png"))
        page.wait_for_selector("#answers .bad >> text=deep.png: expected a picture with 8 bits")
        page.click("#camera")
        page.wait_for_selector("#seen h3")
        assert page.get_attribute("#camera", "aria-pressed") == "true"
        page.click("#camera")
        assert page.locator("#live").is_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        chromium.check_accessible(page)


def test_what_the_page_needs_is_named(adapted, tmp_path, capsys):
    assert main(["export", str(tmp_path)]) == 2
    assert "--onnx FILE or --html FOLDER" in capsys.readouterr().err
    with pytest.raises(ValueError, match="npm install onnxruntime-web"):
        write_offline_page(adapted[0], tmp_path / "page", tmp_path)
    line = arml.load("regression2d").adapt(np.eye(2), [1.0, 2.0])
    with pytest.raises(ValueError, match="use `arml predict`"):
        write_offline_page(line, tmp_path / "page", tmp_path)


@pytest.mark.site
def test_the_page_of_photographs_learns_new_classes(tmp_path):
    rng = np.random.default_rng(0)

    def blob(colour):
        return np.clip(colour + rng.normal(0, 12, (40, 60, 3)), 0, 255).astype(np.uint8)

    red, green, blue = ([blob(c) for _ in range(3)] for c in np.diag([220, 220, 220]))
    weight = [1.0, 2, 1, 1, 3, 1]
    predictor = arml.load("photos").adapt([*red, *green], ["red"] * 3 + ["green"] * 3, weight)
    more = predictor.add(blue, ["blue"] * 3)
    write_offline_page(predictor, tmp_path / "page", npm.package("onnxruntime-web") / "dist")
    assert (tmp_path / "page" / "model.js").stat().st_size < 9e6
    files = []
    for i, picture in enumerate([*blue, blob((20, 20, 200))]):
        files.append(tmp_path / f"{i}.png")
        assert cv2.imwrite(str(files[-1]), picture[:, :, ::-1])
    files += [tmp_path / "bad.jpg", tmp_path / "deep.png"]
    files[4].write_bytes(b"nothing")
    assert cv2.imwrite(str(files[5]), np.full((40, 40), 3000, np.uint16))
    drawn = np.full((40, 60, 4), 255, np.uint8)  # white on nothing
    drawn[:, :30, 3] = 0
    files.append(tmp_path / "drawn.png")
    assert cv2.imwrite(str(files[6]), drawn)
    address, refused = f"file://{tmp_path}/page/index.html", "createImageBitmap"
    with chromium.opened(address, width=390, complaint=refused) as page:
        page.wait_for_selector("body[data-ready], .status.bad")
        ask = "([data, h, w]) => armlPredict(new Uint8Array(data), h, w)"
        given = [red[0].ravel().tolist(), 40, 60]
        got = page.evaluate(ask, given)["probabilities"]
        np.testing.assert_allclose(got, predictor.predict_proba(red[:1])[0], atol=1e-3)
        got = page.evaluate(ask, given)["novelty"]
        np.testing.assert_allclose(got, predictor.novelty(red[:1])[0], rtol=0.02, atol=1e-3)
        page.set_input_files("#files", str(files[6]))
        page.wait_for_selector("#answers h3")
        shown = float(page.inner_text("#answers h3").rpartition(" ")[2].rstrip("%")) / 100
        assert abs(shown - predictor.predict_proba([files[6]]).max()) < 0.02
        page.set_input_files("#files", str(files[3]))
        page.wait_for_selector("#answers > :nth-child(2) h3")
        # Files that cannot be read teach nothing, and leave the rest as it was.
        assert "rougher" not in page.inner_text("#about")
        page.fill("#name", "blue")
        page.set_input_files("#examples", str(files[4]))
        page.wait_for_selector(".status.bad >> text=Learned 0 of blue, without bad.jpg")
        assert page.inner_text("#about") == "It knows 2 classes: green, red."
        page.set_input_files("#examples", [str(files[i]) for i in (0, 4, 1, 5, 2)])
        page.wait_for_selector(".status.bad >> text=Learned 3 of blue, without bad.jpg (expected")
        assert "deep.png (expected a picture with 8 bits" in page.inner_text("#status")
        assert "3 classes: green, red, blue. It learned in this" in page.inner_text("#about")
        # The picture that was there is answered again, and the order of the classes is their age.
        assert page.inner_text("#answers > :nth-child(2) h3").startswith("blue")
        got = page.evaluate(ask, given)["probabilities"]
        wanted = dict(zip(more.classes, more.predict_proba(red[:1])[0], strict=True))
        assert abs(got[1] - wanted["red"]) < 0.1
        page.set_input_files("#files", str(files[2]))
        page.wait_for_selector("#answers > :nth-child(3) h3 >> text=blue")
        chromium.check_accessible(page)
