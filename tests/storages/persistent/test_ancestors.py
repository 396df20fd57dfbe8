"""Chains of buffers of episodes: if one is changed, moved, damaged or lost, the others are read with what is left."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import Sequences
from storages.datasets import open_dataset
from storages.persistent import DamageError, PersistenceError, repair
from storages.persistent.episodes import episode_log
from storages.persistent.episodes.episode_manifest import Ancestor, EpisodeManifest
from storages.persistent.episodes.segment_store import SegmentStore
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.damage import flip
from tests.support.episodic import buffer

LENGTH, EACH = 9, 10
CHAIN = "abc"
A, B, C = (set(range(EACH * place, EACH * (place + 1))) for place in range(3))


def fill(storage: Any, first: int, episodes: int = EACH) -> None:
    """Store episodes of nine steps; each observation is the number of the episode, and the step in it."""
    for episode in range(first, first + episodes):
        for step in range(LENGTH):
            storage.insert_transition(
                {
                    OBS: np.array([[episode, step]], np.float32),
                    OBS2: np.array([[episode, step + 1]], np.float32),
                    DONE: np.array([[step == 0]]),
                    DONE2: np.array([[step == LENGTH - 1]]),
                    TRUNC2: np.array([[False]]),
                    ACT: np.array([[(episode + step) % 5]]),
                    REW: np.array([[episode * 100.0 + step]], np.float32),
                }
            )


def opened(directory: Path, size: int | None = 10_000, **given: Any) -> Any:
    return buffer(directory, num_envs=1, size=size, **given)


def make_chain(root: Path, size: int | None = 10_000) -> Path:
    for place, name in enumerate(CHAIN):
        storage = opened(root / name, size, **({"ancestor": root / CHAIN[place - 1]} if place else {}))
        fill(storage, place * EACH)
        storage.close()
    return root


def episodes_of(storage: Any) -> set[int]:
    """Return the numbers of the episodes of a buffer, each of which must be whole, by iteration and in batches."""
    found = set()
    for episode in storage.episodes():
        number = int(episode.observations[0, 0])
        assert len(episode) == LENGTH
        np.testing.assert_array_equal(episode.observations[:, 0], number)
        np.testing.assert_array_equal(episode.observations[:, 1], np.arange(LENGTH + 1))
        np.testing.assert_array_equal(episode.fields[REW][:, 0], number * 100 + np.arange(LENGTH))
        found.add(number)
    drawn = set()
    for batch in storage.generate_batches(40, 64):
        obs, obs2 = batch[OBS].numpy(), batch[OBS2].numpy()
        np.testing.assert_array_equal(obs2, obs + np.array([0, 1]))
        np.testing.assert_array_equal(batch[REW].numpy()[:, 0], obs[:, 0] * 100 + obs[:, 1])
        drawn |= set(obs[:, 0].astype(int).tolist())
    assert drawn == found
    assert len(storage) == LENGTH * len(found)
    return found


def held(directory: Path, **given: Any) -> set[int]:
    storage = opened(directory, **given)
    try:
        return episodes_of(storage)
    finally:
        storage.close()


def flip_a_chunk(directory: Path) -> None:
    flip(directory / "episodes" / "Reward" / "c.0.0", 16)


def flip_the_log(directory: Path) -> None:
    flip(next(directory.glob("*.segments")), 16)


def move(root: Path) -> Path:
    return Path(shutil.move(root, root.with_name("elsewhere")))


@pytest.fixture(params=["of this version", "of an earlier version"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Directories whose logs record the segments of their ancestors, and those of versions in which they did not."""

    def as_earlier(directory: Path, ancestor: Path, older: EpisodeManifest, *commit: int) -> list[Ancestor]:
        return [Ancestor(str(ancestor), *commit)]

    if request.param == "of an earlier version":
        monkeypatch.setattr(episode_log, "ancestors_from", as_earlier)
        facts_of = EpisodeManifest.facts
        monkeypatch.setattr(
            EpisodeManifest,
            "facts",
            lambda self: {
                name: fact
                for name, fact in facts_of(self).items()
                if name != "ancestors" or self.has_records_of_ancestors
            },
        )
    return str(request.param)


