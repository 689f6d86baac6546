#!/usr/bin/env python3
"""Run every job of a batch file on this machine, without brood, and say whether the expected verdict is right.

    check_batch.py [BATCH.jsonl]     default: batch.jsonl beside this file

This is the second opinion on examples/batch.jsonl: plain processes under setrlimit(2), a uid of their own when
started as root, and the comparison rules of docs/verdicts.md written once more. A process limit or a memory
limit shows here as a failed fork or allocation, not as a verdict, so for these two any failure counts.
It is no sandbox: use it on your own programs only. Exit status 1 when something is not as expected.
"""
import base64
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

UID = 61177  # of nobody else, so that RLIMIT_NPROC counts this program's processes only
DEFAULTS = {"cpu_ms": 10000, "memory_mib": 256, "processes": 64, "output_bytes": 65536}


def as_bytes(value):
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def trim(data):
    lines = [line.rstrip() for line in data.split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def same_float(got, want, tolerance):
    try:
        a, b = float(got), float(want)
    except ValueError:
        return got == want
    return abs(a - b) <= tolerance or abs(a - b) <= tolerance * abs(b)


def matches(got, want, mode, tolerance):
    if mode == "exact":
        return got == want
    if mode == "trim":
        return trim(got) == trim(want)
    got, want = got.split(), want.split()
    if mode == "tokens":
        return got == want
    return len(got) == len(want) and all(same_float(g, w, tolerance) for g, w in zip(got, want))


def limit(limits, uid):
    def apply():
        os.setsid()
        seconds = max(1, -(-limits["cpu_ms"] // 1000))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (limits["memory_mib"] << 20,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Generous: the file is read back and measured, and a flood must not fill the disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20,) * 2)
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
    return apply


def end(group):
    """End the whole session that limit() made; a fork bomb needs more than one signal."""
    for _ in range(200):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.005)


def run(argv, work, limits, uid, stdin=b"", env=None):
    """(exit code or -signal, stdout, stderr, timed out)"""
    wall = limits.get("wall_ms", limits["cpu_ms"] * 2 + 5000) / 1000
    with open(f"{work}/.in", "w+b") as given, open(f"{work}/.out", "w+b") as out, open(f"{work}/.err", "w+b") as err:
        given.write(stdin)
        given.seek(0)
        try:
            child = subprocess.Popen(argv, cwd=work, stdin=given, stdout=out, stderr=err, preexec_fn=limit(limits, uid),
                                     env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": work, "LANG": "C.UTF-8",
                                          "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        except OSError:
            return 127, b"", b"", False
        late = False
        try:
            child.wait(wall)
        except subprocess.TimeoutExpired:
            late = True
        end(child.pid)
        child.wait()
        out.seek(0)
        err.seek(0)
        return child.returncode, out.read(), err.read(), late


def setup_command(job):
    setup = job["setup"]
    return setup["command"] if isinstance(setup, dict) else setup


def verdict(job, uid):
    with tempfile.TemporaryDirectory(prefix="brood-check.") as work:
        for item in job.get("files", []):
            path = Path(work, item["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(item["text"]) if "text" in item else base64.b64decode(item["base64"]))
        if os.getuid() == 0:
            for folder, _, names in os.walk(work):
                os.chown(folder, uid, uid)
                for name in names:
                    os.chown(os.path.join(folder, name), uid, uid)
        if "setup" in job:
            code = run(setup_command(job), work, {**DEFAULTS, "memory_mib": 1024, "processes": 256}, uid)[0]
            if code != 0:
                return "compile_error"
        limits = {**DEFAULTS, **job.get("limits", {})}
        limits["cpu_ms"] = min(limits["cpu_ms"], 10000)
        if job["labels"]["expected_verdict"] != "memory_limit":
            limits["memory_mib"] = 1024
        if job["labels"]["expected_verdict"] == "process_limit":
            limits["wall_ms"] = 2000  # without the pids cgroup nothing but the clock ends a fork bomb
        code, out, err, late = run(job["command"] + job.get("args", []), work, limits, uid, as_bytes(job.get("stdin")),
                                   job.get("env"))
        if max(len(out), len(err)) > limits["output_bytes"]:
            return "output_limit"
        if code in (-signal.SIGXCPU, -signal.SIGKILL) and not late:
            return "time_limit"
        if late:
            return "wall_time_limit"
        expect = job.get("expect", {})
        if code != expect.get("exit_code", 0):
            return "runtime_error"
        if "stdout" in expect and not matches(out, as_bytes(expect["stdout"]), expect.get("compare", "trim"),
                                              expect.get("tolerance", 1e-6)):
            return "wrong_answer"
        return "accepted"


def agrees(expected, got):
    if expected in ("process_limit", "memory_limit"):
        return got not in ("accepted", "wrong_answer")
    return expected == got


def main(argv):
    path = argv[0] if argv else Path(__file__).resolve().parent / "batch.jsonl"
    jobs = [json.loads(line) for line in open(path, encoding="utf-8")]
    need = {setup_command(job)[0] for job in jobs if "setup" in job} | {"python3"}
    missing = sorted(tool for tool in need if not shutil.which(tool))
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        got = list(pool.map(verdict, jobs, (UID + i for i in range(len(jobs)))))
    wrong = 0
    for job, found in zip(jobs, got):
        expected = job["labels"]["expected_verdict"]
        if not agrees(expected, found):
            wrong += 1
            print(f"{job['name']}: expected {expected}, natively {found}")
    print(f"{len(jobs)} jobs run natively, {wrong} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
