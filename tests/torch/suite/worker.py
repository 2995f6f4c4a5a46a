# SPDX-License-Identifier: MIT
"""One process that has imported torch, the backend and the tests, once, and forks a process for each test that it is
told to run: `python -m tests.torch.suite.worker SETUP`, with test names on its stdin and results on its stdout, a line
of JSON each. A test has a session of its own, so that what it leaves behind can be ended.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path
from typing import Any

from pccl import system
from tests.torch.suite.adjust import Setup, test_class

GRACE_S = 20.0
"""After its own timeout, which torch's test class keeps by itself."""
TEXT_MAX = 6000
EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Abort\w*)\b.*")


def main() -> None:
    system.die_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    fields = json.loads(sys.argv[1])
    setup = Setup(**{**fields, "imports": tuple(fields["imports"]), "likes": tuple(fields["likes"])})
    tests = test_class(setup)
    names = sorted(name for name in dir(tests) if name.startswith("test") and callable(getattr(tests, name)))
    answers.write(json.dumps(names) + "\n")
    for line in sys.stdin:
        name = json.loads(line)
        begin = time.monotonic()
        result = _run(tests, name, setup)
        answers.write(json.dumps({**result, "seconds": round(time.monotonic() - begin, 1)}) + "\n")


def _run(tests: type[unittest.TestCase], name: str, setup: Setup) -> dict[str, str]:
    log = Path(setup.folder) / f"{name}.log"
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _be(tests, name, setup, log, writable)
    os.close(writable)
    text = _read(readable, child, time.monotonic() + setup.timeout_s + GRACE_S)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)
    os.close(readable)
    try:
        result: dict[str, str] = json.loads(text)
    except ValueError:
        result = {"outcome": "fail" if text is not None else "timeout", "reason": "the test's process gave no result"}
    if result["outcome"] in ("fail", "timeout") and log.exists():
        result["log"] = log.read_text(errors="replace")[-TEXT_MAX:]
    return result


def _read(readable: int, child: int, deadline: float) -> str:
    """Until a line has come, the child has ended or time is up: its ranks have the other end of the pipe, too."""
    data = b""
    while not data.endswith(b"\n") and time.monotonic() < deadline:
        if select.select([readable], [], [], 0.2)[0]:
            part = os.read(readable, 1 << 16)
            if not part:
                break
            data += part
        elif os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
    return data.decode()


def _be(tests: type[unittest.TestCase], name: str, setup: Setup, log: Path, writable: int) -> None:
    """The test's process."""
    result: dict[str, Any] = {"outcome": "fail", "reason": "no result"}
    try:
        os.setsid()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(dir=setup.folder)
        result = _outcome(tests(name))
    except BaseException:
        result = {"outcome": "fail", "reason": reason(traceback.format_exc())}
    finally:
        os.write(writable, json.dumps(result).encode() + b"\n")
        os._exit(0)


def _outcome(test: unittest.TestCase) -> dict[str, str]:
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)  # a suite, so that the class is set up
    if bad := result.errors + result.failures:
        text = "\n".join(text for _, text in bad)
        outcome = "timeout" if "terminated or timed out after" in text else "fail"
        return {"outcome": outcome, "reason": reason(text), "detail": text[-TEXT_MAX:]}
    if result.unexpectedSuccesses:
        return {"outcome": "fail", "reason": "unexpected success"}
    if result.skipped:
        return {"outcome": "skip", "reason": result.skipped[0][1].splitlines()[0]}
    return {"outcome": "pass" if result.testsRun else "fail", "reason": ""}


def reason(text: str) -> str:
    """The first line of a failure's text that says something."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if EXCEPTION.match(line)]
    telling = [line for line in found if not line.startswith("RuntimeError: Process ")]
    return (telling or found or lines or [""])[0][:300]


if __name__ == "__main__":
    main()
