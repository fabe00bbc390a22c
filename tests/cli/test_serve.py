"""`widemargin serve` as a process: it answers requests and shuts down cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import uvicorn
from typer.testing import CliRunner

from widemargin import OneVsAllClassifier, pack, save
from widemargin.cli.__main__ import make_app

HANG_S = 600.0
"""The tests wait for answers, however slow the machine; this only ends what would never end."""


def _ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.loads(answer.read())


def _command(model, port):
    return [sys.executable, "-m", "widemargin.cli", "serve", str(model), "--port", str(port)]


@contextlib.contextmanager
def _running(command, **options):
    """The process of a service, and its port."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        said = process.stderr.readline()
        found = re.fullmatch(r"widemargin: listening at http://127\.0\.0\.1:(\d+); press Ctrl-C to stop\n", said)
        assert found, said + process.stderr.read()
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture
def folder(tmp_path):
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def service(folder):
    with _running(_command(folder, 0)) as running:
        yield running


@pytest.mark.slow
def test_a_served_model_answers_and_stops_on_request(service):
    process, port = service
    assert _ask(port, "/predict", {"rows": [[2.0]], "k": 1})["predictions"][0]["labels"] == ["yes"]
    with socket.create_connection(("127.0.0.1", port)) as half:  # a client that never finishes its request
        half.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        assert _ask(port, "/predict", {"rows": [[-2.0]], "k": 1})["predictions"][0]["labels"] == ["no"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=HANG_S) in (0, -signal.SIGTERM)
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_a_packed_model_is_served(folder, tmp_path, options):
    pack(folder, tmp_path / "model.wm")
    shutil.rmtree(folder)
    with _running([*_command(tmp_path / "model.wm", 0), *options]) as (_, port):
        answers = _ask(port, "/predict", {"rows": [[2.0], [-2.0]], "k": 1})["predictions"]
        assert [answer["labels"] for answer in answers] == [["yes"], ["no"]]
        assert _ask(port, "/model")["labels"] == 2


@pytest.mark.slow
def test_a_port_in_use_is_reported_with_the_remedy(service, tmp_path):
    _, port = service
    done = subprocess.run(_command(tmp_path / "model", port), capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port} (Address already in use)" in done.stderr
    assert "choose another --host or --port" in done.stderr


def test_answers_are_sent_without_waiting_for_an_acknowledgement(tmp_path, folder, monkeypatch):
    seen = []

    async def one_request(server, listener):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        for accepted in server.server_state.connections:
            connection = accepted.transport.get_extra_info("socket")
            seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        server.should_exit = True
        await serving

    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: asyncio.run(one_request(self, *sockets)))
    done = CliRunner().invoke(make_app(), ["serve", str(tmp_path / "model"), "--port", "0"])
    assert done.exit_code == 0, done.output
    assert seen == [1]


