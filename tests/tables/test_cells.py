"""A kind of one's own whose inputs are strings is read from files and from a column of a table."""

import random

import numpy as np
import pandas as pd
import pytest

import arml

PLUGIN = '''
import numpy as np
import arml


class Sequences(arml.StringInputs):
    """Sequences of bases."""

    one, many, suffixes, dimension = "sequence", "sequences", (".seq",), 16

    def vector(self, content, where):
        if odd := {*content} - {*"ACGT"}:
            raise ValueError(f"{where}: expected the letters A, C, G, T, got {sorted(odd)[0]}")
        pairs = [a + b for a, b in zip(content, content[1:])]
        return np.array([pairs.count(a + b) for a in "ACGT" for b in "ACGT"], float)

    def examples(self):
        draw = np.random.default_rng(0)
        letters = {"at": "AAAT", "gc": "GCCG"}
        labels = ["at", "gc"] * 5
        return ["".join(draw.choice([*letters[one]], 30)) for one in labels], labels


arml.register("inputs", "sequences", Sequences)
'''


@pytest.fixture
def genes(tmp_path, alone):
    """The plug-in, a table of labelled sequences, and one of others."""
    draw = random.Random(0)
    (tmp_path / "sequences.py").write_text(PLUGIN, encoding="utf-8")
    for name, n in (("known", 12), ("new", 4)):
        rows = ["id,bases,animal,family" if name == "known" else "id,bases,animal"]
        for i in range(n):
            bases = "".join(draw.choices("AAAT" if i % 2 else "GCCG", k=30))
            rows.append(f"{name}{i},{bases},{i // 3}" + (f",{'at' if i % 2 else 'gc'}" * (n > 4)))
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def adapt(genes, command, *more, code=0):
    words = "adapt sequences --plugin", genes / "sequences.py", "--support", genes / "known.csv"
    return command(*words, "--target family", *more, code=code)


def test_a_column_of_a_table_is_learned_and_its_rows_are_predicted(genes, command):
    out = genes / "answers.csv"
    saved = "--save", genes / "kept"
    _, said = adapt(genes, command, "--query", genes / "new.csv", "--out", out, *saved)
    assert "12 examples" in said
    assert "'bases'" in said
    lines = [line.split(",") for line in out.read_text().splitlines()]
    place = lines[0].index("label")
    assert [line[place] for line in lines[1:]] == ["gc", "at", "gc", "at"]
    assert "id" in lines[0]
    again = genes / "again.csv"
    plugin = "--plugin", genes / "sequences.py"
    command("predict", genes / "kept", *plugin, genes / "new.csv", "--out", again)
    assert again.read_text() == out.read_text()


def test_a_bad_cell_is_named_by_its_row_and_a_missing_column_by_the_others(genes, command):
    place = genes / "known.csv"
    place.write_text(place.read_text().replace("\nknown3,", "\nknown3,X"), encoding="utf-8")
    _, said = adapt(genes, command)
    assert "row 5" in said
    assert "got X" in said
    _, said = adapt(genes, command, "--strict", code=2)
    assert "row 5" in said
    _, said = adapt(genes, command, "--text", "codons", code=2)
    assert "'codons'" in said
    assert "bases" in said
    assert "--text" in said


def test_the_column_of_queries_is_named_and_one_that_is_missing_refused(genes, command):
    adapt(genes, command, "--save", genes / "kept")
    kept = "predict", genes / "kept", "--plugin", genes / "sequences.py"
    new = genes / "new.csv"
    new.write_text(new.read_text().replace("bases", "letters"), encoding="utf-8")
    said = command(*kept, new, code=2)[1]
    assert "no column 'bases', which the examples have; rename one of" in said
    (genes / "known.csv").write_text((genes / "known.csv").read_text() + "late,ACGT,,\n")
    said = command("evaluate", *kept[1:], "--query", genes / "known.csv")[1]
    assert "left out 1 row without an answer" in said


def test_rows_of_one_group_are_left_out_together(genes, command):
    _, said = adapt(genes, command, "--group animal")
    assert "group" in said


def test_files_in_folders_are_read_too_and_strings_in_python(genes, command, caplog):
    for label, letters in (("at", "AAAT"), ("gc", "GCCG")):
        (genes / "folders" / label).mkdir(parents=True)
        for i in range(4):
            bases = "".join(random.Random(i).choices(letters, k=30))
            (genes / "folders" / label / f"{i}.seq").write_text(bases)
    plugin = "--plugin", genes / "sequences.py"
    _, said = command("adapt sequences", *plugin, "--support", genes / "folders")
    assert "8 examples" in said
    predictor = arml.adapt("sequences", ["AATAATAA", "GCCGGCGC"], ["at", "gc"])
    assert predictor.predict(["ATAATAATAA"]).tolist() == ["at"]
    with pytest.raises(ValueError, match=r"sequence 2.*empty"):
        predictor.predict(["AAT", " "])
    with pytest.raises(ValueError, match="got a lone surrogate"):
        predictor.predict(["\ud800"])
    for table in ({"bases": ["AAT"]}, pd.DataFrame({"bases": ["AAT", "GCC"]})):
        with pytest.raises(ValueError, match="expected a list of sequences, got a table"):
            predictor.predict(table)
    caplog.clear()
    assert predictor.predict(["", "ATAATA"], errors="skip").tolist() == [None, "at"]
    assert caplog.messages == ["sequence 1: expected a sequence, got an empty one"]
    assert np.shape(predictor.predict_proba(["AAT", "GCC"])) == (2, 2)


def test_the_contract_of_kinds_holds_for_it(genes, command):
    said, _ = command("check", genes / "sequences.py")
    assert "sequences" in said


@pytest.mark.usefixtures("alone")
def test_vectors_of_a_kind_without_a_file_are_computed_anew(tmp_path, monkeypatch):
    """As in a notebook, whose code may have changed."""
    monkeypatch.setenv("ARML_CACHE", str(tmp_path))
    for at in (0, 1):
        code = {"__name__": "__main__"}
        exec(PLUGIN.replace("float)", f"float) + {at}"), code)
        kind = arml.load("sequences")
        assert kind.read(["ACGT"])[0, 0] == at
        assert kind.cache is None
