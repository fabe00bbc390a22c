"""File system failures for models and stores: full, read-only, files removed, replaced or truncated while mapped."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import pytest

from widemargin import OneVsAllClassifier, load, save
from widemargin.data.store import open_store, write_store
from widemargin.exceptions import ModelFormatError

N_FEATURES = 5_000  # 120 KB of weights: many pages
NOBODY = 65534


def make_model(seed):
    rng = np.random.default_rng(seed)
    return OneVsAllClassifier(C=0.01).fit(rng.normal(size=(9, N_FEATURES)), np.arange(9) % 3)


@pytest.fixture(scope="module")
def models():
    return make_model(0), make_model(1)


@pytest.fixture
def rows():
    return np.random.default_rng(2).normal(size=(5, N_FEATURES))


@pytest.fixture
def small_disk():
    """No file can grow above 64 KB, as on a full disk; Python turns the signal that comes with it into EFBIG."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_reported_and_the_previous_model_stays(models, rows, tmp_path, request):
    save(models[0], tmp_path / "m")
    before = sorted(os.listdir(tmp_path / "m"))
    request.getfixturevalue("small_disk")
    with pytest.raises(OSError, match=r"could not be written .*an existing model there is unchanged") as caught:
        save(models[1], tmp_path / "m")
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == before
    np.testing.assert_array_equal(load(tmp_path / "m").decision_function(rows), models[0].decision_function(rows))


def test_a_full_disk_leaves_no_part_of_a_store(rows, tmp_path, request):
    write_store(tmp_path / "s", rows[:, :10])
    request.getfixturevalue("small_disk")
    for overwrite, name in ((True, "s"), (False, "new")):
        with pytest.raises(OSError, match="File too large") as caught:
            write_store(tmp_path / name, rows, overwrite=overwrite)
        assert caught.value.filename == str(tmp_path / name), "the folder that was asked for, not a temporary one"
    assert os.listdir(tmp_path) == ["s"]
    np.testing.assert_array_equal(open_store(tmp_path / "s", verify=True).X, rows[:, :10])


def test_a_read_only_folder_is_reported_and_its_model_stays(models, rows):
    # A separate folder, because pytest's are closed to other users; and a process that is not the superuser.
    folder = tempfile.mkdtemp()
    try:
        save(models[0], f"{folder}/m")
        os.chmod(folder, 0o755)
        os.chmod(f"{folder}/m", 0o555)
        child = os.fork()
        if child == 0:
            os._exit(_try_to_save(models[1], f"{folder}/m"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EACCES
        np.testing.assert_array_equal(load(f"{folder}/m").predict(rows), models[0].predict(rows))
        assert not [name for name in os.listdir(f"{folder}/m") if "tmp" in name]
    finally:
        os.chmod(f"{folder}/m", 0o755)
        shutil.rmtree(folder)


def _try_to_save(model, folder):
    """The errno of the error, if its message is right."""
    try:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        save(model, folder)
    except OSError as error:
        return error.errno if "could not be written" in str(error) and folder in str(error) else 99
    return 0


def test_a_model_whose_files_are_removed_keeps_predicting(models, rows, tmp_path):
    save(models[0], tmp_path / "m")
    model = load(tmp_path / "m")
    assert isinstance(model.coef_, np.memmap)
    shutil.rmtree(tmp_path / "m")
    np.testing.assert_array_equal(model.decision_function(rows), models[0].decision_function(rows))


def test_a_replaced_model_keeps_predicting_as_before(models, rows, tmp_path):
    save(models[0], tmp_path / "m")
    model = load(tmp_path / "m")
    save(models[1], tmp_path / "m")
    np.testing.assert_array_equal(model.decision_function(rows), models[0].decision_function(rows))
    np.testing.assert_array_equal(load(tmp_path / "m").decision_function(rows), models[1].decision_function(rows))


def test_a_model_cut_between_two_loads_is_refused(models, tmp_path):
    save(models[0], tmp_path / "m")
    (coef,) = (tmp_path / "m").glob("coef-*.npy")
    os.truncate(coef, coef.stat().st_size // 2)
    for verify in (True, False):
        with pytest.raises(ModelFormatError, match=r"must be \d+ bytes long; got"):
            load(tmp_path / "m", verify=verify)


@pytest.mark.slow
def test_a_command_says_that_a_file_was_cut_while_in_use(models, tmp_path):
    save(models[0], tmp_path / "m")
    (coef,) = (tmp_path / "m").glob("coef-*.npy")
    program = """
        import os, sys
        import numpy as np
        from widemargin import _core, load
        _core.explain_bus_errors()  # as `widemargin` does before a command
        model = load(sys.argv[1])
        os.truncate(sys.argv[2], 0)
        model.decision_function(np.ones((1, model.n_features_in_)))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "m"), str(coef)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "was cut short, or its disk failed, while it was in use; restore it" in done.stderr


def test_files_of_a_model_are_not_writable_by_more_people_than_others(models, tmp_path):
    save(models[0], tmp_path / "m")
    (tmp_path / "plain").write_bytes(b"")
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()} == {usual}
