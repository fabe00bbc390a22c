"""`widemargin serve` as a process: it answers, and ends well when told to."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from widemargin import OneVsAllClassifier, save


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.fixture
def service(tmp_path):
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
    port = _free_port()
    command = [sys.executable, "-m", "widemargin.cli", "serve", str(tmp_path / "model"), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _ in range(1200):  # a busy machine takes its time to import
        try:
            _ask(port, "/health")
            break
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
    yield process, port
    process.kill()
    process.wait()


def test_a_served_model_answers_and_stops_when_told(service):
    process, port = service
    assert _ask(port, "/predict", {"rows": [[2.0]], "k": 1})["predictions"][0]["labels"] == ["yes"]
    with socket.create_connection(("127.0.0.1", port)) as half:  # a client that never finishes its request
        half.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
        assert _ask(port, "/predict", {"rows": [[-2.0]], "k": 1})["predictions"][0]["labels"] == ["no"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    assert "Traceback" not in process.stderr.read()
