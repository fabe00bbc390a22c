"""`widemargin serve` as a process: it answers requests and shuts down cleanly."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
import uvicorn
from typer.testing import CliRunner

from widemargin import OneVsAllClassifier, save
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


@pytest.fixture
def service(tmp_path):
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
    process = subprocess.Popen(_command(tmp_path / "model", 0), stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()
    found = re.fullmatch(r"widemargin: listening at http://127\.0\.0\.1:(\d+); press Ctrl-C to stop\n", said)
    assert found, said + process.stderr.read()
    yield process, int(found[1])
    process.kill()
    process.wait()


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
def test_a_port_in_use_is_reported_with_the_remedy(service, tmp_path):
    _, port = service
    done = subprocess.run(_command(tmp_path / "model", port), capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port} (Address already in use)" in done.stderr
    assert "choose another --host or --port" in done.stderr


def test_answers_are_sent_without_waiting_for_an_acknowledgement(tmp_path, monkeypatch):
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
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
