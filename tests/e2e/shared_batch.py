#!/usr/bin/python3
"""isolation shared through the whole service: which jobs of a batch met in one machine. shared_batch.py, with brood up.

Each job prints its machine's id and how long that machine has been up, so what followed what is known from the guests
themselves, on any host. Some jobs give a sign of trouble; no job may come after one in its machine.

Then the processors: with twice as many machines at once as there are processors a job gets its share of them, by the equal
weights of the machines' cgroups, whatever the others do. What a job got is CPU seconds by the host's clock of its machine's
processor, for each wall second; a victim gets at least SHARE of what each attacker beside it gets on average, so what else the
host does changes nothing. Restarts the service with other slots. Exit status 1 when a check fails.

  shared_batch.py [ATTACK...]   only these shares"""
import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
BROOD = os.path.join(os.environ.get('BROOD_BUILD') or os.path.join(TOP, 'build'), 'brood')
HOME = os.environ.get('BROOD_TEST_HOME') or os.path.join(os.environ.get('BROOD_BUILD', ''), 'test-home')
WHERE = ("import time; print(open('/etc/machine-id').read().strip(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)\n")
PLAIN = 'import os; print(sorted(os.listdir("/tmp")), len([p for p in os.listdir("/proc") if p.isdigit()]))\n'
# name: (source, more of the job, verdicts it may have)
TROUBLE = {
    'time limit': ('while True: pass', {'limits': {'cpu_ms': 100}}, 'time_limit'),
    'left process': ('import os, time\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(1000)\n', {}, 'accepted'),
    'survived out of memory': ('import os\nif os.fork() == 0: x = bytearray(400 << 20)\nos.wait()\n', {'limits': {'memory_mib': 64}}, 'accepted|memory_limit'),
    'refused fork': ('import os\nkids = []\ntry:\n    while True:\n        kids.append(os.fork())\n        if not kids[-1]: os.read(0, 1); import signal; signal.pause()\n'
                     'except OSError: pass\nfor k in kids: os.kill(k, 9); os.wait()\n', {'limits': {'processes': 8}}, 'accepted|process_limit'),
    'output limit': ('print("x" * 100000)', {'limits': {'output_bytes': 2000}}, 'output_limit'),
}


SHARE = .7
DELAY_S, VICTIM_S, ATTACK_S = 8, 10, 24  # the victim waits until all are at it
SPIN = ('import time\ntime.sleep(%d)\nbegin = time.time()\nwhile time.time() - begin < %d: pass\nprint(begin, time.time())\n'
        % (DELAY_S, VICTIM_S))
ATTACK = '''
import mmap, os, threading, time
begin = time.time()
def on(): return time.time() - begin < %d
''' % ATTACK_S
ATTACKS = {
    'quiet loop': 'while on(): pass\n',
    'threads': '''
def spin():
    while on(): pass
for i in range(40): threading.Thread(target=spin).start()
for i in range(10):
    if os.fork() == 0:
        spin()
        os._exit(0)
spin()
''',
    'forks': '''
while on():
    for i in range(40):
        if os.fork() == 0: os._exit(0)
    try:
        while os.wait(): pass
    except ChildProcessError: pass
''',
    'memory': '''
while on():
    m = mmap.mmap(-1, 48 << 20)
    for at in range(0, len(m), 4096): m[at] = 1
    m.close()
''',
    # the disk's cache is dropped as it is read; and what is written lies in the layer, and in the output
    'input and output': '''
files = [os.path.join(d, n) for d, _, ns in os.walk('/usr/lib') for n in ns]
left = 12 << 20
while on():
    for name in files:
        try: fd = os.open(name, os.O_RDONLY)
        except OSError: continue
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(fd, 1 << 20): pass
        os.close(fd)
        with open('/tmp/x', 'wb') as f: f.write(bytes(4 << 20))
        if left > 0: left -= os.write(2, b'x' * 65536)
        if not on(): break
''',
}


