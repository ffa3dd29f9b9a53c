"""`heedful see`: where a model looks, across and inside, in the terminal, as SVG and as JSON."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import copies
from small_runs import small, train_tiny

import heedful
from heedful.draw import heatmap, overview
from heedful.draw.heads import choose_head
from heedful.interop.folder import write_readout
from heedful.trace import Text, Trace, Word
from heedful.trace.readout import RAW, Readout

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer of 2 layers with 4 heads."""
    out = tmp_path_factory.mktemp("see") / "model"
    heads = {"family": "transformer", "layers": 2, "heads": 4, "width": 16, "inner": 16}
    heedful.train(copies(), out, settings={**small(), "model": heads})
    return out


def test_it_shows_what_translate_shows(heedful_cli: Run, tiny: Path) -> None:
    assert heedful_cli("see", tiny, "a b c").out + "\n" == heedful_cli("translate", tiny, "a b c", "--show").out


def test_which_weights_are_shown_is_said(heedful_cli: Run, transformer: Path) -> None:
    usual = str(heedful.load(transformer, "cpu").translate("a b").trace.readout)
    for options, said in (
        ([], usual),
        (["--layer", "2"], "layer 2"),
        (["--head", "3"], "head 3"),
        (["--layer", "1", "--head", "4"], "layer 1, head 4"),
        (["--self"], "mean of all layers and heads"),
        (["--view", "self"], "mean of all layers and heads"),
        (["--self", "--layer", "1", "--head", "4"], "layer 1, head 4"),
    ):
        assert f"read-out: {said}" in heedful_cli("see", transformer, "a b", *options).out.splitlines()


def test_one_head_is_that_head(heedful_cli: Run, transformer: Path) -> None:
    translator = heedful.load(transformer, "cpu")
    across, inside = translator.translate("a b c").trace, translator.self_attention("a b c")
    out = heedful_cli("see", transformer, "a b c", "--layer", "2", "--head", "1").out
    assert out.endswith(heatmap(across.only(2, 1)) + "\n")
    out = heedful_cli("see", transformer, "a b c", "--self", "--layer", "1", "--head", "3").out
    assert out.endswith("\n\n" + heatmap(inside.only(1, 3), confidence=False) + "\n")
    assert "conf" not in out
    assert "layer.head" not in out
    assert heatmap(across.only(2, 1)) != heatmap(across.only(1, 1))


