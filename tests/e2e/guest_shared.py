#!/usr/bin/python3
"""Containers of a shared machine: pairs of (attacker, victim) in both orders, in one real machine. guest_shared.py HOME [NAME...]

The victim tells all that it can see of its surroundings. What it tells after an attacker must be, to the byte, what it told
in the machine's first container. In the other order the victim leaves a secret wherever a program can leave one, and the
next job looks for it wherever it can read. Exit status 1 when a check fails. No check depends on how fast the machine is.
"""
import json
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from guest_boot import Guest, GuestFailed  # noqa: E402
from guest_shared_programs import ATTACKS, BUSY, GOT, LEAVE, LEAVE_BUSY, PY, SECRET, SEEK, SHARE, VICTIM  # noqa: E402


def run_in_cell(g, source, *args, **options):
    ready = g.cell()
    limits = {'memory': 256 << 20, 'processes': 64, 'disk': 64 << 20}
    r = g.run([PY, '-c', source, *args], cell=True, limits=limits, kill_after_s=240, timeout_s=300, **options)
    assert r.error is None, r
    return r, ready


def tells(g):
    r, _ = run_in_cell(g, VICTIM, str(time.time()))
    assert r.exit['exit_code'] == 0, r
    return json.loads(r.stdout)


def difference(a, b):
    return {k: (a[k], b.get(k)) for k in a if a[k] != b.get(k)}


def pair(g, name, expected):
    """attacker, then victim; the machine's own checks must not be needed for the victim to be untouched."""
    r, _ = run_in_cell(g, ATTACKS[name])
    assert b'BREACH' not in r.stdout, bytes(r.stdout[:2000])
    got = tells(g)
    assert got == expected, difference(expected, got)
    return r


def secret(g):
    """victim, then attacker."""
    half = len(SECRET) // 2
    r, _ = run_in_cell(g, LEAVE, SECRET)
    assert r.exit['exit_code'] == 0, r
    r, _ = run_in_cell(g, SEEK, SECRET[:half], SECRET[half:])
    assert r.exit['exit_code'] == 0 and bytes(r.stdout) == b'found []\n', r


def by_exec(g):
    """The same container for programs that are started by exec, and files of the job in its layer only."""
    g.cell(False)
    g.file('a/b', b'mine')
    r = g.run(['sh', '-c', 'cat a/b; touch /tmp/x; ls /tmp; echo $$; cat /proc/1/comm'], cell=True)
    assert bytes(r.stdout) == b'minex\n2\ninit\n' and not r.started['warm'], r
    found, _ = g.collect(['**'])
    assert list(found) == ['a/b'] and found['a/b']['data'] == b'mine', found
    g.cell(False)
    r = g.run(['sh', '-c', 'ls -A /work /tmp /dev/shm /var/tmp'], cell=True)
    assert bytes(r.stdout) == b'/dev/shm:\n\n/tmp:\n\n/var/tmp:\n\n/work:\n', r


def several_runs(g):
    """Set-up and command of one job are in one container."""
    g.cell()
    assert g.run(['sh', '-c', 'echo 1 >/tmp/step'], cell=True).exit['exit_code'] == 0
    r = g.run([PY, '-c', 'print(open("/tmp/step").read())'], cell=True)
    assert bytes(r.stdout) == b'1\n\n' and r.started['warm'], r
    g.cell()
    for step in (b'1', b'2'):  # compile and run: neither has a warm interpreter
        r = g.run(['sh', '-c', 'echo x >>/tmp/step; grep -c x /tmp/step'], cell=True)
        assert r.error is None and bytes(r.stdout) == step + b'\n', r


def share_after_busy(g):
    for name, source in BUSY.items():
        r, _ = run_in_cell(g, LEAVE_BUSY % source)
        assert r.exit['leftover_processes'] > 0, (name, r)
        r, _ = run_in_cell(g, GOT)
        assert float(r.stdout) >= SHARE, (name, r)


def limits(g):
    r, _ = run_in_cell(g, ATTACKS['oom'])
    assert r.exit['signal'] == 9 and r.exit['oom_kills'] > 0, r
    r, _ = run_in_cell(g, ATTACKS['pids'])
    assert r.exit['process_refusals'] > 0 and r.exit['leftover_processes'] > 0, r
    r, _ = run_in_cell(g, ATTACKS['disk_full'])
    assert r.exit['disk_full'] and r.exit['disk_used_bytes'] >= 63 << 20, r
    r, _ = run_in_cell(g, 'x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1')
    assert 80 << 20 <= r.exit['memory_peak_bytes'] <= 92 << 20, r


def refused(g):
    """What a shared machine does not do: root, a run outside of a container, something that is to live on."""
    g.cell()
    for options in ({'cell': False}, {'cell': True, 'root': True}):
        r = g.run([PY, '-c', 'print(1)'], **options)
        assert r.error and 'shared machine' in r.error['text'], r
    r = g.run([PY, '-c', 'print(1)'], cell=True)
    assert bytes(r.stdout) == b'1\n', r


