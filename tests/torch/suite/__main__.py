# SPDX-License-Identifier: MIT
"""`python -m tests.torch.suite [RUN...]`: torch's own tests, on pccl unless told otherwise, compared with what Gloo
achieves. Exit status 1 if a test that Gloo passes does not pass.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torch.suite.adjust import Setup
from tests.torch.suite.runs import IMPOSSIBLE, REDUCED, RUNS, Run, baseline

Result = dict[str, Any]


class Worker:
    """A process that runs one test after another; one that ends is started again."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._start()

    def run(self, name: str) -> Result:
        """Blocks until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(name) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            result: Result = json.loads(line)
            return result
        self._start()
        return {"outcome": "fail", "reason": "the worker ended", "seconds": 0.0}

    def close(self) -> None:
        self._process.communicate()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.torch.suite.worker", json.dumps(asdict(self._setup))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker did not start")
        self.names: list[str] = json.loads(line)


def perform(run: Run, options: argparse.Namespace, folder: Path) -> dict[str, Result]:
    """Results by test."""
    imports = ("pccl.torch",) if options.backend == "pccl" else ()
    setup = Setup(options.backend, imports, run.likes, run.world, run.timeout_s, run.pretend_cuda, str(folder))
    workers = [Worker(setup) for _ in range(options.jobs)]
    known = baseline(run.name)
    names = deque(name for name in workers[0].names if name in known and _is_wanted(name, options))
    total, results, lock = len(names), dict[str, Result](), threading.Lock()

    def serve(worker: Worker) -> None:
        while True:
            with lock:
                if not names:
                    break
                name = names.popleft()
            result = worker.run(name)
            with lock:
                results[name] = result
                if options.verbose or (result["outcome"] != "pass" and known[name] == "pass"):
                    place = f"[{len(results):3}/{total}]"
                    print(place, name, result["outcome"], f"{result['seconds']:.1f} s", result["reason"], flush=True)
        worker.close()

    threads = [threading.Thread(target=serve, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def worse_than_gloo(run: Run, results: dict[str, Result]) -> list[str]:
    """Tests that Gloo passes and this backend does not, though it could."""
    known = baseline(run.name)
    return [it for it in results if known[it] == "pass" != results[it]["outcome"] and it not in IMPOSSIBLE]


def main() -> int:
    options = _options()
    failed = False
    found: dict[str, dict[str, Result]] = {}
    for run in RUNS:
        if options.runs and run.name not in options.runs:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            results = found[run.name] = perform(run, options, Path(folder))
        worse = worse_than_gloo(run, results)
        known = baseline(run.name)
        better = [it for it in results if results[it]["outcome"] == "pass" != known[it]]
        counts = Counter(result["outcome"] for result in results.values())
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        print(f"{run.name}: {told}; against Gloo: {len(worse)} worse, {len(better)} better", flush=True)
        for name in worse:
            print(f"  worse: {name}\n{results[name].get('detail') or results[name].get('log', '')}", flush=True)
        failed |= bool(worse)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", choices=[[], *(run.name for run in RUNS)], help="all, unless some are named")
    parser.add_argument("--backend", default="pccl")
    parser.add_argument("--form", choices=("native", "python", "auto"), default="auto", help="of pccl")
    parser.add_argument("--reduced", action="store_true", help="only the tests that `make test` runs")
    parser.add_argument("-k", dest="patterns", action="append", default=[], metavar="PATTERN", help="only such tests")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="all results, in a file")
    parser.add_argument("--verbose", action="store_true", help="a line for each test")
    options = parser.parse_args()
    os.environ["PCCL_TORCH_BACKEND"] = options.form
    return options


def _is_wanted(name: str, options: argparse.Namespace) -> bool:
    if options.reduced and name not in REDUCED:
        return False
    return not options.patterns or any(it in name or fnmatch.fnmatch(name, it) for it in options.patterns)


if __name__ == "__main__":
    sys.exit(main())
