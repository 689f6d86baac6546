"""What a home of brood holds of its host: processes, users, cgroups, mounts, sockets, files, memory. To compare before with after.

The pool may keep more warm machines after a load than before it (docs/pool.md), so what a machine has (a process, a user, a
cgroup, descriptors) is counted beyond those that the pool itself answers for. Postgres' files, Redis' file, stored objects
and logs grow by what they store, and are not counted."""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import time

BUILD_DIR = os.environ.get("BROOD_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../build")
HOME = os.environ.get("BROOD_TEST_HOME") or os.environ.get("BROOD_HOME")
USERS_OF_A_HOME, FIRST_MACHINE = 8192, 4096  # docs/security.md
SETTLE_S = 300
WARM_MIN = 2  # pool.warm_min, the default
GROWING = ("postgres", "redis", "objects", "log")
# What may differ although nothing leaks: connections that are just made again; heap of caches, and libpq's buffers: each
# connection keeps one of the size of its largest message, and jobs of 16 MiB are among the cases.
ALLOWED = {"descriptors of the service": 16, "sockets of the service": 16, "MiB of the service": 64,
           "descriptors of the pool": 16}  # it may hold a machine more


def brood(*args):
    done = subprocess.run([os.path.join(BUILD_DIR, "brood"), "--home", HOME, *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=3600)
    if done.returncode not in (0, 1):  # 1: a verdict is not as wanted, which is looked at elsewhere
        sys.exit("brood %s: exit %d" % (" ".join(args), done.returncode))
    return done.stdout


def need_running():
    """{name: pid} of the home's service."""
    if not HOME:
        sys.exit("BROOD_TEST_HOME or BROOD_HOME: whose?")
    pids = {p["name"]: p["pid"] for p in json.loads(brood("--json", "status"))["processes"]}
    if "vmpool" not in pids or "worker" not in pids:
        sys.exit("no brood runs in %s" % HOME)
    return pids


def text_of(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def table():
    """{pid: (parent, name, user)} of the host."""
    out = {}
    for path in glob.glob("/proc/[0-9]*"):
        stat, status = text_of(path + "/stat"), text_of(path + "/status")
        user = re.search(r"^Uid:\t(\d+)", status, re.M)
        if stat and user:
            name, rest = stat.split("(", 1)[1].rsplit(")", 1)
            if rest.split()[0] != "Z":
                out[int(os.path.basename(path))] = (int(rest.split()[1]), name, int(user.group(1)))
    return out


def run_dir(service):
    line = text_of("/proc/%d/cmdline" % service["postgres"])
    return re.search(r"unix_socket_directories=(.*)/pg", line).group(1)


def count_files(folder, but=()):
    n = 0
    for where, folders, files in os.walk(folder):
        if where == folder:
            folders[:] = [f for f in folders if f not in but]
        n += len(folders) + len(files)
    return n


def sockets(pid):
    n = 0
    for fd in glob.glob("/proc/%d/fd/*" % pid):
        try:
            n += os.readlink(fd).startswith("socket:")
        except OSError:
            pass
    return n


def kernel_lines():
    done = subprocess.run(["dmesg"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return len([x for x in done.stdout.splitlines() if "BUG" in x or "Oops" in x or "segfault" in x])


def settle():
    """Waits until no machine is leased or being started and the pool has come down to what it holds without demand, so that
    two measures are of as many machines, or nearly; returns how many are warm."""
    same = 0
    was = None
    end = time.monotonic() + SETTLE_S
    while same < 6 and time.monotonic() < end:
        pool = json.loads(brood("--json", "status"))["pool"]["snapshots"]
        now = [s["warm"] for s in pool]
        rests = all(s["starting"] == s["leased"] == 0 and s["target"] <= WARM_MIN for s in pool)
        same = same + 1 if rests and now == was else 0
        was = now
        time.sleep(0.5)
    return sum(was)


def measure(service):
    """[(what, how many)]; service as of need_running."""
    warm = settle()
    run = run_dir(service)
    procs = table()
    home = {service["supervisor"]}
    for _ in range(8):
        home |= {p for p, (parent, _, _) in procs.items() if parent in home}
    first_user = os.stat(run).st_gid
    home |= {p for p, (_, _, user) in procs.items() if first_user <= user < first_user + USERS_OF_A_HOME}
    machines = [p for p in home if p in procs and procs[p][2] >= first_user + FIRST_MACHINE]
    # Postgres' own helpers come and go.
    others = collections.Counter(procs[p][1] for p in home if p in procs and p not in machines and procs[p][1] != "postgres")
    ours = [p for p in home if p in procs and procs[p][1].startswith("brood") and p not in machines]
    of_machines = [p for p in ours if p == service["vmpool"] or procs[p][0] == service["vmpool"]]  # and the jailer
    users = {procs[p][2] for p in machines}
    mounts = sum(len([x for x in text_of("/proc/%d/mountinfo" % p).splitlines()]) for p in ours)
    kib = sum(int(x) for p in ours for x in re.findall(r"^RssAnon:\s+(\d+)", text_of("/proc/%d/status" % p), re.M))
    groups = glob.glob("/sys/fs/cgroup/**/brood-%08x-*/**/" % (first_user + FIRST_MACHINE), recursive=True)
    if not groups and os.access("/sys/fs/cgroup", os.W_OK):
        raise SystemExit("no cgroup of the machines is found")
    trees = len({os.path.relpath(g, "/sys/fs/cgroup").split("/")[0] for g in groups}) or 1  # v1: one a controller
    in_use = sum(text_of(g + "cgroup.procs") != "" for g in groups)  # those that were are kept for the next machine
    return [
        ("processes but the machines'", sum(others.values())),
        ("machines beyond the pool's", len(machines) - warm),
        ("users beyond the pool's", len(users) - warm),
        ("cgroups in use beyond the pool's", in_use - trees * warm),
        ("mounts that the service sees", mounts),
        ("descriptors of the service", sum(len(glob.glob("/proc/%d/fd/*" % p)) for p in ours if p not in of_machines)),
        ("sockets of the service", sum(sockets(p) for p in ours if p not in of_machines)),
        ("descriptors of the pool", sum(len(glob.glob("/proc/%d/fd/*" % p)) for p in of_machines)),
        ("files of the home", count_files(HOME, GROWING)),
        ("files of the run folder", count_files(run)),
        ("files in /dev/shm and /tmp of these users", sum(
            first_user <= e.stat(follow_symlinks=False).st_uid < first_user + USERS_OF_A_HOME for d in ("/tmp", "/dev/shm")
            for e in os.scandir(d))),
        ("MiB of the service", kib // 1024),
        ("alarms in the kernel's log", kernel_lines()),
    ]


def compare(before, after):
    """Prints both; returns how many have grown."""
    bad = 0
    for (what, was), (_, now) in zip(before, after):
        grown = now > was + ALLOWED.get(what, 0)
        bad += grown
        print("  %-45s %8d %8d%s" % (what, was, now, "  GROWN" if grown else ""))
    return bad
