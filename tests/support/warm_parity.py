#!/usr/bin/python3
"""Compares the warm interpreter with python3 itself: same output, same errors, same status, program by program.

Runs on the host, no machine needed: this script plays the agent's part (guest/warm.h). Root only, since a spare drops to
uid 1000; CPython 3.11 only, as in the template. Exit status 1 when a program differs.

    warm_parity.py [--warm PATH] [NAME...]
"""
import argparse
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ENV = {'PATH': '/usr/local/bin:/usr/bin:/bin', 'HOME': '/work', 'LANG': 'C.UTF-8', 'TZ': 'UTC', 'PYTHONHASHSEED': '0',
       'MINE': 'a=b\udcff'}
UID = 1000

# name: (script, arguments after it, stdin). A script may also be given as {'-c': text} or {'-m': module, file: text}.
CASES = {
    'hello': 'print("hello")',
    'empty': '',
    'no_newline': 'import sys; sys.stdout.write("x")',
    'exception': 'def f(x):\n    return g(x)\ndef g(x):\n    return 1 / x\nf(0)\n',
    'custom_exception': 'class E(Exception): pass\nraise E("a", 1)\n',
    'chained': 'def f():\n    try:\n        1/0\n    except ZeroDivisionError as e:\n        raise ValueError("b") from e\n'
               'try:\n    f()\nexcept ValueError:\n    {}["k"]\n',
    'group': 'raise ExceptionGroup("g", [ValueError(1), TypeError(2)])',
    'note': 'e = ValueError("v"); e.add_note("a note"); raise e',
    'syntax': 'def f(:\n  pass\n',
    'indent': 'if 1:\nprint(2)\n',
    'tab_mix': 'if 1:\n        a=1\n\tb=2\n',
    'bad_utf8': b'x = "\xff"\n',
    'coding': b'# -*- coding: latin-1 -*-\nprint(ascii("\xe9"))\n',
    'bom': b'\xef\xbb\xbfprint("bom")\n',
    'crlf': b'print(1)\r\nprint(2)\r\n',
    'syntax_in_exec': 'exec("a b")',
    'exit_int': 'import sys; sys.exit(3)',
    'exit_big': 'import sys; sys.exit(256 + 7)',
    'exit_neg': 'import sys; sys.exit(-1)',
    'exit_huge': 'import sys; sys.exit(1 << 70)',
    'exit_none': 'import sys; sys.exit()',
    'exit_true': 'import sys; sys.exit(True)',
    'exit_str': 'import sys; sys.exit("going")',
    'exit_tuple': 'import sys; sys.exit((1, 2))',
    'raise_exit_class': 'raise SystemExit',
    'os_exit': 'import os; print("lost?", end=""); os._exit(5)',
    'keyboard': 'raise KeyboardInterrupt',
    'sigint': 'import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(1)',
    'sigterm': 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)',
    'sigkill': 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)',
    'abort': 'import os; os.abort()',
    'segv': 'import ctypes; ctypes.string_at(0)',
    'handler': 'import os, signal\nsignal.signal(signal.SIGUSR1, lambda s, f: print("got", s))\nos.kill(os.getpid(), 10)\nprint("on")',
    'recursion': 'def f(n):\n    return f(n + 1)\nf(0)\n',
    'recursion_depth': 'import sys\ndef f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\nprint(f(0), sys.getrecursionlimit())',
    'deep': 'import sys\nsys.setrecursionlimit(50000)\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(40000))',
    'getframe': 'import sys\ntry:\n    sys._getframe(1)\nexcept ValueError as e:\n    print(e)\nprint(sys._getframe().f_back)',
    'stack': 'import traceback, inspect\ndef f():\n    traceback.print_stack()\n    print(len(inspect.stack()))\nf()',
    'in_thread': 'import threading\ndef f():\n    1 / 0\nt = threading.Thread(target=f)\nt.start()\nt.join()\nprint("end")',
    'main_joined': 'import threading, atexit\nm = threading.main_thread()\nprint(m.is_alive())\natexit.register(lambda: print("exit", m.is_alive()))\n'
                   'threading.Thread(target=lambda: (m.join(), print("joined", m.is_alive()))).start()',
    'executor': 'import atexit\nfrom concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(2)\np.submit(print, "in a thread")\n'
                'atexit.register(print, "exit")',
    'last_resort': 'import logging\nlogging.warning("w")\nlogging.getLogger("x").error("e")',
    'late_thread': 'import threading, time\ndef f():\n    time.sleep(0.2)\n    print("late")\nthreading.Thread(target=f).start()\nprint("main")',
    'daemon': 'import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint("main")',
    'atexit': 'import atexit\natexit.register(print, "bye")\nprint("main")',
    'atexit_error': 'import atexit\natexit.register(lambda: 1/0)\nprint("main")',
    'atexit_exit': 'import atexit, sys\natexit.register(lambda: sys.exit(4))\nprint("main")',
    'del': 'class A:\n    def __init__(s, n): s.n = n\n    def __del__(s): print("del", s.n)\na = A(1)\nb = A(2)\nb.me = b\nprint("main")',
    'excepthook': 'import sys\nsys.excepthook = lambda *a: print("hook", a[0].__name__)\n1/0',
    'excepthook_bad': 'import sys\ndef h(*a):\n    raise TypeError("in hook")\nsys.excepthook = h\n1/0',
    'fork': 'import os\nif os.fork() == 0:\n    print("child")\n    raise SystemExit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))',
    'fork_raise': 'import os\nif os.fork() == 0:\n    raise ValueError("child")\nprint(os.waitstatus_to_exitcode(os.wait()[1]))',
    'subprocess': 'import subprocess, sys\nprint(subprocess.run([sys.executable, "-c", "import os;print(os.environ[\'MINE\'].encode(errors=\'surrogateescape\'))"], capture_output=True))\nprint(subprocess.run("exit 3", shell=True).returncode)',
    'multiprocessing': 'import multiprocessing as mp\ndef f(x):\n    return x * x\nif __name__ == "__main__":\n    with mp.Pool(2) as p:\n        print(p.map(f, range(5)))',
    'mp_spawn': 'import multiprocessing as mp\ndef f(q):\n    q.put(42)\nif __name__ == "__main__":\n    mp.set_start_method("spawn")\n    q = mp.Queue()\n    p = mp.Process(target=f, args=(q,))\n    p.start()\n    print(q.get())\n    p.join()\n    print(p.exitcode)',
    'futures': 'from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as e:\n    print(list(e.map(lambda x: x + 1, range(5))))',
    'asyncio': 'import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01)\n    return n\nasync def main():\n    print(await asyncio.gather(*[f(i) for i in range(3)]))\nasyncio.run(main())',
    'asyncio_error': 'import asyncio\nasync def f():\n    raise ValueError("x")\nasyncio.run(f())',
    'stdin': ('import sys\nfor line in sys.stdin:\n    print(repr(line))\n', [], b'a\nb\r\nc'),
    'input': ('a = input()\nb = input("prompt> ")\nprint(a, b)\ninput()', [], b'1\n2\n'),
    'stdin_bytes': ('import sys\nprint(sys.stdin.buffer.read())', [], b'\0\xff\n'),
    'stdin_surrogate': ('print(ascii(input()))', [], b'\xff\xfe\n'),
    'stdout_bytes': 'import sys\nsys.stdout.buffer.write(b"\\0\\xff\\n")\nprint("\\udcff")',
    'bad_surrogate': 'print("\\ud800")',
    'stderr_surrogate': 'import sys\nprint("\\ud800", file=sys.stderr)',
    'streams': 'import sys\nfor f in (sys.stdin, sys.stdout, sys.stderr):\n    print(f.name, f.mode, f.encoding, f.errors, f.fileno(), f.isatty(), f.newlines, f.buffer.raw.mode, repr(f))',
    'streams_orig': 'import sys\nprint(sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__, sys.stderr is sys.__stderr__, sys.displayhook, sys.excepthook)',
    'close_stdout': 'import sys\nprint("a")\nsys.stdout.close()',
    'close_fd': 'import os\nprint("a", flush=True)\nos.close(1)\nprint("b")',
    'no_stdout': 'import sys\nsys.stdout = None\nprint("x")\nsys.stderr = None\n1/0',
    'main_module': 'import sys, __main__\nprint(sorted(__main__.__dict__))\nprint(__name__, __file__, __doc__, __spec__, __package__, __cached__, type(__loader__).__name__, __builtins__)',
    'argv': ('import sys\nprint(sys.argv, sys.orig_argv, sys.executable, sys.flags, sys.path)', ['-x', 'a b', 'é'], b''),
    'environ': 'import os\nprint(sorted(os.environ.items()), os.getenv("MINE") == os.environ["MINE"], os.getcwd())',
    'environ_c': 'import ctypes\nlibc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_char_p\nprint(libc.getenv(b"MINE"), libc.getenv(b"LISTEN_FDS"))',
    'ids': 'import os\nprint(os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), os.getresuid(), oct(os.umask(0)))',
    'fds': 'import os\nprint(sorted(int(f) for f in os.listdir("/proc/self/fd"))[:-1])',
    'sessions': 'import os\nprint(os.getpid() == os.getsid(0), os.getpgid(0) == os.getpid())',
    'signals': 'import signal\nprint([(s, signal.getsignal(s)) for s in (1, 2, 13, 15, 17)], signal.pthread_sigmask(signal.SIG_BLOCK, []))',
    'threads': 'import threading, os\nprint(threading.current_thread(), threading.main_thread() is threading.current_thread(), threading.active_count(), threading.get_native_id() == os.getpid())',
    'warnings': 'import warnings\nwarnings.warn("careful")\nprint(warnings.filters)',
    'deprecated': 'def f(): pass\nx = "\\d"\nassert (1, "x")',
    'modules_fresh': 'import logging, locale\nlogging.warning("w")\nprint(locale.getlocale(), logging.getLogger().handlers)',
    'decimal': 'import decimal\nprint(decimal.getcontext(), decimal.Decimal(1) / 3)',
    'gc': 'import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug())',
    'hash': 'print(hash("a"), {"a", "b", "c"})',
    'random_seeded': 'import random\nrandom.seed(5)\nprint(random.random())',
    'relative': {'sub.py': 'X = 5', 'main': 'import sub\nprint(sub.X, sub.__file__)'},
    'import_error': {'sub.py': '1 / 0', 'main': 'import sub'},
    'import_syntax': {'sub.py': 'a b', 'main': 'import sub'},
    'no_module': 'import nothing_like_this',
    'dash_c': {'-c': 'import sys\nprint(sys.argv, sys.path[0], __name__, globals().keys())\n1/0'},
    'dash_c_syntax': {'-c': 'a b'},
    'dash_c_exit': {'-c': 'raise SystemExit(9)'},
    'dash_m': {'-m': 'mod', 'mod.py': 'import sys\nprint(sys.argv, sys.path[0], __name__, __spec__.name)\n1/0'},
    'dash_m_missing': {'-m': 'no_such_module'},
    'dash_m_json': ({'-m': 'json.tool'}, [], b'{"a":1}'),
    'dash_m_unittest': ({'-m': 'unittest', 'test_x.py': 'import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 2)'}, ['-q', 'test_x'], b''),
    'unittest_main': 'import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\nunittest.main()',
    'dataclass': 'from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nprint(P(1), __annotations__)',
    'pickle_main': 'import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)',
    'doctest': 'def f():\n    """\n    >>> f()\n    1\n    """\n    return 2\nimport doctest\nprint(doctest.testmod())',
    'missing': {'run': 'not_there.py'},
    'folder': {'run': 'pkg', 'pkg/__main__.py': 'import sys\nprint(sys.argv, __name__)'},
    'proc_self': 'print(len(open("/proc/self/maps").read()) > 100)',
    'rlimits': 'import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE))',
    'class_body_frames': 'import sys\nclass A:\n    f = sys._getframe(1).f_code.co_name\nprint(A.f)',
    'exc_info': 'import sys\nprint(sys.exc_info(), sys.exception())\ntry:\n    1/0\nexcept ZeroDivisionError as e:\n    print(e.__context__, e.__traceback__.tb_frame.f_back)',
    'generator_close': 'def g():\n    try:\n        yield 1\n    finally:\n        print("closed")\nx = g()\nnext(x)',
    'unraisable': 'class A:\n    def __del__(s): 1/0\na = A()\ndel a\nprint("on")',
    'input_eof': ('input()', [], b''),
    'tempfile': 'import tempfile, os\nwith tempfile.NamedTemporaryFile() as f:\n    print(os.path.dirname(f.name))',
    'broken_pipe': 'import os, sys\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nprint("x")',
}