@pytest.mark.slow
def test_lines_are_answered_while_the_request_is_being_sent(service):
    _, port = service
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client, client.makefile("rb") as answers:
        client.sendall(b"POST /batch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for value, label in ((2.0, "yes"), (-2.0, "no"), (3.0, "yes")):
            line = json.dumps({"rows": [[value]], "k": 1}).encode() + b"\n"
            client.sendall(b"%x\r\n%s\r\n" % (len(line), line))
            found = next(line for line in answers if line.startswith(b'{"predictions"'))
            assert json.loads(found)["predictions"][0]["labels"] == [label]
        client.sendall(b"0\r\n\r\n")
        assert answers.read().endswith(b"0\r\n\r\n")  # and the connection is closed


@pytest.mark.slow
def test_a_client_that_waits_for_100_continue_gets_it(service):
    _, port = service
    line = b'{"rows": [[2.0]], "k": 1}\n'
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client, client.makefile("rb") as answers:
        client.sendall(b"POST /batch HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 26\r\n\r\n")
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
        client.sendall(line)
        assert b'"yes"' in answers.read()


def _worker_ids(process):
    """Worker processes of a service, by the kernel's list of its children."""
    children = [
        child for path in Path(f"/proc/{process.pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _counts_of_workers(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as answer:
        text = answer.read().decode()
    return [int(count) for count in re.findall(r"worker_requests_total\{worker=\"\d\"\} (\d+)", text)]


def _ask_until_both_have_answered(port, before=(0, 0)):
    """The kernel chooses a worker for each connection."""
    while not all(count > old for count, old in zip(_counts_of_workers(port), before, strict=True)):
        assert _ask(port, "/predict", {"rows": [[2.0]], "k": 1})["predictions"][0]["labels"] == ["yes"]


def _is_running(number):
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and a kernel that spreads connections")
TWO_WORKERS = ["--workers", "2"]


@on_linux
@pytest.mark.slow
def test_two_workers_share_a_port_and_stop_on_request(folder):
    with _running([*_command(folder, 0), *TWO_WORKERS]) as (process, port):
        _ask_until_both_have_answered(port)
        workers = _worker_ids(process)
        assert len(workers) == 2
        done = subprocess.run(_command(folder, port), capture_output=True, text=True, timeout=HANG_S)
        assert "Address already in use" in done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_S) == 0
        assert not any(map(_is_running, workers))
        assert process.stderr.read() == ""


@on_linux
@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(folder):
    with _running([*_command(folder, 0), *TWO_WORKERS]) as (process, port):
        _ask_until_both_have_answered(port)
        workers = _worker_ids(process)
        process.kill()
        while any(map(_is_running, workers)):
            time.sleep(0.01)


@on_linux
@pytest.mark.slow
def test_a_worker_that_crashes_is_started_again(folder):
    code = "import widemargin.cli.serve as s; s.WORKING_SECONDS = 0; from widemargin.cli.__main__ import main; main()"
    command = [sys.executable, "-c", code, *_command(folder, 0)[3:], *TWO_WORKERS]
    with _running(command) as (process, port):
        _ask_until_both_have_answered(port)
        os.kill(_worker_ids(process)[0], signal.SIGKILL)
        said = process.stderr.readline()
        assert re.fullmatch(
            r"widemargin: worker process \d ended unexpectedly \(exit code -9\); starting it again\n", said
        )
        _ask_until_both_have_answered(port, _counts_of_workers(port))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANG_S) == 0


@on_linux
@pytest.mark.slow
def test_workers_that_crash_at_the_start_end_the_service(folder):
    """One that ends before it has loaded the model would end again, however long that takes."""
    code = "import widemargin.cli.serve as s; s.WORKING_SECONDS = 0; from widemargin.cli.__main__ import main; main()"
    with _running([sys.executable, "-c", code, *_command(folder, 0)[3:], *TWO_WORKERS]) as (process, _):
        while len(_worker_ids(process)) < 2:
            time.sleep(0.01)
        second, first = _worker_ids(process)  # the first to end is the one that has just started
        os.kill(first, signal.SIGKILL)
        assert process.wait(timeout=HANG_S) == 1
        assert "(exit code -9) soon after its start; try --workers 1 to see the reason" in process.stderr.read()
        assert not _is_running(second)


def _status(port, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/model", headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=HANG_S).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
@pytest.mark.parametrize("in_file", [True, False])
def test_the_token_comes_from_a_file_or_the_environment(folder, tmp_path, in_file):
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o600)
    command = [*_command(folder, 0), *(["--token-file", str(file)] if in_file else [])]
    environment = os.environ | {"WIDEMARGIN_TOKEN": "other" if in_file else "secret"}  # a file comes first
    with _running(command, env=environment) as (_, port):
        assert _status(port) == _status(port, Authorization="Bearer other") == 401
        assert _status(port, Authorization="Bearer secret") == 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("", "must contain a token: one word of printable ASCII characters"),
        (" \n", "must contain a token"),
        ("two words", "must contain a token"),
        ("gr\u00fcn", "must contain a token"),
    ],
)
def test_a_file_without_a_token_is_an_error(folder, tmp_path, content, reason):
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(make_app(), ["serve", str(folder), "--port", "0", "--token-file", str(file)])
    assert done.exit_code == 1
    assert reason in done.output
    assert str(file) in done.output


def test_a_token_that_all_users_can_read_is_reported(folder, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    done = CliRunner().invoke(make_app(), ["serve", str(folder), "--port", "0", "--token-file", str(file)])
    assert done.exit_code == 0
    assert f"all users of this machine can read {file}; run: chmod 600 {file}" in done.output
    assert "secret" not in done.output


def test_there_is_no_option_for_the_token_itself(folder):
    done = CliRunner().invoke(make_app(), ["serve", str(folder), "--token", "secret"])
    assert done.exit_code == 2


def test_the_model_is_loaded_from_the_path_as_given(tmp_path, monkeypatch):
    """A file is as good as a folder: `load` decides."""
    seen = []

    def load(path):
        seen.append(path)
        return OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])

    monkeypatch.setattr("widemargin.cli.serve.load", load)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    done = CliRunner().invoke(make_app(), ["serve", str(tmp_path / "model.wm"), "--port", "0"])
    assert done.exit_code == 0, done.output
    assert seen == [tmp_path / "model.wm"]
