"""Scores: those of sacrebleu, shared out by length."""

import socket
import urllib.error
import urllib.request

import metric_samples
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import ConfigError, DataError, ModelError
from heedful.metrics import EDGES, bleu, by_length, check_tokenizer, extract_stats

OUTPUTS = metric_samples.OUTPUTS[:6]
REFERENCES = [several[0] for several in metric_samples.REFERENCES[:6]]
LENGTHS = [5, 6, 10, 11, 41, 0]

VOCABULARY = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "मैं", "घर", "."]), max_size=8).map(" ".join)
CASES = st.lists(st.tuples(st.integers(0, 60), VOCABULARY, VOCABULARY), min_size=1, max_size=12)


def expected(outputs, references):
    return sacrebleu.corpus_bleu(outputs, [references]).score, sacrebleu.corpus_chrf(outputs, [references]).score


def test_bleu_is_sacrebleu():
    assert bleu(OUTPUTS, REFERENCES) == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score)
    assert 10 < bleu(OUTPUTS, REFERENCES) < 90  # neither end, where many mistakes agree


def test_bleu_by_hand():
    # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 fours; as long as the reference.
    assert bleu(["a b c d x f"], ["a b c d e f"]) == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_bleu_sees_case_and_order():
    assert bleu(["a b c d e"], ["A B C D E"]) < 1
    assert bleu(["a b c d e"], ["a b c d e f g h"]) < bleu(["a b c d e f g"], ["a b c d e f g h"])  # brevity


@given(CASES)
@settings(max_examples=40, deadline=None)
def test_rows_share_out_all_sentences(cases):
    lengths, outputs, references = map(list, zip(*cases, strict=True))
    table = by_length(lengths, outputs, references)
    assert table.total.pairs == len(cases) == sum(r.pairs for r in table.rows)
    assert (table.total.bleu, table.total.chrf) == pytest.approx(expected(outputs, references))
    lows = [r.low for r in table.rows]
    assert lows == sorted(set(lows))
    for row in table.rows:
        high = row.high or 10**9
        chosen = [c for c in cases if row.low <= max(c[0], 1) <= high]
        assert row.pairs == len(chosen) > 0
        assert (row.bleu, row.chrf) == pytest.approx(expected([c[1] for c in chosen], [c[2] for c in chosen]))
        assert row.exact == pytest.approx(100 * sum(c[1].split() == c[2].split() for c in chosen) / len(chosen))


def test_rows_by_hand():
    table = by_length(LENGTHS, OUTPUTS, REFERENCES)
    assert [(r.low, r.high, r.pairs) for r in table.rows] == [(1, 5, 2), (6, 10, 2), (11, 15, 1), (41, None, 1)]
    assert [r.exact for r in table.rows] == [50, 0, 0, 0]
    assert table.total.exact == pytest.approx(100 / 6)
    assert (table.total.low, table.total.high) == (1, None)


@pytest.mark.parametrize("edge", EDGES[1:])
def test_both_sides_of_an_edge(edge):
    table = by_length([edge - 1, edge], ["a", "a"], ["a", "b"])
    assert [(r.high, r.exact) for r in table.rows[:1]] == [(edge - 1, 100)]
    assert [(r.low, r.exact) for r in table.rows[1:]] == [(edge, 0)]


@pytest.mark.parametrize(
    ("output", "reference", "same"),
    [
        ("a b", "a b", True),
        (" a\u00a0 b\n", "a b", True),
        ("", "  ", True),
        ("a b", "ab", False),
        ("A", "a", False),
        ("a.", "a", False),
        # A codec writes NFC; a reference may be typed in another form.
        ("ज\u093c", "\u095b", True),
        ("caf\u00e9", "cafe\u0301", True),
    ],
)
def test_exact_match(output, reference, same):
    assert by_length([1], [output], [reference]).total.exact == (100 if same else 0)


def test_signatures_say_what_was_measured():
    table = by_length(LENGTHS, OUTPUTS, REFERENCES)
    assert table.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert table.chrf_signature == (f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}")


def test_nothing_to_score():
    with pytest.raises(DataError) as caught:
        by_length([], [], [])
    assert str(caught.value) == "there is nothing to score: no sentences"
    with pytest.raises(DataError):
        bleu([], [])


