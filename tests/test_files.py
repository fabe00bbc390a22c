"""Files are written completely or not at all, under the name the user gave."""

from __future__ import annotations

import errno
import os

import pytest

from widemargin.files import atomic_file, atomic_folder, check_file_target


def test_errors_name_the_target_and_leave_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught, atomic_file(tmp_path / "a.txt") as file:
        file.write(b"x")
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError) as missing, atomic_folder(tmp_path / "no" / "store"):
        pass
    assert missing.value.filename == str(tmp_path / "no" / "store")


def test_errors_of_the_block_keep_their_own_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_file(tmp_path / "a.txt"):
        (tmp_path / "other").read_bytes()
    assert caught.value.filename == str(tmp_path / "other")


def test_links_to_files_and_folders_stay(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_file").symlink_to("file")
    (tmp_path / "to_folder").symlink_to("folder")
    with atomic_file(tmp_path / "to_file") as file:
        file.write(b"new")
    with atomic_folder(tmp_path / "to_folder", overwrite=True) as folder:
        (folder / "content").write_bytes(b"new")
    assert (tmp_path / "to_file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "to_folder").is_symlink()
    assert (tmp_path / "folder" / "content").read_bytes() == b"new"


def test_devices_are_written_to(tmp_path):
    check_file_target(os.devnull)
    with atomic_file(os.devnull) as file:
        file.write(b"x")
    assert not os.path.isfile(os.devnull)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="this is a folder"), atomic_file(tmp_path):
        pass