def test_self_has_the_mean_and_a_row_for_each_head(heedful_cli: Run, transformer: Path) -> None:
    out = heedful_cli("see", transformer, "a b c", "--self").out
    inside = heedful.load(transformer, "cpu").self_attention("a b c")
    assert heatmap(inside, confidence=False) in out
    rows = out.split("with the largest weight:\n\n")[1].splitlines()
    assert rows[0].split() == ["head", "1", "2", "3", "4", "mean"]
    assert [row.split()[0] for row in rows[1:]] == [f"{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert inside.weights is not None
    most = inside.weights[1, 2].argmax(-1) + 1
    assert rows[7].split()[1:5] == [str(n) for n in most]


def test_sentences_are_seen_each_for_itself(heedful_cli: Run, transformer: Path) -> None:
    for more in ([], ["--self"]):
        out = heedful_cli("see", transformer, "A b! C d!", *more).out
        assert out.count("words: 1" if more else "source: 1") == 2
        trace = Trace.build(json.loads(heedful_cli("see", transformer, "A b! C d!", "--json", *more).out))
        weights = trace.words()
        assert weights is not None
        half = trace.source.words[2].text
        assert half == "</s>"
        assert weights[0, 3:].sum() == 0  # the first sentence never looks at the second
        assert trace.source.text == "A b! C d!"


def test_what_was_cut_off_names_no_option_that_is_not_there(
    heedful_cli: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.translator.pipeline.length_limit", lambda *_: 2)
    (tmp_path / "t.tsv").write_text("a b c\tA B C\n")
    said = "cut off after 1 token, 2n + 20 for n source tokens; see --max-length"
    for verb in (
        ["see", tiny, "a b c"],
        ["report", tiny, tmp_path / "t.tsv", "--out", tmp_path / "r.html"],
        ["compare", tiny, tiny, tmp_path / "t.tsv"],
    ):
        assert f"{said} of heedful translate\n" in heedful_cli(*verb).err
    for verb in (["translate", tiny, "a b c"], ["evaluate", tiny, tmp_path / "t.tsv"]):
        assert f"{said}\n" in heedful_cli(*verb).err


def test_a_given_translation(heedful_cli: Run, tiny: Path) -> None:
    out = heedful_cli("see", tiny, "a b", "--target", "H G F").out
    (wanted,) = heedful.load(tiny, "cpu").score(["a b"], ["H G F"])
    assert out == f"H G F\n\n{heatmap(wanted.trace)}\n"


def test_json_is_the_trace(heedful_cli: Run, transformer: Path) -> None:
    trace = heedful.load(transformer, "cpu").translate("a b").trace
    seen = Trace.build(json.loads(heedful_cli("see", transformer, "a b", "--json").out))
    assert seen.target == trace.target
    np.testing.assert_allclose(seen.weights, trace.weights, atol=1e-6)
    one = Trace.build(json.loads(heedful_cli("see", transformer, "a b", "--json", "--layer", "2").out))
    assert one.weights is not None
    assert one.weights.shape[:2] == (1, 4)


def test_the_picture_is_written(heedful_cli: Run, transformer: Path, tmp_path: Path) -> None:
    for more, said, confidence in (([], "read-out: ", True), (["--self", "--head", "2"], "read-out: head 2", False)):
        path = tmp_path / "a.svg"
        code, out, err = heedful_cli("see", transformer, "a b", "--to", path, *more)
        assert (code, out.count("\n"), err) == (0, 1, f"the picture is in {path}\n")
        texts = " ".join(ElementTree.parse(path).getroot().itertext())
        assert said in texts
        assert ("confidence" in texts) is confidence


@pytest.mark.parametrize("more", [["--view", "braid"], ["--view", "heads", "--head", "2"], ["--view", "self"]])
def test_every_view_from_the_model_and_from_a_saved_trace(
    heedful_cli: Run, transformer: Path, tmp_path: Path, more: list[str]
) -> None:
    direct, saved, again = tmp_path / "direct.svg", tmp_path / "seen.json", tmp_path / "again.svg"
    assert heedful_cli("see", transformer, "a b c", "--to", direct, *more).code == 0
    inside = ["--self"] if "self" in more else []
    done = heedful_cli("see", transformer, "a b c", "--to", saved, *inside)
    assert done.err == f"the record is in {saved}\n"
    assert heedful_cli("see", saved, "--to", again, *more).code == 0
    shown = [
        [e.text for e in ElementTree.parse(path).getroot().iter() if e.tag.endswith(("text", "title"))]
        for path in (direct, again)
    ]
    assert shown[0][-5:] == shown[1][-5:]
    page = tmp_path / "p.html"
    assert heedful_cli("see", saved, "--to", page, *more).err == f"the page is in {page}\n"
    looked = "Self-attention of seen" if inside else "Attention of seen"
    assert f"<h1>{looked}</h1>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [["--view", "self"], ["--self"], ["--view", "self", "--to", "x.svg"]])
def test_a_saved_translation_is_not_shown_as_self_attention(
    heedful_cli: Run, tiny: Path, tmp_path: Path, more: list[str]
) -> None:
    saved = tmp_path / "seen.json"
    heedful_cli("see", tiny, "a b", "--to", saved)
    done = heedful_cli("see", saved, *(tmp_path / m if m == "x.svg" else m for m in more))
    assert (done.code, done.out) == (2, "")
    assert "for self-attention" in done.err


def test_heads_in_the_terminal(heedful_cli: Run, transformer: Path) -> None:
    trace = heedful.load(transformer, "cpu").translate("a b").trace
    assert heedful_cli("see", transformer, "a b", "--view", "heads").out.endswith(f"{overview(trace)}\n")
    out = heedful_cli("see", transformer, "a b", "--view", "heads", "--layer", "2", "--head", "1").out
    assert heatmap(trace.only(2, 1)) in out
    assert out.endswith(f"{overview(trace)}\n")
    out = heedful_cli("see", transformer, "a b", "--view", "heads", "--layer", "2").out
    assert heatmap(trace.only(*choose_head(trace, 2).at)) in out
    done = heedful_cli("see", transformer, "a b", "--view", "heads", "--layer", "3")
    assert (done.code, "there is no layer 3" in done.err) == (2, True)


def test_the_readouts_head_is_the_same_by_every_option(heedful_cli: Run, transformer: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(transformer, folder)
    write_readout(folder, Readout(2, (3,), "next", norms=True, end="drop"))
    text = "A b! C d!"  # two sentences
    whole = heedful_cli("see", folder, text).out
    assert "read-out: layer 2, head 3; read at the next step; weighted by norms\n" in whole
    assert heedful_cli("see", folder, text, "--layer", "2", "--head", "3").out == whole
    saved = tmp_path / "seen.json"
    heedful_cli("see", folder, text, "--to", saved)
    assert heedful_cli("see", saved, "--layer", "2", "--head", "3").out == heedful_cli("see", saved).out
    other = heedful_cli("see", folder, text, "--layer", "1").out
    assert "read-out: layer 1; read at the next step; weighted by norms\n" in other
    # What all heads look at most stands below, read in the same way.
    out = heedful_cli("see", folder, "a b c", "--view", "heads").out
    trace = heedful.load(folder, "cpu").translate("a b c").trace
    row = next(line for line in out.splitlines() if line.startswith("2.3 "))
    assert row.split()[1:-1] == [str(n) for n in trace.words().argmax(1) + 1]
    assert "with the largest weight (read at the next step; weighted by norms):" in " ".join(out.split())
    # A record of before lacks what that takes, and it is said.
    plain = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps({k: v for k, v in plain.items() if k not in ("after", "norms")}), encoding="utf-8")
    assert heedful_cli("see", saved, "--layer", "2", "--head", "3").out == heedful_cli("see", saved).out
    assert f"read-out: layer 1; {RAW}" in " ".join(heedful_cli("see", saved, "--layer", "1").out.split())


def test_several_models(heedful_cli: Run, tiny: Path, transformer: Path, tmp_path: Path) -> None:
    path, saved = tmp_path / "two.svg", tmp_path / "two.json"
    out = heedful_cli("see", tiny, "a b", "--with", transformer, "--target", "A B", "--view", "braid", "--to", path).out
    assert out == f"{tiny}: A B\n{transformer}: A B\n"  # both folders have one name
    out = heedful_cli("see", tiny, "a b", "--with", tiny, "--target", "A B", "--to", path).out
    assert out == f"{tiny.name}: A B\n{tiny.name} (2): A B\n"
    headings = [e.text for e in ElementTree.parse(path).getroot().iter() if e.get("class") == "h"]
    assert len(headings) == 2
    out = heedful_cli("see", tiny, "a b", "--with", transformer).out
    assert out.count("weight from:") == 2
    heedful_cli("see", tiny, "a b", "--with", transformer, "--to", saved)
    assert heedful_cli("see", saved).out == out


def test_ribbons_have_the_mass_that_is_asked_for(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    heedful_cli("see", tiny, "a b", "--view", "braid", "--mass", "0.4", "--to", path)
    assert "40\u00a0% of its" in path.read_text(encoding="utf-8")


def test_a_picture_that_is_too_large_says_so(
    heedful_cli: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.draw.views.LARGEST", 100)
    path = tmp_path / "a.svg"
    first, second = heedful_cli("see", tiny, "a b", "--to", path).err.splitlines()
    assert first == f"the picture is in {path}"
    assert second.endswith("or draw one sentence at a time")


def test_a_picture_as_png(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="pip install 'heedful[png]'")
    path = tmp_path / "a.png"
    assert heedful_cli("see", tiny, "a b", "--to", path).err == f"the picture is in {path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")
    done = heedful_cli("see", tiny, "a b", "--to", path, "--font", tmp_path / "none.ttf")
    assert (done.code, "there is no such file" in done.err) == (2, True)


def test_bad_traces(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    saved = tmp_path / "seen.json"
    heedful_cli("see", tiny, "a b", "--to", saved)
    for arguments, message in (
        ([saved, "a b"], "seen.json is a saved trace"),
        ([saved, "--target", "A"], "give no others"),
        ([saved, "--with", tiny], "give no others"),
        ([tiny], "there is no TEXT; give one after"),
        ([tmp_path / "none.json", "a"], "none.json"),
    ):
        done = heedful_cli("see", *arguments)
        assert (done.code, message in done.err) == (2, True), done.err
    saved.write_text(saved.read_text(encoding="utf-8").replace('"log_probs": [', '"log_probs": [1, '), encoding="utf-8")
    assert "log_probs: expected a number for each of the 2 target tokens, found 3" in heedful_cli("see", saved).err


def test_unknown_words_are_said(heedful_cli: Run, tiny: Path) -> None:
    assert "1 unknown word," in heedful_cli("see", tiny, "a ज").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--self"], "has no self-attention"),
        (["a", "--layer", "2"], "there is no layer 2; choose one from 1 to 1"),
        (["a", "--head", "0"], "there is no head 0; heads are counted from 1"),
        (["a", "--to", "a.pdf"], "a.pdf: pictures are written as .svg, .png, .html, .json"),
        (["a", "--view", "brade"], "unknown view 'brade'; choose one of braid, heads, heatmap, regions, self."),
        (["a", "--view", "braid"], "--view braid needs a file: add --to"),
        (["a", "--view", "self", "--target", "A"], "--self shows the attention within the source"),
        (["a", "--view", "braid", "--mass", "7", "--to", "x.svg"], "it is above 0 and at most 1"),
        (["a", "--to", "nowhere/a.svg"], "nowhere/a.svg: there is no folder nowhere"),
        (["a", "--self", "--target", "A"], "--self shows the attention within the source"),
        ([" "], "the text is blank"),
        (["a", "--target", ""], "the target is blank"),
    ],
)
def test_bad_looks(heedful_cli: Run, tiny: Path, arguments: list[str], message: str) -> None:
    code, out, err = heedful_cli("see", tiny, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_model_that_does_not_look(heedful_cli: Run, tmp_path: Path) -> None:
    out = train_tiny(tmp_path / "m", model={"family": "fixed"}, training={"steps": 2})
    assert "no attention weights" in heedful_cli("see", out, "a b").out
    assert heedful_cli("see", out, "a b", "--self").code == 2


def line_of(words: int) -> Text:
    text = " ".join("w" * words)
    spans = [(2 * i, 2 * i + 1) for i in range(words)] + [(len(text), len(text))]
    found = [Word("w", *span, i, i + 1) for i, span in enumerate(spans)]
    return Text(text, ("w",) * words + ("</s>",), tuple(spans), tuple(found))


def test_the_overview_of_a_long_sentence_has_panels() -> None:
    side = line_of(40)
    weights = np.zeros((2, 1, 41, 41), dtype=np.float32)
    weights[0, 0, np.arange(41), np.arange(41)] = 1
    weights[1, 0, :, 40] = 0.5
    weights[1, 0, :, 0] = 0.25
    table = overview(Trace(side, side, weights, np.zeros(41, dtype=np.float32)), width=60)
    assert max(map(len, table.splitlines())) <= 60
    panels = [panel.splitlines() for panel in table.split("\n\n")]
    assert len(panels) == 3
    numbers = [re.findall(r"\d+", panel[0]) for panel in panels]
    assert [n for panel in numbers for n in panel] == [str(n) for n in range(1, 42)]
    assert panels[1][1].split()[1:-1] == numbers[1]
    assert set(panels[1][2].split()[1:-1]) == {"41"}
    assert (panels[0][1].split()[-1], panels[0][2].split()[-1]) == ("100%", "50%")


def test_the_overview_of_nothing_is_nothing() -> None:
    side = line_of(2)
    assert overview(Trace(side, side, None, np.zeros(3, dtype=np.float32))) == ""


def test_nothing_is_drawn_without_attention(heedful_cli: Run, tmp_path: Path) -> None:
    fixed = train_tiny(tmp_path / "m", model={"family": "fixed"}, training={"steps": 5})
    done = heedful_cli("see", fixed, "a b", "--to", tmp_path / "x.svg")
    assert done.code == 2
    assert "no attention" in done.err
    assert not (tmp_path / "x.svg").exists()


def test_unknown_words_of_both_sides_are_said(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "p.tsv"
    pairs.write_text("a ज\tA ञ\n", encoding="utf-8")
    assert "2 unknown words, read as <unk>: ज, ञ" in heedful_cli("score", tiny, pairs).err
    assert "2 unknown words, read as <unk>: ज, ञ" in heedful_cli("see", tiny, "a ज", "--target", "A ञ").err


def test_what_the_words_depended_on_stands_beside_the_weights(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    done = heedful_cli("see", tiny, "a b c. c a.", "--check")

    for way, label in (("leave-one-out", "by how much less probable"), ("gradient × input", "the slope of a word")):
        assert re.search(
            rf"^{way}: rank correlation with the weights [+-]0\.\d\d, the same source word first \d+%$", done.err, re.M
        )
        assert f"\n{way}:\n" in done.out
        assert f"{way}: {label}" in " ".join(done.out.split())
    assert done.out.count("model: ") == 1
    assert (done.out.count("weight from:"), done.out.count("share from:")) == (1, 2)
    for ending in (".svg", ".html"):
        file = tmp_path / f"checked{ending}"
        done = heedful_cli("see", tiny, "a b c", "--check", "--to", file)
        assert done.out.count("\n") == 1
        told = re.findall("rank correlation with the weights .0...", done.err)
        texts = re.sub(r"</text>\s*<text[^>]*>", " ", file.read_text(encoding="utf-8"))
        assert len(told) == 2
        assert all(one in texts for one in told)
        assert texts.count("and what its words depend on</h1>" if ending == ".html" else "share in per cent") > 0
    record = tmp_path / "checked.json"
    assert heedful_cli("see", tiny, "a b c", "--check", "--to", record).code == 0
    saved = json.loads(record.read_text())
    assert saved["names"] == [tiny.name, "leave-one-out", "gradient × input"]
    rows = [np.array(trace["weights"])[0, 0] for trace in saved["traces"]]
    assert all(row.shape == rows[0].shape for row in rows)
    translator = heedful.load(tiny, "cpu")
    source, target = (saved["traces"][0][side]["text"] for side in ("source", "target"))
    np.testing.assert_allclose(rows[2], translator.influence(source, target, "gradient").tokens(), atol=1e-5)
    np.testing.assert_allclose(rows[2].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    "more", [["--self"], ["--with", "MODEL"], ["--layer", "1"], ["--head", "1"], ["--view", "heads"]]
)
def test_check_is_for_one_model_and_a_translation(heedful_cli: Run, tiny: Path, more: list[str]) -> None:
    done = heedful_cli("see", tiny, "a b", "--check", *(tiny if m == "MODEL" else m for m in more))
    assert done.code == 2
    assert "--check is for one model and a text, by its read-out" in done.err


def test_what_is_no_model_is_said_before_the_text_that_is_missing(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("a\tb\n", encoding="utf-8")
    for name, why in (("test.tsv", "this is a file, expected a model folder"), ("none", "there is no such model")):
        done = heedful_cli("see", tmp_path / name)
        assert (done.code, f"{tmp_path / name}: {why}" in done.err) == (2, True)
