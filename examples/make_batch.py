#!/usr/bin/env python3
"""Write examples/batch.jsonl, the demo's batch, from the sources in python/, c/ and shell/.

    make_batch.py            write batch.jsonl
    make_batch.py --check    exit 1 when batch.jsonl is not what the sources give
    make_batch.py --record   run the programs that must be accepted here and write their NAME.out

One problem is NAME.py, NAME.c, NAME.cc or NAME.sh and beside it
    NAME.json   manifest: suite, verdict (default accepted), and what differs from the folder's defaults:
                compare, tolerance, exit_code, args, env, limits, command, setup
    NAME.in     standard input, when the program reads any
    NAME.out    expected standard output, when the job is judged by it (as bytes)
--record needs python3, gcc, g++ and a shell; it never touches the expectation of a job that must fail,
since that is written by hand.
"""
import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BATCH = HERE / "batch.jsonl"
KINDS = (
    # folder, suffix, template, file name in the job, setup, command
    ("python", ".py", "python", "main.py", None, ["python3", "main.py"]),
    ("c", ".c", "c", "main.c", ["gcc", "-o", "prog", "main.c", "-lm"], ["./prog"]),
    ("c", ".cc", "c", "main.cc", ["g++", "-o", "prog", "main.cc"], ["./prog"]),
    ("shell", ".sh", "python", "main.sh", None, ["/bin/sh", "main.sh"]),
)
# Generous, so that a busy machine changes no verdict: only a job that is about a limit sets it low.
LIMITS = {"cpu_ms": 30000, "wall_ms": 180000}
SETUP_LIMITS = {"cpu_ms": 60000, "wall_ms": 300000}
MANIFEST_KEYS = {"suite", "verdict", "compare", "tolerance", "exit_code", "args", "env", "limits", "command", "setup"}


def sources():
    """(manifest, source path, kind) of every problem, in a fixed order."""
    for kind in KINDS:
        for path in sorted((HERE / kind[0]).glob("*" + kind[1])):
            manifest = json.loads(path.with_suffix(".json").read_text())
            unknown = set(manifest) - MANIFEST_KEYS
            if unknown:
                sys.exit(f"{path.with_suffix('.json')}: unknown keys: {', '.join(sorted(unknown))}")
            yield manifest, path, kind


def as_json(data):
    """Bytes as the job format has them: text where text can carry it, else base64."""
    try:
        text = data.decode()
        if "\0" not in text:
            return text
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(data).decode()}


def job(manifest, path, kind):
    folder, _, template, file_name, setup, command = kind
    out = {
        "name": f"{folder}/{path.stem}",
        "template": template,
        "files": [{"path": file_name, "text": path.read_text()}],
        "command": manifest.get("command", command),
    }
    if manifest.get("setup", setup):
        out["setup"] = {"command": manifest.get("setup", setup), "limits": SETUP_LIMITS}
    for key in ("args", "env"):
        if key in manifest:
            out[key] = manifest[key]
    out["limits"] = {**LIMITS, **manifest.get("limits", {})}
    if path.with_suffix(".in").exists():
        out["stdin"] = as_json(path.with_suffix(".in").read_bytes())
    expect = {"exit_code": manifest.get("exit_code", 0)}
    if path.with_suffix(".out").exists():
        expect["stdout"] = as_json(path.with_suffix(".out").read_bytes())
        expect["compare"] = manifest.get("compare", "trim")
        if "tolerance" in manifest:
            expect["tolerance"] = manifest["tolerance"]
    elif "compare" in manifest:
        sys.exit(f"{path}: the manifest says compare, but there is no {path.stem}.out (make_batch.py --record)")
    out["expect"] = expect
    out["labels"] = {
        "expected_verdict": manifest.get("verdict", "accepted"),
        "suite": manifest["suite"],
        "language": {".py": "python", ".c": "c", ".cc": "c++", ".sh": "shell"}[path.suffix],
    }
    return out


def record():
    for manifest, path, kind in sources():
        if manifest.get("verdict", "accepted") != "accepted" or "compare" not in manifest:
            continue
        spec = job({k: v for k, v in manifest.items() if k != "compare"}, path, kind)
        with tempfile.TemporaryDirectory() as work:
            for item in spec["files"]:
                Path(work, item["path"]).write_text(item["text"])
            if "setup" in spec:
                subprocess.run(spec["setup"]["command"], cwd=work, check=True, stderr=subprocess.DEVNULL)
            given = path.with_suffix(".in")
            done = subprocess.run(spec["command"] + spec.get("args", []), cwd=work, timeout=20, stdout=subprocess.PIPE,
                                  input=given.read_bytes() if given.exists() else b"",
                                  env={**os.environ, **spec.get("env", {})})
        if done.returncode != manifest.get("exit_code", 0):
            sys.exit(f"{path}: exit status {done.returncode}")
        path.with_suffix(".out").write_bytes(done.stdout)


def main(argv):
    if argv == ["--record"]:
        record()
        argv = []
    text = "".join(json.dumps(job(*s), ensure_ascii=False) + "\n" for s in sources())
    if argv == ["--check"]:
        if not BATCH.exists() or BATCH.read_text() != text:
            print("examples/batch.jsonl is not what the sources give: run examples/make_batch.py", file=sys.stderr)
            return 1
        return 0
    if argv:
        print(__doc__, file=sys.stderr)
        return 2
    BATCH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
