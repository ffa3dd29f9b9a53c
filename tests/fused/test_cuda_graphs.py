"""Which steps are recorded, on the CPU: what is played again there is the work itself, on the places it was given."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.fused.cuda_graphs import WARM, GraphedFunction


class Played(GraphedFunction):
    """A recorder whose graphs are calls; `told` says what was done how."""

    def __init__(self, most: int) -> None:
        self.told: list[tuple[str, int]] = []
        self.sum = torch.zeros(())
        super().__init__(self._work, pool=object(), most=most)

    def _work(self, x: Tensor) -> None:
        self.told.append(("worked", len(x)))
        self.sum += x.sum()

    def _capture(self, inputs: tuple[Tensor, ...]) -> tuple[Played.Graph, list[Tensor]]:
        (place,) = (t.clone() for t in inputs)
        self.told.append(("recorded", len(place)))
        return Played.Graph(self, place), [place]

    class Graph:
        def __init__(self, whose: Played, place: Tensor) -> None:
            self.whose, self.place = whose, place

        def replay(self) -> None:
            self.whose.told.append(("played", len(self.place)))
            self.whose.sum += self.place.sum()


def test_from_the_third_time_on_it_is_played() -> None:
    recorder = Played(most=8)
    for value in (1.0, 2.0, 4.0, 8.0):
        recorder(torch.full((3,), value))
    assert WARM == 2
    assert recorder.told == [("worked", 3), ("worked", 3), ("recorded", 3), ("played", 3), ("played", 3)]
    assert recorder.sum == 3 * (1 + 2 + 4 + 8)  # each with its own numbers, not with those that were recorded


@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_there_is_a_limit_and_beyond_it_work_is_done_all_the_same(most: int) -> None:
    recorder = Played(most)
    turns, shapes = 10, range(1, 5)
    for _ in range(turns):
        for n in shapes:
            recorder(torch.ones(n))
    kept = min(most, len(shapes))
    assert [shape.numel() for (shape,) in recorder.graphs] == list(shapes)[:kept]  # those that came first
    assert recorder.told.count(("played", 1)) == (turns - WARM if most else 0)
    assert recorder.told.count(("worked", 4)) == (WARM if most >= 4 else turns)
    assert sum(what == "recorded" for what, _ in recorder.told) == kept  # once each, however many come in turns
    assert recorder.sum == turns * sum(shapes)
    assert not recorder.calls or most > len(shapes)  # nor is there a growing list of those that are not recorded


def test_what_was_recorded_can_be_let_go_of() -> None:
    recorder = Played(most=1)
    for _ in range(3):
        recorder(torch.ones(2))
    recorder.close()
    assert not recorder.graphs
    recorder(torch.ones(5))
    assert recorder.told[-1] == ("worked", 5)
