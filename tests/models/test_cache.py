"""The Transformer's cache: room that grows, rows that are selected, and gradients, all without a change in the result.

Memory that nobody has written yet is NaN here, so that nobody reads it unnoticed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_networks import filled
from torch import Tensor

from heedful.attention import until
from heedful.config import TransformerConfig
from heedful.errors import ShapeError
from heedful.models import Memory, Network, build
from heedful.models.transformer import FIRST, POSITIONS, Cache

V, B, S = 9, 3, 4


@pytest.fixture(autouse=True)
def poisoned():
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    assert bool(torch.empty(3).isnan().all())
    yield
    torch.use_deterministic_algorithms(False)


def make(**own: object) -> tuple[Network, Memory]:
    torch.manual_seed(0)
    model = build(TransformerConfig(layers=2, width=8, heads=2, inner=8, **own), V, V).double().eval()
    x = torch.randint(1, V, (B, S))
    return model, model.encode(x, until(torch.tensor([4, 2, 3])))


def words(T: int, rows: int = B) -> Tensor:
    return torch.randint(1, V, (rows, T), generator=torch.Generator().manual_seed(3))


def one_by_one(model: Network, memory: Memory, y: Tensor, state: Cache) -> Tensor:
    found = []
    for word in y.split(1, dim=1):
        step = model.step(word, state, memory)
        state = step.state
        found.append(step.hidden)
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("T", [1, FIRST, FIRST + 1, 2 * FIRST + 1])
@torch.no_grad()
def test_room_grows_unnoticed(T):
    (model, memory), y = make(), words(T)
    whole = model.step(y, model.start(memory, T), memory).hidden
    torch.testing.assert_close(one_by_one(model, memory, y, model.start(memory, T)), whole)
    torch.testing.assert_close(one_by_one(model, memory, y, model.start(memory, T + 50)), whole)


@torch.no_grad()
def test_room_is_doubled_and_never_more_than_will_be_used():
    (model, memory), y = make(), words(70)
    state, sizes, places = model.start(memory, 70), [], set()
    for word in y.split(1, dim=1):
        state = model.step(word, state, memory).state
        sizes.append(state.buffer.shape[4])
        places.add(state.buffer.data_ptr())
    assert sizes == [32] * 32 + [64] * 32 + [70] * 6
    assert len(places) == 3  # a word is written into its place; nothing else is moved


@torch.no_grad()
def test_a_small_room_for_few_words():
    model, memory = make()
    state = model.step(words(2), model.start(memory, 5), memory).state
    assert state.buffer.shape == (2, 2, B, 2, 5, 4)


@torch.no_grad()
def test_a_long_prefix_makes_its_room_at_once():
    (model, memory), y = make(), words(50)
    whole = model.step(y, model.start(memory, 50), memory).hidden
    first = model.step(y[:, :45], model.start(memory, 90), memory)
    assert first.state.buffer.shape[4] == 45
    rest = one_by_one(model, memory, y[:, 45:], first.state)
    torch.testing.assert_close(torch.cat([first.hidden, rest], dim=1), whole)


# More rows, fewer rows, the same row twice; before the room grows, at its end and after it.
SELECTIONS = [
    (1, [0, 0, 1, 1, 2, 2]),
    (5, [5, 4, 3, 2, 1, 0]),
    (6, [1, 1]),
    (7, [0, 1, 1, 0, 1]),
    (FIRST - 1, [4, 0, 2]),
    (FIRST, [2, 2, 1, 0]),
    (FIRST + 1, [3, 1]),
    (2 * FIRST, [0, 1, 0, 1, 0]),
]


def selected(model: Network, memory: Memory, T: int) -> tuple[Tensor, Tensor]:
    """Read words one by one with all selections; the last hidden states, and the same from reading each row alone."""
    state, sentence, read = model.start(memory, T + 9), torch.arange(B), words(0)
    at = dict(SELECTIONS)
    pick = torch.Generator().manual_seed(4)
    for t in range(T):
        if t in at:
            rows = torch.tensor(at[t])
            state, sentence, read = state.select(rows), sentence[rows], read[rows]
        word = torch.randint(1, V, (len(sentence), 1), generator=pick)
        step = model.step(word, state, memory.select(sentence))
        state, read = step.state, torch.cat([read, word], dim=1)
    alone = memory.select(sentence)
    return step.hidden[:, -1], model.step(read, model.start(alone, T), alone).hidden[:, -1]


@pytest.mark.parametrize("T", [2, 6, 7, 8, FIRST, FIRST + 1, FIRST + 2, 2 * FIRST + 2])
@torch.no_grad()
def test_selected_rows_keep_their_past(T):
    model, memory = make()
    got, wanted = selected(model, memory, T)
    torch.testing.assert_close(got, wanted)


@torch.no_grad()
def test_selecting_takes_turns_between_two_rooms():
    (model, memory), y = make(), words(12)
    state, rooms = model.start(memory, 20), []
    for word in y.split(1, dim=1):
        state = model.step(word, state, memory).state.select(torch.tensor([2, 0, 1]))
        rooms.append(state.buffer)  # held, so that its place is not given to a new one
    assert len({room.data_ptr() for room in rooms}) == 2


@torch.no_grad()
def test_rows_can_be_selected_before_the_first_word():
    (model, memory), rows = make(), torch.tensor([0, 0, 2])
    got = one_by_one(model, memory.select(rows), words(4), model.start(memory, 6).select(rows))
    wanted = model.step(words(4), model.start(memory, 4), memory.select(rows)).hidden
    torch.testing.assert_close(got, wanted)


# Gradients


def gradient(model: Network, hidden: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(hidden.square().sum(), list(model.parameters()), retain_graph=True))


def test_with_gradients_the_words_are_strung_together():
    model, _ = make()
    x, y, T = torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]), words(FIRST + 3), FIRST + 3
    memory = model.encode(x, x > 0)
    whole = model.step(y, model.start(memory, T), memory).hidden
    steps = one_by_one(model, memory, y, model.start(memory, T + 2))
    torch.testing.assert_close(steps, whole)
    torch.testing.assert_close(gradient(model, steps), gradient(model, whole))


def test_with_gradients_rows_can_be_selected():
    (model, memory), y, rows = make(), words(5), torch.tensor([2, 0, 0, 1])
    state = model.step(y[:, :2], model.start(memory, 9), memory).state.select(rows)
    steps = one_by_one(model, memory.select(rows), y[rows, 2:], state)
    wanted = model.step(y[rows], model.start(memory, 5), memory.select(rows)).hidden[:, 2:]
    torch.testing.assert_close(steps, wanted)
    torch.testing.assert_close(gradient(model, steps), gradient(model, wanted))


def test_a_prefix_without_gradients_is_not_forgotten_with_them():
    (model, memory), y = make(), words(6)
    with torch.no_grad():
        state = model.step(y[:, :3], model.start(memory, 9), memory).state
    wanted = model.step(y, model.start(memory, 6), memory).hidden[:, 3:]
    torch.testing.assert_close(one_by_one(model, memory, y[:, 3:], state), wanted)


def test_layers_that_do_not_learn_remember_too():
    (model, memory), y = make(tied="none"), words(6)
    model.requires_grad_(False)
    model.decoder[1].requires_grad_(True)
    memory = memory.select(torch.arange(B))
    wanted = model.step(y, model.start(memory, 6), memory).hidden
    torch.testing.assert_close(one_by_one(model, memory, y, model.start(memory, 9)), wanted)


# Beyond the end


@pytest.mark.parametrize("pieces", [(4, 1), (3, 2), (5,), (1, 1, 1, 1, 1)])
@torch.no_grad()
def test_more_words_than_were_announced_are_refused(pieces):
    model, memory = make()
    state = model.start(memory, 4)
    *first, last = words(5).split(list(pieces), dim=1)
    for piece in first:
        state = model.step(piece, state, memory).state
    with pytest.raises(ShapeError, match=" ?5 .* 4 "):
        model.step(last, state, memory)


@torch.no_grad()
def test_the_table_and_the_room_are_for_what_is_written_not_for_what_may_be() -> None:
    model, memory = make()
    state = model.start(memory, 10**6)
    for token in words(FIRST + 1).unbind(1):
        state = model.step(token[:, None], state, memory).state
    assert isinstance(state, Cache)
    assert state.buffer is not None
    assert state.table is not None
    assert state.buffer.shape[4] == 2 * FIRST
    assert len(state.table) == POSITIONS


def test_the_keys_of_padding_are_zero_and_stay_so() -> None:
    """So decoding need not mask them whenever sentences leave or join; a memory that does not say so is masked."""
    model = filled(TransformerConfig(layers=2, width=8, heads=2, inner=12), 11, V)
    x = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])
    with torch.inference_mode():
        memory = model.encode(x, x != 0)
        assert memory.zeroed
        wide, other = memory.pad_to(6), model.encode(x.flip(0), x.flip(0) != 0).pad_to(6)
        first = torch.tensor([0])
        for each in (memory.select(first + 1), wide, wide.join(other), wide.put(first, other.select(first))):
            assert each.zeroed
            for keys in each.keys:
                assert not keys.transpose(1, 2)[~each.keep].any()
                assert keys.transpose(1, 2)[each.keep].any()
        unknown = replace(memory, keys=tuple(keys.clone() for keys in memory.keys), zeroed=False)
        for keys in unknown.keys:
            keys[1, :, 2:] = float("nan")
        assert not other.join(replace(other, zeroed=False)).zeroed
        assert not other.put(first, replace(other.select(first), zeroed=False)).zeroed
        y = torch.tensor([[2], [2]])
        expected, masked = (model.step(y, model.start(each, 3), each).hidden for each in (memory, unknown))
    torch.testing.assert_close(masked, expected)
