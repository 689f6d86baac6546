#!/usr/bin/python3
"""Artifacts from the real guest agent, in a machine of its own: guest_artifacts.py HOME|--home-of-tests [NAME...].

As guest_agent.py. Exit status 1 when a check fails. No check depends on how fast the machine is.
"""
import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from guest_boot import Guest, GuestFailed  # noqa: E402

FILE, LINK, OTHER = 1, 2, 3
TOO_LARGE, TOTAL, KIND, UNREADABLE, TARGET = 1, 2, 3, 4, 5


def sh(g, text, **options):
    r = g.run(['sh', '-c', text], **options)
    assert r.exit and r.exit['exit_code'] == 0, r
    return r


def plain(g):
    sh(g, 'mkdir -p out/a/b; printf one > out/a/1; printf two > out/a/b/2; printf x > report.xml; : > out/empty; '
          'printf h > out/.hidden; chmod 751 out/a/1; chmod 0 out/a/b/2; printf n > not.me; mkdir out/folder')
    found, end = g.collect(['out/**', 'report.xml', '*.log'])
    assert list(found) == ['out/.hidden', 'out/a/1', 'out/a/b/2', 'out/empty', 'report.xml'], list(found)
    assert {p: bytes(a['data']) for p, a in found.items()} == {
        'out/.hidden': b'h', 'out/a/1': b'one', 'out/a/b/2': b'two', 'out/empty': b'', 'report.xml': b'x'}
    assert found['out/a/1']['mode'] == 0o751 and found['out/a/b/2']['mode'] == 0, found
    assert all(a['type'] == FILE and a['run'] == g.numbers and a['change'] == 0 for a in found.values())
    assert (end['files'], end['bytes'], end['truncated'], end['left_out'], end['unmatched']) == (5, 8, 0, 0, 4), end
    again, _ = g.collect(['out/**', 'report.xml', '*.log'])
    assert again == found
    nothing, end = g.collect(['nothing', 'out'])
    assert not nothing and end['unmatched'] == 3, end


def traps(g):
    """field case B089, and more of its kind"""
    sh(g, 'ln -s /etc/passwd o; mkdir d; ln -s /proc/1/environ d/x; mkfifo f; truncate -s 1T big; ln -s d dd; '
          'ln -s "$(printf %1500s x | tr " " y)" long; ln -s nowhere broken; ln -s . loop; mkdir -p in; '
          'python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'sock\')"')
    found, end = g.collect(['**'])
    assert sorted(found) == ['big', 'broken', 'd/x', 'dd', 'f', 'long', 'loop', 'o', 'sock'], list(found)
    assert found['o']['type'] == LINK and found['o']['target'] == '/etc/passwd' and not found['o']['data']
    assert found['d/x']['type'] == LINK and found['d/x']['target'] == '/proc/1/environ'
    assert found['dd']['type'] == LINK and found['loop']['target'] == '.'
    assert found['long']['skipped'] == TARGET and not found['long']['target']
    assert found['f']['type'] == OTHER and found['f']['skipped'] == KIND
    assert found['sock']['type'] == OTHER
    assert found['big']['skipped'] == TOO_LARGE and found['big']['size'] == 1 << 40
    assert end['bytes'] == 0 and not end['truncated'], end


def mounts(g):
    """a job that is root may mount what it likes into the work folder"""
    sh(g, 'mkdir p q; mount -t proc proc p && mount --bind /etc q || true; printf 1 > own', root=True)
    found, end = g.collect(['**'])
    assert list(found) == ['own'] or 'p/version' not in found, list(found)[:20]
    sh(g, 'umount p q; rm -rf p q own; true', root=True)


