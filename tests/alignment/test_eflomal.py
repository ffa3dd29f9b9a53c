"""Calling eflomal: a program of the same form stands in for it."""

import sys

import pytest

from heedful.alignment import eflomal_directions
from heedful.errors import ConfigError, MachineError

PROGRAM = """#!{python}
import sys
from pathlib import Path
files = dict(zip(sys.argv[1::2], sys.argv[2::2]))
source, target = (Path(files[k]).read_text(encoding="utf-8").splitlines() for k in ("-s", "-t"))
{fault}
assert len(source) == len(target) and all(source) and all(target), source
Path(files["-f"]).write_text("".join(f"0-{{len(y.split()) - 1}}\\n" for y in target))
Path(files["-r"]).write_text("".join(f"{{len(x.split()) - 1}}-0\\n" for x in source)[{cut}:])
"""


@pytest.fixture
def program(tmp_path):
    def make(fault="", cut=0):
        path = tmp_path / "eflomal-align"
        path.write_text(PROGRAM.format(python=sys.executable, fault=fault, cut=cut))
        path.chmod(0o755)
        return str(path)

    return make


def test_lines_are_matched_again(program):
    found = eflomal_directions(
        ["a b", "", "A\u2003b c", "x"], ["u v w", "u", "v", " "], extra=[("e", "f"), ("", "g")], program=program()
    )
    assert list(found) == [(0, {(0, 2)}, {(1, 0)}), (2, {(0, 0)}, {(2, 0)})]
    assert list(eflomal_directions([""], [""], program=program())) == []


def test_without_the_program_it_says_how_to_get_it():
    with pytest.raises(ConfigError, match="eflomal-nowhere was not found.*pip install eflomal"):
        list(eflomal_directions(["a"], ["b"], program="eflomal-nowhere"))


def test_what_it_says_when_it_fails_is_passed_on(program):
    with pytest.raises(MachineError, match="ended with status 3: out of luck"):
        list(eflomal_directions(["a"], ["b"], program=program("print('out of luck', file=sys.stderr); sys.exit(3)")))
    with pytest.raises(MachineError, match="wrote 1 and 0 lines for 1 sentence pairs"):
        list(eflomal_directions(["a"], ["b"], program=program(cut=4)))
