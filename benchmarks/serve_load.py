"""`widemargin serve` under load: many connections at once, bad requests among them, then a schema fuzzer.

    python benchmarks/serve_load.py [--connections 64] [--seconds 60] [--schema]

Goal: no error and no growth of memory; malformed, oversized and slow requests get a 4xx answer and do not disturb
others; with --schema, schemathesis (installed separately) finds no 5xx for the OpenAPI description. Prints the median
and the 99th percentile of the response time, under load and for /health on one kept connection of an idle service. The
goal for the latter is a median below 2 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from _common import describe_machine, format_table, write_result
from widemargin import OneVsAllClassifier, save
from widemargin.datasets import load_debian_tags

POST = "POST /predict HTTP/1.1\r\nhost: x\r\n"
BAD = {
    "malformed": b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{",
    "oversized": b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n",
    "slow": b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
}


async def exchange(reader, writer, message):
    """Status of a response; the body is read and discarded."""
    writer.write(message)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(lengths[0].split(b":")[1]))
    return int(head.split(b" ", 2)[1])


async def connection(port, rows, until, times, statuses, seed):
    """One client that sends requests one after another."""
    draw = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        body = json.dumps({"rows": [draw.choice(rows) for _ in range(draw.randint(1, 4))], "k": 5}).encode()
        head = f"{POST}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        status = await exchange(reader, writer, head.encode() + body)
        times.append(time.perf_counter() - started)
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()


async def kept_connection(port, n_requests=500):
    """Response times of /health in seconds, one request after another on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for _ in range(n_requests):
        started = time.perf_counter()
        await exchange(reader, writer, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        times.append(time.perf_counter() - started)
    writer.close()
    return times


async def troublemaker(port, until, statuses):
    """Sends bad requests one after another, each on its own connection."""
    while time.monotonic() < until:
        for kind, message in BAD.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status = await exchange(reader, writer, message)
            statuses[kind, status] = statuses.get((kind, status), 0) + 1
            writer.close()


async def load(port, rows, n_connections, seconds, process):
    """Run all clients; measure the memory of the service after a quarter of the time and at the end."""
    until = time.monotonic() + seconds
    times, statuses, bad = [], {}, {}
    clients = [connection(port, rows, until, times, statuses, n) for n in range(n_connections)]

    async def early_memory():
        await asyncio.sleep(seconds / 4)
        return resident_mb(process.pid)

    early, *_ = await asyncio.gather(early_memory(), troublemaker(port, until, bad), *clients)
    return np.array(times), statuses, bad, early, resident_mb(process.pid)


def resident_mb(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def start_service(folder):
    """The process and its port, as soon as it accepts connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "widemargin.cli", "serve", str(folder), "--port", str(port), "--body-seconds", "2"]
    process = subprocess.Popen(command)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def schema_check(port):
    """Run schemathesis, print the end of its output, and return whether it found no server error."""
    program = shutil.which("st", path=str(Path(sys.executable).parent)) or shutil.which("st")
    if program is None:
        raise SystemExit("schemathesis is not installed; pip install schemathesis")
    url = f"http://127.0.0.1:{port}/openapi.json"
    done = subprocess.run(
        [program, "run", url, "--checks", "not_a_server_error", "--max-examples", "300"], capture_output=True, text=True
    )
    print(done.stdout[-3000:])
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--schema", action="store_true", help="also run schemathesis")
    options = parser.parse_args()
    data = load_debian_tags()
    model = OneVsAllClassifier(normalize=True, prune=0.01).fit(data.X_train, data.y_train)
    X = data.X_test[:500]
    rows = [
        {"indices": row.indices.tolist(), "values": row.data.tolist()} for row in (X[[i]] for i in range(X.shape[0]))
    ]
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        process, port = start_service(Path(folder) / "model")
        try:
            asyncio.run(load(port, rows, options.connections, 2.0, process))  # caches and threads
            idle = np.percentile(asyncio.run(kept_connection(port)), [50, 99]) * 1e3
            times, statuses, bad, early, late = asyncio.run(
                load(port, rows, options.connections, options.seconds, process)
            )
            clean = schema_check(port) if options.schema else None
        finally:
            process.terminate()
            process.wait()
    percentile = np.percentile(times, [50, 99]) * 1e3
    table = [
        ["responses", f"{len(times):,}"],
        ["by status", ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()))],
        ["requests per second", f"{len(times) / options.seconds:,.0f}"],
        ["median", f"{percentile[0]:.1f} ms"],
        ["99th percentile", f"{percentile[1]:.1f} ms"],
        ["/health on a kept connection, idle", f"median {idle[0]:.2f} ms, 99th percentile {idle[1]:.2f} ms"],
        ["resident memory after a quarter, at the end", f"{early:.0f} MB, {late:.0f} MB"],
        ["bad requests", ", ".join(f"{kind} → {status}: {n}" for (kind, status), n in sorted(bad.items()))],
        *([["schemathesis", "no server error" if clean else "server errors"]] if clean is not None else []),
    ]
    about = (
        f"{options.connections} connections for {options.seconds:g} s on loopback, embedded debian-tags, "
        "1 to 4 rows per request."
    )
    write_result(
        "serve", "The service under load", [about, format_table(["quantity", "value"], table), describe_machine()]
    )


if __name__ == "__main__":
    main()