# stdout is line-buffered in the warm interpreter, so that a kill loses no line: there the write fails in print().
STDERR_DIFFERS = {'close_fd', 'broken_pipe'}


def normal(data):
    """What may differ from run to run: addresses, temporary names, process numbers, times."""
    data = re.sub(rb'0x[0-9a-f]{6,}', b'0xADDRESS', data)
    data = re.sub(rb'(Thread\w*[^,]*, started(?: daemon)?) \d+', rb'\1 N', data)
    return re.sub(rb'in \d+\.\d+s', b'in N s', data)


class Server:
    def __init__(self, path):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.detach()

        def prepare():
            os.dup2(fd, 3)
        env = {k: v for k, v in ENV.items() if k != 'MINE'}
        self.process = subprocess.Popen([path], pass_fds=(3,), preexec_fn=prepare, env=env) if fd == 3 else \
            subprocess.Popen(['/bin/sh', '-c', f'exec "$0" 3<&{fd} {fd}<&-', path], pass_fds=(fd,), env=env)
        os.close(fd)
        assert self.sock.recv(1) == b'R'

    def start(self, argv, cwd, stdio):
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = os.open('/dev/null', os.O_WRONLY)
        socket.send_fds(self.sock, [b'A'], [null, theirs.fileno(), *stdio])
        theirs.close()
        os.close(null)
        pid = int(mine.recv(16))
        fields = [b'%d' % len(argv), b'%d' % len(ENV), b'256', b'%d' % (256 << 20), os.fsencode(cwd)]
        fields += [os.fsencode(a) for a in argv] + [os.fsencode(f'{k}={v}') for k, v in ENV.items()]
        mine.send(b''.join(f + b'\0' for f in fields))
        return pid

    def close(self):
        self.sock.close()
        self.process.wait()


