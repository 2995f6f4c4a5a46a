# SPDX-License-Identifier: MIT
"""Who is missing, who is slow, and what is left behind for whoever looks into it later: real peers, a real master.

Cases: B93 (the log says how many ranks are missing, not which).
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import system
from pccl.fleet import Child, Line
from pccl.trace import file
from pccl.trace.record import PENDING
from tests.process.harness import LIMIT_S, Run, join

pytestmark = [pytest.mark.process, pytest.mark.alone]

TAG = 5
TIMEOUT_S = 4.0


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `pccl ...`."""
    return subprocess.run(
        [sys.executable, "-m", "pccl", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def status_of(run: Run) -> dict[str, Any]:
    asked = command("status", run.master.address, "--json")
    assert asked.returncode == 0, asked.stderr
    answer: dict[str, Any] = json.loads(asked.stdout)
    return answer


# ---------------------------------------------------------------------------------------------- absent ranks (B93)


def entering(line: Line, address: str, folder: str) -> None:
    """All but two peers enter an operation that needs all."""
    logging.basicConfig(level=logging.WARNING)
    comm = join(address, 5, trace_dir=folder)
    comm.all_reduce(np.ones(4, np.float32), tag=TAG)
    line.send(kind="joined", rank=comm.rank)
    if comm.rank in (1, 3):
        line.receive()
        comm.close()
        return
    with pytest.raises(pccl.OperationTimeout) as caught:
        comm.all_reduce(np.ones(4, np.float32), tag=TAG, timeout=TIMEOUT_S)
    line.send(kind="failed_as_expected", text=str(caught.value))
    line.receive()
    comm.close()


def test_every_present_rank_names_those_that_never_enter(tmp_path: Path) -> None:
    """B93: 2 of 5 ranks never enter; error, log and trace list them, with operation, sequence and time."""
    traces = tmp_path / "traces"
    with Run(tmp_path) as run:
        peers = [run.peer(entering, str(traces)) for _ in range(5)]
        ranks = {run.expect(peer, "joined")["rank"]: peer for peer in peers}
        for rank in (0, 2, 4):
            text = run.expect(ranks[rank], "failed_as_expected")["text"]
            assert re.match(rf"all_reduce\(float32\[4\].*\) tag {TAG} #1 of epoch \d+ aborted after \d+ ms", text), text
            assert re.search(r"not started by rank 1 \(peer \w{8} at 127\.0\.0\.1:\d+, .*\), rank 3 \(peer", text), text
            log = run.log(ranks[rank])
            assert re.search(rf"tag {TAG} #1 of epoch \d+ has waited \d+ ms: not started by rank 1 .*, rank 3", log)
        for peer in peers:
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in peers] == [0] * 5
    files = sorted(str(path) for path in traces.iterdir())
    assert len(files) == 3
    told = command("trace", "--json", *files)
    assert told.returncode == 0, told.stderr
    findings = json.loads(told.stdout)["findings"]
    assert any(f"tag {TAG} #1: never started by rank 1, rank 3" in line for line in findings), findings


# ---------------------------------------------------------------------------------------------- a slow rank (B93)


def stepping(line: Line, address: str, steps: str) -> None:
    """The last rank waits for the test before each step."""
    comm = join(address, 3)
    comm.barrier()
    line.send(kind="joined", rank=comm.rank)
    for _ in range(int(steps)):
        if comm.rank == 2:
            line.receive()
        comm.all_reduce(np.ones(1000))
        line.send(kind="stepped")
    line.receive()
    comm.close()


def test_the_status_names_the_slow_rank_and_nobody_else(tmp_path: Path) -> None:
    """B93: one rank is slow in each step."""
    with Run(tmp_path) as run:
        peers = [run.peer(stepping, "2") for _ in range(3)]
        ranks: dict[int, Child] = {run.expect(peer, "joined")["rank"]: peer for peer in peers}
        for _ in range(2):
            while True:
                answer = status_of(run)
                absent = {rank for stall in answer["stalls"] if stall["absent"] for rank in stall["ranks"]}
                waiting = {stall["rank"] for stall in answer["stalls"] if stall["absent"]}
                if waiting == {0, 1} and absent == {2}:  # a busy machine may delay another for a while
                    break
            assert [bool(member["waits"]) for member in answer["members"]] == [True, True, False]
            ranks[2].tell(kind="go")
            for peer in peers:
                run.expect(peer, "stepped")
        while (answer := status_of(run))["stalls"]:
            pass
        late = {member["rank"]: (member["late"], member["late_ms"]) for member in answer["members"]}
        assert late[2][0] == 2
        assert late[2] == max(late.values())
        for peer in peers:
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in peers] == [0] * 3


# ---------------------------------------------------------------------------------------------- pccl status