def names(g):
    sh(g, r'''printf 1 > "$(printf 'l\344tin')"; printf 2 > "$(printf 'new\nline')"; printf 3 > 'ü'; printf 4 > ' -rf *' ''')
    found, _ = g.collect(['*'])
    assert sorted(found) == sorted(['l\udce4tin', 'new\nline', 'ü', ' -rf *']), list(found)
    assert found['l\udce4tin']['data'] == b'1'
    one, _ = g.collect([b'l\xe4*'])
    assert list(one) == ['l\udce4tin']


def limits(g):
    sh(g, 'mkdir t; for i in 1 2 3 4 5; do head -c 1000 /dev/zero > t/$i; done; head -c 3000 /dev/zero > t/3')
    found, end = g.collect(['t/**'], files_max=3)
    assert list(found) == ['t/1', 't/2', 't/3'] and end['truncated'] and end['files'] == 3, (list(found), end)
    found, end = g.collect(['t/**'], files_max=5)
    assert len(found) == 5 and not end['truncated'], end
    found, end = g.collect(['t/**'], file_bytes_max=2999)
    assert found['t/3']['skipped'] == TOO_LARGE and found['t/3']['size'] == 3000 and end['bytes'] == 4000
    found, end = g.collect(['t/**'], total_bytes_max=3000)
    assert [p for p, a in found.items() if a['skipped'] == TOTAL] == ['t/3', 't/5'], found
    assert end['bytes'] == 3000 and not end['truncated']
    found, end = g.collect(['t/**'], files_max=0)
    assert not found and end['truncated']


def deep(g):
    sh(g, 'python3 - <<E\nimport os\nfor i in range(100):\n os.mkdir("d" * 200); open("f", "w").close(); os.chdir("d" * 200)\nE')
    found, end = g.collect(['**'])
    assert 'f' in found and end['truncated'] and end['left_out'] >= 1, end
    assert max(len(p) for p in found) <= 1024
    found, end = g.collect(['f'])
    assert list(found) == ['f'] and not end['truncated'], end  # nothing below was looked at


def large(g):
    """bytes are right through many frames, while the host asks whether the agent lives"""
    sh(g, 'python3 -c "import random; random.seed(7); open(\'r\', \'wb\').write(random.randbytes(5000001))"')
    import random
    random.seed(7)
    want = random.randbytes(5000001)
    g.ask_collect(['r'], file_bytes_max=6 << 20, total_bytes_max=6 << 20)
    g.send(2)  # PING
    found, end = g.collected()
    assert bytes(found['r']['data']) == want and end['bytes'] == len(want)


def after_a_kill(g):
    g.start(['sh', '-c', 'printf kept > kept; (while :; do echo >> grows; done) & sleep 1000'])
    r = g.finish(kill_after_s=2)
    assert r.exit and r.exit['killed'], r
    found, end = g.collect(['kept', 'grows'], file_bytes_max=64 << 20, total_bytes_max=64 << 20)
    assert bytes(found['kept']['data']) == b'kept' and not end['unmatched'] & 1, end
    assert found['grows']['change'] == 0  # whoever wrote to it is dead
    r = g.run(['sh', '-c', 'rm -f kept grows; printf c > crash; kill -11 $$'])
    assert r.exit['signal'] == 11
    found, _ = g.collect(['crash'])
    assert bytes(found['crash']['data']) == b'c'


def many_names(g):
    sh(g, 'python3 -c "for i in range(3000): open(\'m%05d\' % i, \'w\').close()"')
    found, end = g.collect(['m*'], files_max=5000)
    assert len(found) == 3000 and list(found) == sorted(found), end
    found, end = g.collect(['m*'], files_max=10)
    assert len(found) == 10 and end['truncated']


def refused(g):
    for globs in (['../x'], ['/etc/passwd'], [''], ['a'] * 65):
        try:
            g.collect(globs)
            assert False, globs
        except GuestFailed as e:
            assert 'glob' in str(e), e
    g.start(['sleep', '1000'])
    g.ask_collect(['*'])
    kinds = []
    while 14 not in kinds:
        kinds.append(g.frame()[0])  # STARTED, and ERROR: not while it runs
    r = g.finish(kill_after_s=0)
    assert r.exit and r.exit['killed']