def collect(stdin, pipes, timeout_s=30):
    """Feed stdin, read both outputs to their end."""
    (in_w, out_r, err_r), data = pipes, {pipes[1]: b'', pipes[2]: b''}
    try:
        os.write(in_w, stdin)
    except BrokenPipeError:
        pass
    os.close(in_w)
    waiting, deadline = [out_r, err_r], time.monotonic() + timeout_s
    while waiting:
        ready = select.select(waiting, [], [], max(0, deadline - time.monotonic()))[0]
        if not ready:
            raise TimeoutError
        for fd in ready:
            chunk = os.read(fd, 65536)
            data[fd] += chunk
            if not chunk:
                waiting.remove(fd)
    for fd in (out_r, err_r):
        os.close(fd)
    return normal(data[out_r]), normal(data[err_r])


def make_pipes():
    (in_r, in_w), (out_r, out_w), (err_r, err_w) = os.pipe(), os.pipe(), os.pipe()
    return (in_r, out_w, err_w), (in_w, out_r, err_r)


def run_warm(server, argv, cwd, stdin):
    theirs, mine = make_pipes()
    pid = server.start(argv, cwd, theirs)
    for fd in theirs:
        os.close(fd)
    out, err = collect(stdin, mine)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out, err


def run_real(argv, cwd, stdin):
    import resource
    theirs, mine = make_pipes()
    process = subprocess.Popen(argv, cwd=cwd, env=ENV, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2], user=UID,
                               group=UID, extra_groups=[], umask=0o22, start_new_session=True,
                               preexec_fn=lambda: (resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
                                                   resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
                                                   resource.setrlimit(resource.RLIMIT_STACK, (256 << 20, 256 << 20))))
    for fd in theirs:
        os.close(fd)
    out, err = collect(stdin, mine)
    return process.wait(), out, err


