"""Where a run's pairs come from: the record of it, and the way back."""

import json
import subprocess
import sys

import pytest

from heedful.data import PairFile, PairList
from heedful.errors import ConfigError
from heedful.training import Inputs


def test_a_record_gives_the_inputs_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = Inputs(
        (PairFile("a.tsv", columns="2,1"), PairFile("-", "jsonl", "en,hi"), PairFile("x.en", target="x.hi")),
        (PairFile("b.csv"),),
    )
    record = json.loads(json.dumps(inputs.absolute()))
    here = str(tmp_path.resolve())
    assert [file["path"] for file in record["training"]] == [f"{here}/a.tsv", "-", f"{here}/x.en"]
    assert Inputs.recorded(record) == Inputs(
        (
            PairFile(f"{here}/a.tsv", columns="2,1"),
            PairFile("-", "jsonl", "en,hi"),
            PairFile(f"{here}/x.en", target=f"{here}/x.hi"),
        ),
        (PairFile(f"{here}/b.csv"),),
    )


def test_pairs_in_memory_leave_no_record():
    assert Inputs((PairList([("a", "b")]),)).absolute() == {}
    assert Inputs((PairFile("a.tsv"),), (PairList([("a", "b")]),)).absolute() == {}


@pytest.mark.parametrize("record", [{}, {"pairs": ["a.tsv"], "columns": "1,2", "source": None}])
def test_records_that_are_not_of_files(record):
    assert Inputs.recorded(record) is None


@pytest.mark.parametrize(
    ("training", "valid"),
    [
        ([PairFile("-"), PairFile("-")], []),
        ([PairFile("-")], [PairFile("-")]),
        ([PairFile("-", target="y")], [PairFile("x", target="-")]),
    ],
)
def test_stdin_is_read_once(training, valid):
    with pytest.raises(ConfigError, match=r"standard input \(-\) can be read only once"):
        Inputs(tuple(training), tuple(valid))
    assert Inputs((PairFile("-"),)).piped
    assert not Inputs((PairFile("a.tsv"),)).piped


def test_reading_needs_no_torch(environment):
    script = "import sys, heedful.data; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"
