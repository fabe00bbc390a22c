"""Arrays that share the memory of shorter ones: none of them ever changes, whatever is appended in which order."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.estimators.one_vs_all.growing import ROOM_SHARE, appended, concatenated

SIZE = 800


@pytest.fixture
def old():
    return concatenated([np.arange(500, dtype=np.float32), np.arange(500, SIZE, dtype=np.float32)])


def values(*more):
    return np.concatenate([np.arange(SIZE, dtype=np.float32), *more])


def test_parts_are_joined(old):
    np.testing.assert_array_equal(old, values())
    assert old.dtype == np.float32
    assert concatenated([np.ones(1, np.float32), np.ones(1)]).dtype == np.float64
    many = concatenated([np.array([number]) for number in range(300)])
    assert many.tolist() == list(range(300))


def test_an_array_takes_the_room_behind_another(old):
    ones, twos = np.ones(10, np.float32), np.full(20, 2, np.float32)
    longer = appended(old, ones)
    longest = appended(longer, twos)
    assert np.shares_memory(old, longer)
    assert np.shares_memory(old, longest)
    np.testing.assert_array_equal(longest, values(ones, twos))
    np.testing.assert_array_equal(longer, values(ones))
    np.testing.assert_array_equal(old, values())


def test_the_room_is_taken_once(old):
    ones, twos = np.ones(10, np.float32), np.full(20, 2, np.float32)
    first = appended(old, ones)
    second = appended(old, twos)
    assert not np.shares_memory(old, second)
    np.testing.assert_array_equal(first, values(ones))
    np.testing.assert_array_equal(second, values(twos))
    np.testing.assert_array_equal(old, values())
    assert np.shares_memory(second, appended(second, ones))  # the copy has room of its own


def test_the_room_of_an_array_that_is_gone_is_free_again(old):
    longer = appended(old, np.ones(10, np.float32))
    part = longer[-5:]
    del longer
    assert not np.shares_memory(old, appended(old, np.zeros(10, np.float32)))  # a part of it is still there
    np.testing.assert_array_equal(part, 1)
    del part
    again = appended(old, np.full(10, 3, np.float32))
    assert np.shares_memory(old, again)
    np.testing.assert_array_equal(again, values(np.full(10, 3)))


def test_values_outlive_the_arrays_before_them(old):
    longest = appended(appended(old, np.ones(10, np.float32)), np.ones(10, np.float32))
    del old
    np.testing.assert_array_equal(longest, values(np.ones(20)))
    np.testing.assert_array_equal(appended(longest, np.zeros(1, np.float32)), values(np.ones(20), [0]))


def test_a_full_room_and_other_types_make_copies(old):
    room = SIZE // ROOM_SHARE
    assert np.shares_memory(old, appended(old, np.ones(room, np.float32)))
    too_long = appended(old, np.ones(room + 1, np.float32))
    assert not np.shares_memory(old, too_long)
    np.testing.assert_array_equal(too_long, values(np.ones(room + 1)))
    wider = appended(old, np.ones(1))
    assert wider.dtype == np.float64
    assert not np.shares_memory(old, wider)


def test_views_are_extended_as_what_they_show(old):
    more = np.ones(10, np.float32)
    whole = old[:]
    assert np.shares_memory(old, appended(whole, more))
    for part in (old[:-1], old[1:], old[::2], old[::-1]):
        found = appended(part, more)
        assert not np.shares_memory(old, found)
        np.testing.assert_array_equal(found, np.concatenate([part, more]))
    np.testing.assert_array_equal(appended(old.view(np.int32), more.view(np.int32)).view(np.float32), values(more))


def test_arrays_are_read_only_and_copied_without_room(old):
    with pytest.raises(ValueError, match="read-only"):
        old[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        old.setflags(write=True)
    for twin in (copy.copy(old), copy.deepcopy(old), pickle.loads(pickle.dumps(old))):
        np.testing.assert_array_equal(twin, values())
        assert not np.shares_memory(twin, old)
    assert len(pickle.dumps(old)) < 4 * SIZE + 500
    matrix = sp.csr_array((2, SIZE), dtype=np.float32)
    matrix.data, matrix.indices = old, concatenated([np.arange(SIZE, dtype=np.int32)])
    matrix.indptr = np.array([0, 500, SIZE], dtype=np.int32)
    matrix.prune()
    np.testing.assert_array_equal(matrix.toarray()[0, :500], old[:500])


def test_threads_do_not_share_the_room():
    for _ in range(50):
        old, found, ready = concatenated([np.arange(SIZE)]), [None] * 4, threading.Barrier(4)

        def append(number, old=old, found=found, ready=ready):
            ready.wait()
            found[number] = appended(old, np.full(50, number))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, array in enumerate(found):
            np.testing.assert_array_equal(array, np.append(np.arange(SIZE), np.full(50, number)))
        assert sum(np.shares_memory(old, array) for array in found) == 1