def test_the_status_shows_a_run_and_watching_ends_with_ctrl_c(tmp_path: Path) -> None:
    with Run(tmp_path, journal=True) as run:
        peers = [run.peer(stepping, "0") for _ in range(3)]
        for peer in peers:
            run.expect(peer, "joined")
        shown = command("status", run.master.address)
        assert shown.returncode == 0, shown.stderr
        assert f"{run.master.address}: 3 peers in 1 group, 0 newcomers" in shown.stdout
        assert "ring 0 1 2" in shown.stdout
        status = status_of(run)
        assert status["journal_bytes"] > 0
        assert {it["cores"] for it in status["members"]} == {system.usable_cores()}
        watching = [sys.executable, "-m", "pccl", "status", run.master.address, "--watch", "--json"]
        with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline())["census"]["peers"] for _ in range(2)] == [3, 3]
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        for peer in peers:
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in peers] == [0] * 3


def test_a_master_that_is_not_there_is_one_line_and_an_exit_status(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        address = run.master.address
    asked = command("status", address)
    assert asked.returncode == 1
    assert asked.stderr == f"pccl status: no master at {address}: Connection refused\n"
    assert command("status", "nonsense").returncode == 1


# ---------------------------------------------------------------------------------------------- traces


def losing(line: Line, address: str, folder: str) -> None:
    comm = join(address, 3, trace_dir=folder)
    comm.barrier()
    line.send(kind="joined", rank=comm.rank)
    if comm.rank == 2:
        line.receive()
    with pytest.raises(pccl.PeerLost) as caught:
        comm.all_reduce(np.ones(1000))
    line.send(kind="lost", notes=getattr(caught.value, "__notes__", None))
    comm.all_reduce(np.ones(1000))
    comm.dump_trace(Path(folder) / f"asked{comm.rank}")
    comm.close()


def test_a_loss_leaves_a_trace_that_its_error_names(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    with Run(tmp_path) as run:
        peers = [run.peer(losing, str(traces)) for _ in range(3)]
        ranks = {run.expect(peer, "joined")["rank"]: peer for peer in peers}
        while {stall["rank"] for stall in status_of(run)["stalls"]} != {0, 1}:
            pass  # a loss before the operation has begun would not be its business
        ranks[2].kill()
        for rank in (0, 1):
            notes = run.expect(ranks[rank], "lost")["notes"]
            if sys.version_info >= (3, 11):
                assert notes is not None
                assert "flight record: " in notes[0]
        assert [run.ended(ranks[rank]) for rank in (0, 1)] == [0, 0]
    failures = sorted(traces.glob("pccl-*.pccltrace"))
    assert len(failures) == 2
    for path in failures:
        trace = file.decode(path.read_bytes())
        assert trace.header.reason == "PeerLost"
        assert [it.status for it in trace.operations if it.collective == "all_reduce"] == [int(pccl.Status.PEER_LOST)]
        kinds = [it.kind for it in trace.events]
        assert {"epoch", "link_up", "frozen"} <= set(kinds)  # the master may be faster than the end of a link
    after = file.decode((traces / "asked0").read_bytes())
    assert [it.status for it in after.operations if it.collective == "all_reduce"] == [
        int(pccl.Status.PEER_LOST),
        int(pccl.Status.OK),
    ]
    chrome = tmp_path / "chrome.json"
    made = command("trace", "--chrome", str(chrome), *map(str, failures))
    assert made.returncode == 0, made.stderr
    assert len({it["pid"] for it in json.loads(chrome.read_text())["traceEvents"]}) == 2
    shown = command("trace", *map(str, failures))
    assert "PEER_LOST" in shown.stdout
    refused = command("trace", str(Path(__file__)))
    assert (refused.returncode, "not JSON" in refused.stderr) == (1, True)


def hanging(line: Line, address: str, folder: str) -> None:
    pccl.install_trace_signal(signal.SIGUSR1, folder)
    comm = join(address, 2)
    comm.barrier()
    line.send(kind="joined", rank=comm.rank)
    if comm.rank == 1:
        line.receive()
    comm.all_reduce(np.ones(1000), tag=TAG)
    comm.close()


def test_a_signal_shows_what_a_blocked_peer_waits_for(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    with Run(tmp_path) as run:
        peers = [run.peer(hanging, str(traces)) for _ in range(2)]
        ranks = {run.expect(peer, "joined")["rank"]: peer for peer in peers}
        while not status_of(run)["stalls"]:
            pass
        ranks[0].kill(signal.SIGUSR1)
        while not (found := list(traces.glob("*.pccltrace"))):
            assert ranks[0].process.poll() is None
        ranks[1].tell(kind="go")
        assert [run.ended(peer) for peer in peers] == [0, 0]
    (open_,) = [it for it in file.decode(found[0].read_bytes()).operations if it.status == PENDING]
    assert (open_.tag, [wait.rank for wait in open_.waits]) == (TAG, [1])
