"""Peers for bench/run: the sandboxes that Debian packages, each running python3 -c 'print(1)' in a fresh sandbox.

All of them see the host's /usr read-only, an empty /tmp, their own pid, ipc, uts, mount and network namespaces, and no
cgroup: the least a sandbox can do, so that a comparison never flatters brood. A peer that does not run here is
reported with the reason it gave."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = ["/usr/bin/python3", "-c", "print(1)"]
TIMEOUT_S = 60


def percentile(values, p):
    """p-th percentile by nearest rank; values need not be sorted."""
    ordered = sorted(values)
    rank = max(0, min(len(ordered) - 1, int(p * len(ordered) / 100 + 0.5) - 1))
    return ordered[rank]


def once(argv, cwd=None):
    """One run; its time in milliseconds. Raises RuntimeError when it did not print 1."""
    start = time.monotonic()
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
    elapsed_ms = (time.monotonic() - start) * 1000
    if done.returncode != 0 or done.stdout.strip() != b"1":
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError("exit %d: %s" % (done.returncode, lines[-1] if lines else "no output"))
    return elapsed_ms


class Peer:
    """argv(i) gives the command of the i-th run; every run has a number of its own (containers need names)."""

    def __init__(self, name, argv, cwd=None):
        self.name, self.argv, self.cwd = name, argv, cwd
        self.count = 0
        self.lock = threading.Lock()

    def run(self):
        with self.lock:
            self.count += 1
            number = self.count
        return once(self.argv(number), self.cwd)

    def measure(self, n, n_parallel, parallel):
        for _ in range(2):
            self.run()  # warm-up: page cache, first-use set-up
        latency = [self.run() for _ in range(n)]
        errors = []

        def loop(share):
            try:
                for _ in range(share):
                    self.run()
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
                errors.append(str(e))

        share = max(1, n_parallel // parallel)
        threads = [threading.Thread(target=loop, args=(share,)) for _ in range(parallel)]
        start = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        elapsed_s = time.monotonic() - start
        if errors:
            raise RuntimeError("in parallel: " + errors[0])
        return {
            "p50_ms": round(statistics.median(latency), 2),
            "p95_ms": round(percentile(latency, 95), 2),
            "n": n,
            "runs_per_s": round(share * parallel / elapsed_s, 2),
        }


def oci_bundle(folder):
    """An OCI bundle whose root holds nothing but mount points and links into the host's /usr."""
    root = os.path.join(folder, "rootfs")
    for d in ("proc", "dev", "usr", "tmp"):
        os.makedirs(os.path.join(root, d), exist_ok=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if os.path.isdir("/usr/" + link):
            os.symlink("usr/" + link, os.path.join(root, link))
    spec = {
        "ociVersion": "1.0.0",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": PROGRAM, "cwd": "/",
                    "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": True},
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "peer",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")]},
    }
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f)


def peers(work):
    """All peers by name: a Peer, or the reason why it cannot run."""
    found = {"fork_exec": Peer("fork_exec", lambda i: PROGRAM)}
    bundle = os.path.join(work, "bundle")
    os.makedirs(bundle)
    oci_bundle(bundle)
    bwrap = ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
             "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all",
             "--die-with-parent"] + PROGRAM
    tools = {
        "bubblewrap": ("bwrap", lambda i: bwrap),
        "crun": ("crun", lambda i: ["crun", "--cgroup-manager=disabled", "--root", work + "/crun", "run", "-b", bundle,
                                    "bench-%d" % i]),
        "runsc": ("runsc", lambda i: ["runsc", "--root", work + "/runsc", "--network=none", "--ignore-cgroups", "run",
                                      "-bundle", bundle, "bench-%d" % i]),
    }
    for name, (program, argv) in tools.items():
        if shutil.which(program):
            found[name] = Peer(name, argv)
        else:
            found[name] = "%s is not installed" % program
    return found


def measure_one(name, quick, parallel):
    """Figures of one peer, or {"error": reason}."""
    n, n_parallel = (10, 20) if quick else (30, 60)
    with tempfile.TemporaryDirectory(prefix="brood-bench-") as work:
        peer = peers(work)[name]
        if isinstance(peer, str):
            return {"error": peer}
        try:
            return peer.measure(n, n_parallel, parallel)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
            return {"error": str(e)[:200]}


# crun refuses a host that has cgroup v1 and v2 mounted side by side ("hybrid"), even with its cgroup manager disabled:
# it is shown a mount namespace without the v2 one.
HYBRID = "/sys/fs/cgroup/unified"
NAMES = ("fork_exec", "bubblewrap", "crun", "runsc")


def measure_all(quick, parallel, say):
    """{name: figures or {"error": reason}} of every peer, each measured by a process of its own."""
    out = {}
    for name in NAMES:
        say("peer %s" % name)
        argv = [sys.executable, os.path.abspath(__file__), name, "quick" if quick else "full", str(parallel)]
        if name == "crun" and os.path.ismount(HYBRID):
            argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                    'umount "$0" && exec "$@"', HYBRID] + argv
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        try:
            out[name] = json.loads(done.stdout)
        except ValueError:
            out[name] = {"error": (done.stderr.strip().splitlines() or ["no figures"])[-1][:200]}
    return out


if __name__ == "__main__":
    print(json.dumps(measure_one(sys.argv[1], sys.argv[2] == "quick", int(sys.argv[3]))))
