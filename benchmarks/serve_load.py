"""`widemargin serve` under load: many connections at once, bad requests among them, then a schema fuzzer.

    python benchmarks/serve_load.py [--connections 64] [--seconds 60] [--turns 2] [--against COMMIT] [--schema]

Goal: at least 1,500 requests per second on two cores with 64 connections, the load generator included, and a 99th
percentile of at most 120 ms; no error and no growth of memory; malformed, oversized and slow requests get a 4xx answer
and do not disturb others; with --schema, schemathesis (installed separately) finds no 5xx for the OpenAPI description.

The services take turns, each turn in fresh processes: this checkout with and without the packages of the extra
`serve-fast` (which must be installed), with two workers, and with --against another commit, built as by
`benchmarks/against.py`. Also prints the response time of /health on one kept connection of an idle service.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from _common import describe_machine, format_table, write_result
from against import build_commit
from widemargin.datasets import load_debian_tags

N_REQUESTS = 2000
"""Different requests, made before the measurement."""
EXTRA = ("uvloop", "httptools", "orjson")
WITHOUT_EXTRA = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRA!r}))  # as if they were not installed
from widemargin.cli.__main__ import main
main()
"""
TRAINING = """
import sys
from widemargin import OneVsAllClassifier, save
from widemargin.datasets import load_debian_tags
data = load_debian_tags()
save(OneVsAllClassifier(normalize=True, prune=0.01).fit(data.X_train, data.y_train), sys.argv[1])
"""
HEAD = "POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
BAD = {
    "malformed": f"{HEAD}1\r\n\r\n{{".encode(),
    "oversized": f"{HEAD}99999999\r\n\r\n".encode(),
    "slow": f"{HEAD}100\r\n\r\n{{".encode(),
}


def make_requests(rows):
    """Requests of 1 to 4 rows, as bytes."""
    draw = random.Random(0)
    bodies = [json.dumps({"rows": draw.choices(rows, k=draw.randint(1, 4)), "k": 5}) for _ in range(N_REQUESTS)]
    return [f"{HEAD}{len(body)}\r\n\r\n{body}".encode() for body in bodies]


@dataclass
class Found:
    """Results of one turn."""

    times: list = field(default_factory=list)
    statuses: collections.Counter = field(default_factory=collections.Counter)
    bad: collections.Counter = field(default_factory=collections.Counter)
    memory: list = field(default_factory=list)
    cpu_s: float = 0.0  # of the service
    idle: list = field(default_factory=list)


class Client(asyncio.Protocol):
    """A client that sends requests one after another. It does little itself, since the service shares its cores."""

    def __init__(self, requests, until, found):
        self.requests, self.until, self.found = requests, until, found
        self.received, self.done = b"", asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.started = time.perf_counter()
        if self.started < self.until:
            self.transport.write(next(self.requests))
        else:
            self.done.set_result(None)
            self.transport.close()

    def data_received(self, data):
        data = self.received + data
        body = data.find(b"\r\n\r\n") + 4
        length = data.find(b"content-length:") + 15
        if body < 4 or len(data) < body + int(data[length : data.index(b"\r", length)]):
            self.received = data
            return
        self.received = b""
        self.found.times.append(time.perf_counter() - self.started)
        self.found.statuses[int(data[9:12])] += 1
        self.send()

    def connection_lost(self, error):
        if not self.done.done():
            self.found.statuses["lost"] += 1
            self.done.set_result(None)