@pytest.mark.parametrize(("outputs", "references"), [(["a"], ["a", "b"]), (["a", "b"], ["a"])])
def test_unequal_numbers_are_refused(outputs, references):
    words = f"{len(outputs)} translations for {len(references)} references"
    with pytest.raises(DataError, match=words):
        by_length([1] * len(outputs), outputs, references)
    with pytest.raises(DataError, match=words):
        bleu(outputs, references)


def test_a_wrong_number_of_lengths_is_said():
    with pytest.raises(DataError) as caught:
        by_length([1, 2, 3], ["a", "b"], ["a", "b"])
    assert "3" in str(caught.value)  # "2 translations for 2 references" is no mistake


def test_scripts_without_spaces_are_scored_without_them():
    chinese = ["我今天早上去学校学习汉语", "他每天晚上都在家里看电影"]
    assert bleu(chinese, chinese) == 100.0
    table = by_length([1, 1], chinese, chinese)
    assert "tok:zh" in table.bleu_signature
    assert "tok:char" in by_length([1], ["わたしは学生です"], ["わたしは学生です"]).bleu_signature
    assert "tok:13a" in by_length([1], ["I like 北京 very much"], ["I like 北京 very much"]).bleu_signature


def test_the_tokenizer_of_bleu_is_chosen():
    output, reference = ["Hello, world! It costs $5.00 (five)."], ["Hello world! It costs $5,00 (five)."]
    for name in ("13a", "intl", "char", "none", "zh"):
        theirs = sacrebleu.corpus_bleu(output, [reference], tokenize=name).score
        assert bleu(output, reference, tokenize=name) == pytest.approx(theirs, abs=1e-9)
        signatures = extract_stats(output, reference, ["bleu", "ter"], tokenize=name).signatures
        assert f"|tok:{name}|" in signatures["bleu"]
        assert "|tok:tercom|" in signatures["ter"]
    assert bleu(output, reference, "none") < bleu(output, reference) < bleu(output, reference, "char")
    chinese = extract_stats(["我今天早上"], ["我今天早上"], ["bleu", "ter"], tokenize="13a").signatures
    assert "|tok:13a|" in chinese["bleu"], "what is chosen is used, whatever the script"
    assert "|tok:zh+tercom|" in chinese["ter"]
    with pytest.raises(ConfigError, match="unknown tokenizer '14a'.*Did you mean '13a'"):
        bleu(output, reference, "14a")


@pytest.fixture
def flores(monkeypatch, tmp_path):
    """The file of the model of flores200, and a list of what was downloaded; downloads fail."""
    import sacrebleu.utils
    from sacrebleu.tokenizers import tokenizer_spm

    for module in (sacrebleu.utils, tokenizer_spm):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(tmp_path))
    asked = []

    def no_network(url):
        asked.append((url, socket.getdefaulttimeout()))
        raise urllib.error.URLError("no network here")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    url = tokenizer_spm.SPM_MODELS["flores200"]["url"]
    return tmp_path / "models" / url.rpartition("/")[2], asked


def test_flores200_needs_a_model(flores):
    path, asked = flores
    for _ in range(2):  # what a failed download leaves is no model
        with pytest.raises(ModelError, match=f"cannot be downloaded.*no network here.*{path}"):
            check_tokenizer("flores200")
    assert [seconds for _, seconds in asked] == [30.0, 30.0]
    assert socket.getdefaulttimeout() is None
    path.write_bytes(b"not a model")
    with pytest.raises(ModelError, match=f"{path}: this is not .*remove it"):
        bleu(["a"], ["a"], "flores200")


def test_flores200_is_sacrebleus(flores):
    sentencepiece = pytest.importorskip("sentencepiece")
    path, asked = flores
    path.parent.mkdir()
    lines = ["the small house is old", "an old house", "a small book", "the book is new"] * 5
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=24, hard_vocab_limit=False, minloglevel=2
        )
    output, reference = ["the small house was old"], ["the small house is very old"]
    theirs = sacrebleu.corpus_bleu(output, [reference], tokenize="flores200").score
    assert bleu(output, reference, "flores200") == pytest.approx(theirs, abs=1e-9)
    stats = extract_stats(output, reference, ["bleu"], tokenize="flores200")
    assert "|tok:flores200|" in stats.signatures["bleu"]
    assert not asked
