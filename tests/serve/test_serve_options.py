"""Every limit of the service can be set where it is started."""

from __future__ import annotations

import inspect
from dataclasses import fields

from heedful.cli.serve import serve
from heedful.serve.limits import Limits

NAMES = {"beam": "max_beam", "batches": "lanes"}  # --beam is a setting of decoding


def test_every_limit_has_an_option_with_the_same_default() -> None:
    options = inspect.signature(serve).parameters
    found = {each.name: options[NAMES.get(each.name, each.name)].default for each in fields(Limits)}
    assert found == {each.name: each.default for each in fields(Limits)}