async def exchange(port, message, n_times=1):
    """The status of the last response to a request that is sent again and again, and the times of all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for _ in range(n_times):
        started = time.perf_counter()
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(lengths[0].split(b":")[1]))
        times.append(time.perf_counter() - started)
    writer.close()
    return int(head.split(b" ", 2)[1]), times


async def trouble(port, until, found):
    """Send bad requests one after another, each on its own connection."""
    while time.perf_counter() < until:
        for kind, message in BAD.items():
            found.bad[kind, (await exchange(port, message))[0]] += 1


async def load(port, requests, n_connections, seconds, pid):
    """Run all clients; measure the memory of the service after a quarter of the time and at the end."""
    loop, found = asyncio.get_running_loop(), Found()
    until, cpu = time.perf_counter() + seconds, cpu_s(pid)
    clients = []
    for number in range(n_connections):
        own = itertools.cycle(random.Random(number).sample(requests, len(requests)))
        _, client = await loop.create_connection(lambda own=own: Client(own, until, found), "127.0.0.1", port)
        clients.append(client.done)
    loop.call_later(seconds / 4, lambda: found.memory.append(memory_mb(pid)))
    await asyncio.gather(trouble(port, until, found), *clients)
    found.memory.append(memory_mb(pid))
    found.cpu_s = cpu_s(pid) - cpu
    return found


def tree(pid):
    """A process and its children."""
    children = [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return [pid, *(number for child in children for number in tree(child))]


def memory_mb(pid):
    """Memory of a process and its children; pages that several share are counted once."""
    lines = [line for n in tree(pid) for line in Path(f"/proc/{n}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_s(pid):
    """CPU time of a process and its children so far."""
    fields = [Path(f"/proc/{n}/stat").read_text().rsplit(") ", 1)[1].split() for n in tree(pid)]
    return sum(int(user) + int(system) for *_, user, system in (f[:13] for f in fields)) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Service:
    """A way to start the service."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    with_path: bool = True  # whether it sees PYTHONPATH

    def start(self, folder):
        """The process and its port, as soon as it accepts connections."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        environment = dict(os.environ)
        if not self.with_path:
            environment.pop("PYTHONPATH", None)
        given = ["serve", str(folder), "--port", str(port), "--body-seconds", "2", *self.options]
        process = subprocess.Popen([*self.command, *given], env=environment)
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process, port
            time.sleep(0.1)
        raise SystemExit("the service did not start")


def turn(service, folder, requests, options):
    """Results of a service in a fresh process, and whether schemathesis found no server error."""
    process, port = service.start(folder)
    try:
        asyncio.run(load(port, requests, options.connections, 3.0, process.pid))  # caches and threads
        _, idle = asyncio.run(exchange(port, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", 500))
        found = asyncio.run(load(port, requests, options.connections, options.seconds, process.pid))
        found.idle = idle
        clean = schema_check(port) if options.schema and service.name == THIS else None
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return found, clean


def schema_check(port):
    """Run schemathesis, print the end of its output, and return whether it found no server error."""
    program = shutil.which("st", path=str(Path(sys.executable).parent)) or shutil.which("st")
    if program is None:
        raise SystemExit("schemathesis is not installed; pip install schemathesis")
    url = f"http://127.0.0.1:{port}/openapi.json"
    options = [
        "--exclude-path",
        "/batch",
        "--checks",
        "not_a_server_error",
        "--max-examples",
        "300",
    ]  # it takes no lines
    done = subprocess.run([program, "run", url, *options], capture_output=True, text=True)
    print(done.stdout[-3000:])
    return done.returncode == 0


THIS = "this checkout"


def services(commit):
    """The services that take turns, this checkout last."""
    this = (sys.executable, "-m", "widemargin.cli")
    found = []
    if commit:
        side = build_commit(commit)
        found.append(Service(f"commit {commit}", (str(side.python), "-m", "widemargin.cli"), with_path=False))
    found.append(Service("without serve-fast", (sys.executable, "-c", WITHOUT_EXTRA)))
    if all(map(importlib.util.find_spec, EXTRA)):
        found += [Service("with --workers 2", this, ("--workers", "2")), Service(THIS, this)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--against", metavar="COMMIT", help="another commit that takes turns with this checkout")
    parser.add_argument("--schema", action="store_true", help="also run schemathesis")
    options = parser.parse_args()
    X = load_debian_tags().X_test[:500]
    rows = [
        {"indices": row.indices.tolist(), "values": row.data.tolist()} for row in (X[[i]] for i in range(X.shape[0]))
    ]
    requests, table, bad, clean = make_requests(rows), [], collections.Counter(), None
    gc.collect()
    gc.freeze()  # pauses of the load generator would count as the service's
    with tempfile.TemporaryDirectory() as folder:
        sides = services(options.against)
        # By the oldest commit: the others read what it writes, and it does not read what they write.
        subprocess.run([sides[0].command[0], "-c", TRAINING, Path(folder) / "model"], check=True)
        for number, service in itertools.product(range(options.turns), sides):
            found, checked = turn(service, Path(folder) / "model", requests, options)
            table.append([service.name, str(number + 1), *cells(found, options.seconds)])
            bad += found.bad
            clean = clean if checked is None else checked
            print(table[-1], file=sys.stderr)
    about = (
        f"{options.connections} connections for {options.seconds:g} s per turn on loopback, the load generator on the "
        "same cores, embedded debian-tags, 1 to 4 rows per request. Without --workers, a service is one process."
    )
    columns = ["service", "turn", "requests per second", "median", "99th percentile", "CPU per request"]
    columns += ["responses by status", "memory after a quarter, at the end", "/health, idle: median, 99th percentile"]
    troubles = ", ".join(f"{kind} → {status}: {n}" for (kind, status), n in sorted(bad.items()))
    notes = f"Bad requests: {troubles}."
    if clean is not None:
        notes += f" schemathesis: {'no server error' if clean else 'server errors'}."
    packages = ["numpy", "scipy", "fastapi", "uvicorn", *(name for name in EXTRA if importlib.util.find_spec(name))]
    sections = [about, format_table(columns, sorted(table)), notes, describe_machine(packages)]
    write_result("serve", "The service under load", sections)


def cells(found, seconds):
    """The results of a turn as cells of the table."""
    median, high = np.percentile(found.times, [50, 99]) * 1e3
    idle = np.percentile(found.idle, [50, 99]) * 1e3
    return [
        f"{len(found.times) / seconds:,.0f}",
        f"{median:.1f} ms",
        f"{high:.1f} ms",
        f"{found.cpu_s / len(found.times) * 1e6:.0f} µs",
        ", ".join(f"{status}: {n:,}" for status, n in sorted(found.statuses.items(), key=str)),
        ", ".join(f"{size:.0f} MB" for size in found.memory),
        f"{idle[0]:.2f} ms, {idle[1]:.2f} ms",
    ]


if __name__ == "__main__":
    main()