def brood(*args):
    return subprocess.run([BROOD, args[0], '--home', HOME, *args[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def results(jobs):
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
        f.writelines(json.dumps({'template': 'python', 'isolation': 'shared', **job}) + '\n' for job in jobs)
        f.flush()
        done = brood('submit', f.name)
    if done.returncode:
        sys.exit(done.stderr)
    batch = done.stdout.split()[-1]
    brood('watch', batch)
    rows = [json.loads(line) for line in brood('results', batch).stdout.splitlines()]
    assert len(rows) == len(jobs), done.stdout
    return rows


def place(row):
    machine, up = row['stdout'].split('\n')[0].split()
    return machine, float(up)


def python(name, source, **more):
    return {'name': name, 'command': ['python3', '-c', WHERE + source], **more}


def fixture(word, **env):
    subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), 'fixture.sh'), word], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, env={**os.environ, 'BROOD_TEST_HOME': HOME, **env}, check=True, timeout=300)


def share_beside(name, others):
    """The victim's CPU seconds a second over those of so many attackers, or None when they were not at it all the while."""
    limits = {'wall_ms': 120000, 'cpu_ms': 120000, 'processes': 64, 'output_bytes': 16 << 20}
    attacker = {'name': name, 'command': ['python3', '-c', ATTACK + ATTACKS[name] + 'print(begin, time.time())\n'], 'limits': limits}
    victim = {'name': 'victim', 'command': ['python3', '-c', SPIN], 'limits': limits}
    rows = results([attacker] * others + [victim])
    assert all(r['verdict'] == 'accepted' for r in rows), [(r['name'], r['verdict'], r['reason'], r['stderr'][-300:]) for r in rows]
    times = [tuple(map(float, r['stdout'].split()[-2:])) for r in rows]
    begin, end = times[-1]
    if any(b > begin or e < end for b, e in times[:-1]):
        return None
    rates = [r['cpu_us'] / r['wall_us'] for r in rows[:-1]]
    return rows[-1]['cpu_us'] / (rows[-1]['wall_us'] - DELAY_S * 1e6) / (sum(rates) / others)


def fair_shares(check, names):
    processors = os.cpu_count()
    others, shares = 2 * processors - 1, {}
    try:
        fixture('down')
        fixture('again', BROOD_WORKER_SLOTS=str(others + 1))
        for name in names:
            for attempt in range(5):  # machines that are not there yet make some come late
                shares[name] = share_beside(name, others)
                if shares[name]:
                    break
            print('beside %d x %s: %s of their share' % (others, name, shares[name] and round(shares[name], 2)), flush=True)
    finally:
        fixture('down')
        fixture('again')
    for name, share in shares.items():
        check(share is not None, name, 'never ran all the while that the victim did')
        check(share is None or share >= SHARE, 'beside', name, 'the victim got', share, 'of what each of them got')


def main():
    failed = 0

    def check(ok, *why):
        nonlocal failed
        failed += not ok
        if not ok:
            print('FAIL', *why)

    if sys.argv[1:]:
        fair_shares(check, sys.argv[1:])
        return 1 if failed else 0
    jobs = []
    for name, (source, more, _) in TROUBLE.items():
        jobs += [python('plain', PLAIN)] * 2 + [python(name, source, **more)]
    jobs += [python('plain', PLAIN)] * 2
    rows = results(jobs)
    by_machine = {}
    for row in rows:
        wanted = TROUBLE[row['name']][2].split('|') if row['name'] in TROUBLE else ['accepted']
        check(row['verdict'] in wanted, row['name'], row['verdict'], row['reason'], row['stderr'])
        machine, up = place(row)
        by_machine.setdefault(machine, []).append((up, row['name']))
        if row['name'] == 'plain':
            check(row['stdout'].split('\n')[1] == '[] 2', 'what a job sees:', row['stdout'])
    for machine, runs in by_machine.items():
        names = [name for _, name in sorted(runs)]
        check(all(name == 'plain' for name in names[:-1]), 'jobs came after a sign of trouble:', names)
    check(any(len(runs) > 1 for runs in by_machine.values()), 'no two jobs have met in one machine')
    check(len(by_machine) >= len(TROUBLE), 'machines:', by_machine)

    # Another batch never meets the first, nor do batches of vm; the ids are those of machines.
    other = results([python('plain', PLAIN)] * 3)
    alone = results([python('plain', '', isolation='vm')] * 3)
    check(not by_machine.keys() & {place(r)[0] for r in other + alone}, 'two batches have met')
    check(len({place(r)[0] for r in alone}) == 3, 'runs with isolation vm have met')
    fair_shares(check, list(ATTACKS))
    print('shared_batch: %d jobs in %d machines, %d checks failed' % (len(rows), len(by_machine), failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
