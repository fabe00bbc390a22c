"""The guides to using the package: commands run, figures are those of stored results, and services start."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from widemargin import OneVsAllClassifier, save
from widemargin.cli.__main__ import make_app
from widemargin.cli.serve import GRACE_SECONDS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
RESULTS = ROOT / "benchmarks" / "results"
HANG_S = 600.0
"""The tests wait for answers, however slow the machine; this only ends what would never end."""
OF_OTHER_PROGRAMS = {"--now", "--read-only", "--ours", "--splits", "--schema", "--no-cache-dir", "--verify"}


def text_of(name):
    return (GUIDE / name).read_text(encoding="utf-8")


def block_of(page, language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return found


def run(command, **options):
    result = CliRunner().invoke(make_app(), shlex.split(command)[1:], **options)
    assert result.exit_code == 0, result.output
    return result.stdout


def all_options():
    commands = typer.main.get_command(make_app()).commands.values()
    return {flag for command in commands for p in command.params for flag in (*p.opts, *p.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=lambda page: page.name)
def test_options_in_the_text_exist(page):
    """Those without a command before them; test_cli_reference.py reads the others."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = {
        option for span in re.findall(r"`([^`\n]+)`", prose) for option in re.findall(r"(?<!\S)--[a-z][\w-]*", span)
    }
    assert named - OF_OTHER_PROGRAMS <= all_options()


@pytest.mark.slow
def test_the_commands_for_embeddings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.array(["ash", "fir", "oak"])[np.arange(60) % 3]
    X = np.eye(3, 8, dtype=np.float32)[np.arange(60) % 3]
    np.savez("train.npz", X=X, Y=y)
    np.savez("test.npz", X=X[:6], Y=y[:6])
    for command in re.findall(r"^\$ (.*)$", block_of(text_of("embeddings.md"), "console"), re.MULTILINE):
        run(command)
    assert [line.split("\t")[0] for line in Path("predictions.tsv").read_text().splitlines()] == y[:6].tolist()


@pytest.mark.slow
def test_the_commands_for_users_of_annif_run(tmp_path, monkeypatch):
    """A corpus that the page's own function converts is trained on, predicted by name, and evaluated."""
    monkeypatch.chdir(tmp_path)
    page = text_of("coming_from.md")
    code = re.search(r"(>>> def as_json_line.*?)>>> as_json_line", page, re.DOTALL)[1]
    scope = {"json": json}
    exec(re.sub(r"^(>>> |\.\.\. )", "", code, flags=re.MULTILINE), scope)
    corpus = ["routing of packets\t<u:1> <u:3>", "baking bread\t<u:2>", "packets in networks\t<u:1>", "bread\t<u:2>"]
    Path("corpus.jsonl").write_text("".join(scope["as_json_line"](line) + "\n" for line in corpus))
    Path("vocabulary.tsv").write_text("u:1\tnetworking\nu:2\tbaking\nu:3\trouting\n")
    cells = re.findall(r"`(widemargin (?:train|predict|evaluate) [^`]*)`", page.split("## Annif\n")[1])
    train, predict, evaluate = (command.replace("test.jsonl", "corpus.jsonl") for command in cells)
    run(train)
    assert run(f"{predict} --names vocabulary.tsv", input="a loaf of bread\n").startswith("baking\t")
    assert "precision" in run(evaluate)


@pytest.mark.parametrize(
    ("file", "figures"),
    [
        ("2026-11-19-prediction.md", {"35,645": "35,645 test rows", "19,696": "19,696 labels", "1.09 s": "| 1.09 "}),
        (
            "2026-11-19-serve.md",
            {"7,930": "| 7,930 ", "12 ms": "| 11.5 ms", "11,296": "| 11,296 ", "11 ms": "| 10.6 ms"},
        ),
        ("2026-11-19-memory.md", {"273 MB": "| 273 ", "197 MB": "| 197 ", "142,576": "142,576 rows"}),
    ],
)
def test_figures_on_size_and_latency_are_those_of_results(file, figures):
    page, result = text_of("sizing.md"), (RESULTS / file).read_text(encoding="utf-8")
    for shown, measured in figures.items():
        assert shown in page
        assert measured in result


def unit():
    return dict(re.findall(r"^(\w+)=(.*)$", block_of(text_of("deployment.md"), "ini"), re.MULTILINE))


@pytest.mark.slow
def test_the_service_of_the_unit_file_starts(tmp_path):
    """With its options: it asks for the token, tells clients behind a local proxy apart, and stops in time."""
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), tmp_path / "model")
    program, serve, _, *options = shlex.split(unit()["ExecStart"])
    assert (Path(program).name, serve) == ("widemargin", "serve")
    options[options.index("--port") + 1] = "0"
    options[options.index("--rate") + 1] = "1e-6"
    command = [sys.executable, "-m", "widemargin.cli", serve, str(tmp_path / "model"), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"WIDEMARGIN_TOKEN": "secret"}) as process:
        address = re.search(r"http://\S+:\d+", process.stderr.readline())[0]

        def status(path, **headers):
            request = urllib.request.Request(address + path, headers=headers)
            try:
                return urllib.request.urlopen(request, timeout=HANG_S).status
            except urllib.error.HTTPError as error:
                return error.code

        def as_client(client):
            return status("/metrics", Authorization="Bearer secret", **{"X-Forwarded-For": client})

        assert (status("/health"), status("/metrics")) == (200, 401)
        assert {as_client("192.0.2.1") for _ in range(120)} == {200, 429}
        assert as_client("192.0.2.2") == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) in (0, -signal.SIGTERM)
    assert int(unit()["TimeoutStopSec"]) > GRACE_SECONDS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_accepts_the_unit_file(tmp_path):
    program = unit()["ExecStart"].split()[0]
    text = block_of(text_of("deployment.md"), "ini").replace(program, sys.executable)
    (tmp_path / "widemargin.service").write_text(text)
    command = ["systemd-analyze", "verify", str(tmp_path / "widemargin.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert "widemargin.service" not in done.stderr, done.stderr


def test_the_container_starts_a_command_that_exists():
    lines = block_of(text_of("deployment.md"), "dockerfile").splitlines()
    (command,) = (json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD "))
    assert command[:2] == ["widemargin", "serve"]
    assert {word for word in command if word.startswith("-")} <= all_options()
    health = json.loads(next(line for line in lines if line.startswith("HEALTHCHECK")).removeprefix("HEALTHCHECK CMD "))
    compile(health[2], "HEALTHCHECK", "exec")
    assert f"127.0.0.1:{command[command.index('--port') + 1]}/health" in health[2]


def test_the_glossary_has_every_word_once():
    words = [
        word for row in re.findall(r"^\| ([^|]+) \|", text_of("glossary.md"), re.MULTILINE) for word in row.split(", ")
    ]
    assert len(words) == len(set(words)) > 40