def host_gone(g):
    sh(g, 'head -c 3000000 /dev/zero > z')
    g.ask_collect(['z'], file_bytes_max=4 << 20)
    g.frame()
    g.disconnect()
    g.connect()
    assert g.ping()
    found, _ = g.collect(['z'], file_bytes_max=4 << 20)
    assert found['z']['size'] == 3000000


def worker_side(g):
    """the worker's own code on the other end: tests/e2e/artifacts_probe.c"""
    probe = os.path.join(os.environ['BROOD_BUILD'], 'tests', 'bin', 'artifacts_probe')
    sh(g, 'mkdir -p out/d; printf hello > report.xml; head -c 200000 /dev/urandom > out/d/r; ln -s /etc out/l; : > out/z; '
          'printf 1 > "out/$(printf \'l\\344\')"; truncate -s 1T out/big; cp report.xml out/same; mkfifo out/pipe')
    wanted = {p: bytes(a['data']) for p, a in g.collect(['**'])[0].items() if a['type'] == FILE and not a['skipped']}
    assert not g.data
    g.sock.settimeout(None)
    with tempfile.TemporaryDirectory() as spool:
        r = subprocess.run([probe, str(g.sock.fileno()), str(g.numbers), spool, '100', '1000000', '1000000', 'out/', '*.xml',
                            'no/*'], pass_fds=[g.sock.fileno()], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        manifest = json.loads(r.stdout)
        had = {}
        for a in manifest['files']:
            path = a['path'] if 'path' in a else base64.b64decode(a['path_base64']).decode('utf-8', 'surrogateescape')
            had[path] = a
            if a['type'] == 'file' and a['stored']:
                with open(os.path.join(spool, a['sha256']), 'rb') as f:
                    data = f.read()
                assert data == wanted.pop(path) and hashlib.sha256(data).hexdigest() == a['sha256'], a
    assert not wanted, wanted.keys()
    assert sorted(had) == ['out/big', 'out/d/r', 'out/l', 'out/l\udce4', 'out/pipe', 'out/same', 'out/z', 'report.xml'], had
    assert had['out/big']['reason'] == 'too_large' and had['out/big']['size'] == 1 << 40
    assert had['out/l'] == {'path': 'out/l', 'type': 'link', 'target': '/etc', 'stored': True}
    assert had['out/pipe']['reason'] == 'not_a_file' and not had['out/pipe']['stored']
    assert manifest['unmatched'] == ['no/*'] and not manifest['truncated'] and manifest['bytes_stored'] == 200011
    assert g.ping()


CHECKS = [plain, traps, mounts, names, limits, deep, large, after_a_kill, many_names, refused, host_gone, worker_side]


def main():
    home, only = sys.argv[1], sys.argv[2:]
    if home == '--home-of-tests':
        home = os.environ.get('BROOD_TEST_HOME') or os.path.join(os.environ['BROOD_BUILD'], 'test-home')
    checks = [c for c in CHECKS if not only or c.__name__ in only]
    failed = 0
    with Guest(home, 'python', boot_s=300) as g:
        print(f'booted in {g.boot_s:.1f} s {g.hello}', flush=True)
        g.identity()
        for check in checks:
            begin = time.monotonic()
            try:
                sh(g, 'find /work -mindepth 1 -delete')
                check(g)
                print(f'  ok   {check.__name__} {time.monotonic() - begin:.1f} s', flush=True)
            except (AssertionError, GuestFailed, OSError, KeyError, TypeError):
                failed += 1
                print(f'  FAIL {check.__name__}\n{traceback.format_exc()[-1500:]}', flush=True)
    print(f'guest_artifacts: {len(checks)} checks, {failed} failed')
    return 1 if failed or not checks else 0


if __name__ == '__main__':
    sys.exit(main())