def test_a_whole_chain_is_read_from_its_end(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    assert held(root / "c") == held(root / "c", ancestor=root / "b") == held(root / "c", read_only=True) == A | B | C
    assert open_dataset(root / "c").steps == 3 * EACH * LENGTH
    assert not repair(root / "c").dropped


def test_an_ancestor_that_drops_its_oldest_episodes_takes_only_these_away(tmp_path: Path, version: str) -> None:
    root = tmp_path / "x"
    for place, name in enumerate("ab"):
        storage = opened(root / name, 90, **({"ancestor": root / "a"} if place else {}))
        fill(storage, place * EACH, 10 if name == "a" else 5)
        storage.close()
    # Bounded by 90 transitions, b has dropped the first five of a; a drops the next two.
    storage = opened(root / "a", 90)
    fill(storage, 50, 7)
    storage.close()
    with pytest.warns(UserWarning, match=r"18 transitions of its ancestors are not there any more"):
        assert held(root / "b", size=90) == {7, 8, 9, 10, 11, 12, 13, 14}
    with pytest.warns(UserWarning, match=r"18 transitions"):
        assert open_dataset(root / "b").steps == 8 * LENGTH
    assert "is missing" in "\n".join(repair(root / "b").dropped)
    assert held(root / "b", size=90) == {7, 8, 9, 10, 11, 12, 13, 14}
    assert not repair(root / "a").dropped


def test_a_child_goes_on_while_its_ancestor_drops_episodes(tmp_path: Path) -> None:
    older = opened(tmp_path / "a", 90)
    fill(older, 0)
    older.flush()
    # Four episodes of the child and its ancestor fit into memory.
    child = opened(tmp_path / "b", None, ancestor=tmp_path / "a", memory_bytes=9_000, sequences=Sequences(3))
    fill(child, 10, 30)
    assert not child._segment_cache.holds_all
    before = {int(episode.observations[0, 0]) for episode in child.episodes()}
    assert before == A | set(range(10, 40))
    fill(older, 100, 10)
    older.close()
    with pytest.warns(UserWarning, match="transitions of its ancestors"):
        batches = list(child.generate_batches(400, 32))
    seen = {number for batch in batches for number in batch[OBS][0, :, 0].int().tolist()}
    assert seen >= set(range(10, 40))
    assert {int(episode.observations[0, 0]) for episode in child.episodes()} == set(range(10, 40))
    assert len(child) == 30 * LENGTH
    fill(child, 40, 3)
    child.close()
    with pytest.warns(UserWarning, match="90 transitions"):
        again = opened(tmp_path / "b", None, memory_bytes=9_000, sequences=Sequences(3))
    assert len(again) == 33 * LENGTH
    again.close()


def test_a_child_whose_ancestor_was_emptied_keeps_its_own(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    storage = opened(root / "a")
    storage.reset()
    storage.close()
    with pytest.warns(UserWarning, match="90 transitions"):
        assert held(root / "c") == B | C


@pytest.mark.parametrize("how", ["without a name", "with ancestor="])
def test_a_chain_that_was_moved_together_is_read_at_its_new_place(how: str, tmp_path: Path) -> None:
    root = move(make_chain(tmp_path / "x"))
    assert held(root / "c", **({"ancestor": root / "b"} if how == "with ancestor=" else {})) == A | B | C
    assert held(root / "b") == A | B
    assert held(root / "c", read_only=True) == A | B | C


def test_a_copied_chain_reads_its_own_copies(tmp_path: Path) -> None:
    root = make_chain(tmp_path / "x")
    shutil.copytree(root, tmp_path / "copy")
    storage = opened(root / "a")
    storage.reset()
    storage.close()
    assert held(tmp_path / "copy" / "c") == A | B | C


def test_an_ancestor_that_was_moved_alone_is_named_by_its_new_place(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    shutil.move(root / "b", tmp_path / "there")
    with pytest.raises(PersistenceError, match=r"b, the ancestor of .*c, is missing; .*name its present place"):
        opened(root / "c")
    assert held(root / "c", ancestor=tmp_path / "there") == A | B | C
    # It is recorded.
    assert held(root / "c") == A | B | C


def test_a_child_that_was_moved_alone_finds_its_ancestors(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    shutil.move(root / "c", tmp_path / "deep" / "in" / "c")
    assert held(tmp_path / "deep" / "in" / "c") == A | B | C


def test_another_buffer_is_not_accepted_as_the_ancestor(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    other = opened(tmp_path / "other")
    fill(other, 70)
    other.close()
    with pytest.raises(PersistenceError, match=r"the ancestor of .*c is .*b, or where that was moved, not .*other"):
        opened(root / "c", ancestor=tmp_path / "other")
    with pytest.raises(PersistenceError, match="holds no episodes"):
        opened(root / "c", ancestor=tmp_path)
    # Another one in its place is not read either.
    shutil.rmtree(root / "b")
    shutil.copytree(tmp_path / "other", root / "b")
    if version == "of this version":
        with pytest.warns(UserWarning, match="90 transitions of its ancestors"):
            assert held(root / "c") == A | C
    else:
        with pytest.raises(PersistenceError, match="was changed"):
            opened(root / "c")
    repair(root / "c")
    assert held(root / "c") in (A | C, C)


@pytest.mark.parametrize("repaired", ["the child", "the ancestor"])
@pytest.mark.parametrize("harm", [flip_a_chunk, flip_the_log])
def test_damage_of_an_ancestor_is_named_and_a_repair_of_either_keeps_the_rest(
    harm: Callable[[Path], None], repaired: str, tmp_path: Path, version: str
) -> None:
    root = make_chain(tmp_path / "x")
    files = {path: path.read_bytes() for path in (root / "b").rglob("*") if path.is_file()}
    harm(root / "a")
    if harm is flip_a_chunk:
        with pytest.raises(DamageError, match=rf"a/episodes/.* is damaged.*repair\('{re.escape(str(root / 'c'))}'\)"):
            opened(root / "c")
    if repaired == "the child":
        whole = harm is flip_the_log and version == "of this version"
        assert bool(repair(root / "c").dropped) is not whole
        assert held(root / "c") == (A | B | C if whole else B | C)
        assert not repair(root / "c").dropped
        assert {path: path.read_bytes() for path in files} == files
    elif version == "of this version":
        assert repair(root / "a").dropped
        if harm is flip_a_chunk:
            with pytest.warns(UserWarning, match="90 transitions"):
                assert held(root / "c") == B | C
        else:
            # The child records which episodes are its own.
            assert held(root / "c") == A | B | C


@pytest.mark.parametrize("name", CHAIN[:2])
def test_an_ancestor_that_is_gone_is_named_and_dropped_by_a_repair_of_the_child(
    name: str, tmp_path: Path, version: str
) -> None:
    root = make_chain(tmp_path / "x")
    shutil.rmtree(root / name)
    with pytest.raises(PersistenceError, match=rf"{name}, .* ancestor of .*, is missing; restore it"):
        opened(root / "c")
    assert (
        f"{name}, an ancestor, is missing, with 90 transitions" in str(repair(root / "c"))
        or version != "of this version"
    )
    left = held(root / "c")
    assert left == ({"a": B, "b": A}[name] | C if version == "of this version" else left)
    assert left >= C
    assert not repair(root / "c").dropped


def test_damage_of_the_child_itself_keeps_what_it_has_from_its_ancestors(tmp_path: Path, version: str) -> None:
    root = make_chain(tmp_path / "x")
    flip_a_chunk(root / "c")
    with pytest.raises(DamageError, match=r"c/episodes"):
        opened(root / "c")
    assert repair(root / "c").dropped
    assert held(root / "c") == A | B
    storage = opened(root / "c")
    fill(storage, 40, 3)
    storage.close()
    assert held(root / "c") == A | B | {40, 41, 42}
    flip_the_log(root / "c")
    assert repair(root / "c").dropped
    assert held(root / "c") >= A | B


def test_an_ancestor_is_not_needed_any_more_once_its_episodes_were_dropped(tmp_path: Path) -> None:
    root = make_chain(tmp_path / "x", size=12 * LENGTH)
    storage = opened(root / "c", 12 * LENGTH)
    fill(storage, 50, 12)
    storage.close()
    shutil.rmtree(root / "a")
    shutil.rmtree(root / "b")
    assert held(root / "c", size=12 * LENGTH) == set(range(50, 62))


def test_a_child_of_which_only_the_manifest_was_written_records_its_ancestors_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = opened(tmp_path / "a")
    fill(storage, 0)
    storage.close()

    def killed(self: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SegmentStore, "_record_ancestors", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path / "b", ancestor=tmp_path / "a")
    assert held(tmp_path / "b", read_only=True) == A
    assert held(tmp_path / "b") == A
    assert held(tmp_path / "b", read_only=True) == A