def stays_good(g):
    """Fifty in a row: nothing piles up, and the guest has nothing to report."""
    def free():
        r, _ = run_in_cell(g, 'print(open("/proc/meminfo").read())')
        values = dict(l.split(':') for l in r.stdout.decode().splitlines() if ':' in l)
        return sum(int(values[k].split()[0]) for k in ('MemFree', 'Buffers', 'Cached'))
    run_in_cell(g, 'print(1)')
    before = free()
    for i in range(50):
        r, ready = run_in_cell(g, f'print({i})')
        assert bytes(r.stdout) == b'%d\n' % i and r.started['warm'], r
    after = free()
    assert before - after < 8 << 10, f'{before - after} KiB less'


# A root process of the machine that waits for a container, then does one of these and is gone: no job can, so it is put there.
INTRUDER = r"""
import ctypes, os, sys, time
what = sys.argv[1]
if os.fork(): os._exit(0)
os.setsid()
c = ctypes.CDLL(None)
def inits():
    for p in os.listdir('/proc'):
        if p.isdigit() and p != '1':
            try: name, rest = open(f'/proc/{p}/stat').read().split('(')[1].rsplit(')', 1)
            except OSError: continue
            if name == 'init' and rest.split()[1] == '1': return int(p)
while not (init := inits()): time.sleep(.02)
time.sleep(.3)  # its mounts are watched from when it is ready
if what == 'write': os.mkdir('/etc/left')
if what == 'kernel':
    os.mknod('/dev/k', 0o20600, os.makedev(1, 11)); fd = os.open('/dev/k', os.O_WRONLY); os.unlink('/dev/k'); os.write(fd, b'<3>BUG: a test\n')
if what.startswith('container_mount'):
    if c.setns(os.open(f'/proc/{init}/ns/mnt', 0), 0x20000): os._exit(1)
if 'mount' in what: c.mount(b'x', b'/sys/fs/cgroup', b'tmpfs', 0, None)
if what.endswith('_undone') and c.umount2(b'/sys/fs/cgroup', 0): os._exit(1)
if what == 'init': os.kill(init, 9)
if what == 'process': time.sleep(1000)
"""
TROUBLE = {'nothing': '', 'write': "something was written outside the job's own layer", 'kernel': 'kernel: BUG: a test',
           'mount': "the machine's mounts have changed", 'mount_undone': "the machine's mounts have changed",
           'container_mount': "the mounts of the job's container have changed",
           'container_mount_undone': "the mounts of the job's container have changed",
           'init': "the container's init has ended", 'process': 'processes are left'}


def trigger(home, what):
    """What the guest finds of a run is told with the next container. A machine of its own."""
    with Guest(home, 'python', boot_s=300) as g:
        g.identity()
        r = g.run([PY, '-c', INTRUDER, what], root=True, keep=True, cell=False, warm=False)
        assert r.exit and r.exit['exit_code'] == 0, r
        first = g.cell()
        assert not first['trouble'], first
        if what != 'init':
            run_plain(g)
        if what == 'process':
            time.sleep(1)
        else:
            gone(g)
        said = g.cell()['trouble'] or ''
        assert said.startswith(TROUBLE[what]) and bool(said) == bool(TROUBLE[what]), said


def run_plain(g):
    r = g.run([PY, '-c', 'import time; time.sleep(3); print(1)'], cell=True)
    assert bytes(r.stdout) == b'1\n', r


def gone(g):
    """The intruder needs the machine's processor: time for it, and answers in between."""
    for _ in range(10):
        g.ping()
        time.sleep(.3)


def trouble_by_job(home):
    """A job's own doing that the kernel speaks of."""
    with Guest(home, 'python', boot_s=300) as g:
        g.identity()
        run_in_cell(g, ATTACKS['oom'])
        said = g.cell()['trouble'] or ''
        assert said.startswith('kernel: '), said


def machine_checks(home):
    """Those that need a machine of their own."""
    return [('trigger_' + n, lambda n=n: trigger(home, n)) for n in TROUBLE] + [('trouble_by_job', lambda: trouble_by_job(home))]


def run_checks(checks, names):
    count = failed = 0
    for name, check in checks:
        if names and name not in names:
            continue
        count += 1
        begin = time.monotonic()
        try:
            check()
            print(f'  ok   {name} {time.monotonic() - begin:.1f} s', flush=True)
        except (AssertionError, GuestFailed, OSError, ValueError):
            failed += 1
            print(f'  FAIL {name}\n{traceback.format_exc()[-3000:]}', flush=True)
    return count, failed


def main():
    home, names = sys.argv[1], sys.argv[2:]
    if home == '--home-of-tests':
        home = os.environ.get('BROOD_TEST_HOME') or os.path.join(os.environ['BROOD_BUILD'], 'test-home')
    count, failed = run_checks(machine_checks(home), names)
    if not names or set(names) - {n for n, _ in machine_checks(home)}:
        with Guest(home, 'python', boot_s=300) as g:
            g.identity()
            first = g.cell()
            assert first['spare'] == 1 and not first['trouble'], first
            expected = tells(g)
            again = tells(g)
            assert again == expected, difference(expected, again)
            checks = [(c.__name__, lambda c=c: c(g)) for c in (stays_good, by_exec, several_runs, share_after_busy, secret, limits, refused)]
            checks += [(n, lambda n=n: pair(g, n, expected)) for n in ATTACKS]
            more, wrong = run_checks(checks, names)
            count, failed = count + more, failed + wrong
    print(f'guest_shared: {count} checks, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