def lay_out(case, folder):
    """Write the case's files; its argv."""
    case, args, stdin = case if isinstance(case, tuple) else (case, [], b'')
    files = case if isinstance(case, dict) else {'main': case}
    argv = ['python3', 'main.py']
    for name, text in files.items():
        if name == '-c':
            argv = ['python3', '-c', text]
        elif name == '-m':
            argv = ['python3', '-m', text]
        elif name == 'run':
            argv = ['python3', text]
        else:
            path = os.path.join(folder, 'main.py' if name == 'main' else name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'wb') as f:
                f.write(text if isinstance(text, bytes) else text.encode())
    return argv + args, stdin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--warm', default=os.path.join(HERE, '../../templates/python/warm.py'))
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    if os.getuid() != 0 or sys.version_info[:2] != (3, 11):
        print('warm_parity: skipped, needs root and Python 3.11')
        return 77
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: the spares become our children
    bad = 0
    server = Server(os.path.abspath(options.warm))
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory(prefix='parity-') as folder:
            os.chmod(folder, 0o755)
            argv, stdin = lay_out(CASES[name], folder)
            try:
                want = run_real(argv, folder, stdin)
                have = run_warm(server, argv, folder, stdin)
            except TimeoutError:
                want, have = ('in time',) * 3, ('hangs',) * 3
            for what, w, h in zip(('status', 'stdout', 'stderr'), want, have):
                if w != h and not (what == 'stderr' and name in STDERR_DIFFERS):
                    bad += 1
                    print(f'{name}: {what} differs\n  python3: {w!r}\n  warm:    {h!r}')
    server.close()
    print(f'warm_parity: {len(options.names or CASES)} programs, {bad} differences')
    return 1 if bad else 0


if __name__ == '__main__':
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main())
