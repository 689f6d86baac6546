#!/usr/bin/python3
"""The warm interpreter: runs of Python start in a fork of this process, with the usual imports done.

It is started once by the guest agent, as root, before the snapshot, with a SOCK_SEQPACKET socket on fd 3. For every run
the agent asks for a spare ahead of time (guest/warm.h has the messages): a fork of a fork, so that init is its parent,
which sits in the run's cgroup with the run's pipes as 0, 1, 2, is already the job's user and all that a fresh `python3`
would be, and waits for the command. What is done before the command comes is off the job's path, and what the path
executes is cold code on an emulated processor: so next to nothing is left for it.

A program shall not be able to tell the difference from `python3 FILE`: same traceback, frames, recursion depth, exit
status, order of events at exit. What is odd (a folder or archive as script, a file that cannot be read) is given to the
real interpreter by exec.
"""
import sys
import os

SERVER_FD = 3
UID = 1000
REQUEST_MAX = 1 << 17
OPEN_FILES_MAX = 1 << 20
WORK = '/work'
WORK_BYTES = b'/work'

# What scripts import most, by our count over the HumanEval and MBPP kinds of problems. Cost: docs/templates.md.
import abc, argparse, array, ast, asyncio, atexit, base64, binascii, bisect, builtins, calendar, cmath, codecs  # noqa
import collections, collections.abc, contextlib, copy, csv, dataclasses, datetime, decimal, difflib, enum  # noqa
import errno, fractions, functools, gc, glob, hashlib, heapq, hmac, inspect, io, itertools, json, keyword  # noqa
import linecache, locale, logging, math, numbers, operator, pathlib, pickle, platform, pprint, queue, random, re  # noqa
import runpy, sched, secrets, select, selectors, shutil, signal, socket, statistics, string, struct, subprocess  # noqa
import tempfile, textwrap, threading, time, timeit, tokenize, traceback, types, typing, unicodedata, unittest  # noqa
import uuid, warnings, weakref, zlib  # noqa
import ctypes
import resource
import site

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE = 4


class _Frames:
    """Hides the frames of this file from what runs below exec().

    CPython 3.11 keeps the innermost frame in tstate->cframe->current_frame; a frame that is entered from C takes its
    `previous` from there. With NULL in that place during the call of a C function, the program's first frame has
    no caller, as in a fresh interpreter. The layout is that of Include/cpython/pystate.h of 3.11; any other version
    runs with the frames showing.
    """
    CFRAME_OFFSET, REMAINING_OFFSET = 56, 32
    CURRENT_OFFSET = 8

    def __init__(self):
        self.works = sys.version_info[:2] == (3, 11) and ctypes.sizeof(ctypes.c_void_p) == 8
        get = ctypes.pythonapi.PyThreadState_Get
        get.restype = ctypes.c_void_p
        self.tstate = get()

    def find(self):
        if self.works:
            cframe = ctypes.c_void_p.from_address(self.tstate + self.CFRAME_OFFSET).value
            self.current = ctypes.c_void_p.from_address(cframe + self.CURRENT_OFFSET)
            self.remaining = ctypes.c_int.from_address(self.tstate + self.REMAINING_OFFSET)


_frames = _Frames()


def _call_alone(function, *args):
    """function(*args) without a calling frame. function must be implemented in C.

    This function itself must be called from C (functools.partial), so that its own C-level frame list is the
    one that is changed.
    """
    frames = _frames
    if not frames.works:
        return function(*args)
    frames.find()
    current, remaining = frames.current, frames.remaining
    saved = current.value
    depth = sys.getrecursionlimit() - remaining.value + 1
    remaining.value += depth
    current.value = None
    try:
        return function(*args)
    finally:
        current.value = saved
        remaining.value -= depth


_alone = functools.partial(_call_alone)


def _open_stdio():
    for name, fd, mode, errors in (('stdin', 0, 'r', 'surrogateescape'),
                                   ('stdout', 1, 'w', 'surrogateescape'),
                                   ('stderr', 2, 'w', 'backslashreplace')):
        raw = io.FileIO(fd, mode + 'b', closefd=False)
        raw.name = '<%s>' % name
        buffered = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
        # Line by line, also into a pipe: what was printed before a kill is not lost.
        text = io.TextIOWrapper(buffered, 'utf-8', errors, '\n', line_buffering=fd > 0)
        text.mode = mode
        setattr(sys, name, text)
        setattr(sys, '__%s__' % name, text)


_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)


def _set_limits(*values):
    for which, value in zip(_LIMITS, values):
        try:
            resource.setrlimit(which, (value, value))
        except (ValueError, OSError):
            pass


def _free_limits():
    """Room for whatever the run's limits will be: its user may lower a hard limit, not raise it."""
    for which, value in zip(_LIMITS, (OPEN_FILES_MAX, resource.RLIM_INFINITY)):
        try:
            resource.setrlimit(which, (resource.getrlimit(which)[0], value))
        except (ValueError, OSError):
            pass


def _fresh_main():
    main = types.ModuleType('__main__')
    main.__loader__ = None
    main.__annotations__ = {}
    main.__builtins__ = builtins
    sys.modules['__main__'] = main


def _say(text):
    os.write(2, text.encode('utf-8', 'surrogateescape'))


def _report(kind, value, tb):
    """What CPython does with an exception that nobody caught. The exit status."""
    if issubclass(kind, SystemExit):
        code = value.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xff if -(1 << 63) <= code < 1 << 63 else 0xff
        try:
            sys.stderr.write(str(code) + '\n')
            sys.stderr.flush()
        except BaseException:
            pass
        return 1
    sys.last_type, sys.last_value, sys.last_traceback = kind, value, tb
    hook = getattr(sys, 'excepthook', None)
    try:
        if hook is None:
            _say('sys.excepthook is missing\n')
            sys.__excepthook__(kind, value, tb)
        else:
            _alone(functools.partial(hook, kind, value, tb))
    except SystemExit as e:
        return _report(SystemExit, e, None)
    except BaseException as e:
        _say('Error in sys.excepthook:\n')
        e.__traceback__ = _strip(e.__traceback__)  # the C code prints this one, not its argument
        sys.__excepthook__(type(e), e, e.__traceback__)
        _say('\nOriginal exception was:\n')
        sys.__excepthook__(kind, value, tb)
    return -signal.SIGINT if issubclass(kind, KeyboardInterrupt) else 1


def _strip(tb):
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    return tb


def _exec_real(argv):
    os.execv('/usr/bin/python3', argv)


def _program(argv, main):
    """The callable that is the program. May not return: exec of the real interpreter."""
    space = main.__dict__
    if argv[1] == '-c':
        sys.argv = ['-c'] + argv[3:]
        sys.path.insert(0, '')
        source = argv[2] + '\n'
        return lambda: _alone(exec, compile(source, '<string>', 'exec', dont_inherit=True), space)
    if argv[1] == '-m':
        sys.argv = ['-m'] + argv[3:]
        sys.path.insert(0, os.getcwd())
        return lambda: _alone(functools.partial(runpy._run_module_as_main, argv[2]))
    path = argv[1]
    sys.argv = argv[1:]
    try:
        if path.endswith(('.pyc', '.zip', '.pyz')) or os.path.isdir(path):
            _exec_real(argv)
        with open(path, 'rb') as f:
            source = f.read()
    except OSError:
        _exec_real(argv)
    if source[:4] == b'PK\x03\x04' or b'\0' in source:
        _exec_real(argv)
    full = os.path.join(os.getcwd(), path)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    main.__file__ = full
    main.__cached__ = None
    main.__loader__ = importlib_machinery.SourceFileLoader('__main__', full)
    try:
        code = compile(source, full, 'exec', dont_inherit=True)
    except SyntaxError:
        try:
            source.decode()
        except UnicodeDecodeError:
            _exec_real(argv)  # its tokenizer reads from the file, and says so
        raise
    return lambda: _alone(exec, code, space)


import importlib.machinery as importlib_machinery  # noqa: E402


def _run_main(argv):
    main = sys.modules['__main__']
    if site.ENABLE_USER_SITE and os.path.isdir(WORK + '/.local'):
        site.addusersitepackages(set())
    kind = value = tb = None
    try:
        _program(argv, main)()
    except BaseException as e:
        kind, value, tb = type(e), e, _strip(e.__traceback__)
        e.__traceback__ = tb
    if kind is None:
        return 0
    status = _report(kind, value, tb)
    return status


def _finish(status):
    """Py_FinalizeEx, as far as a program can see it: threads, atexit, flush, the last objects' __del__."""
    try:
        threading._shutdown()
    except BaseException as e:
        sys.stderr.write('Exception ignored in: %r\n' % (threading,))
        sys.__excepthook__(type(e), e, e.__traceback__)
    atexit._run_exitfuncs()
    good = _flush()
    if not good:
        status = 120
    sys.modules.pop('__main__', None)
    for name in ('last_type', 'last_value', 'last_traceback'):
        sys.__dict__.pop(name, None)
    _forget_modules()
    gc.collect()
    if good:
        _flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xff)


def _forget_modules():
    """What the program imported goes. New modules stand at the end of the dict: the many old ones are only looked at (which
    writes to their names' reference counts, a page fault each) when the number says that some are gone."""
    new = []
    for name in reversed(sys.modules):
        if name in _preloaded:
            break
        new.append(name)
    for name in new:
        sys.modules.pop(name, None)
    if len(sys.modules) != len(_preloaded) - 1:  # without __main__
        for name in list(sys.modules):
            if name not in _preloaded:
                sys.modules.pop(name, None)


def _flush():
    good = True
    for name in ('stdout', 'stderr'):
        f = getattr(sys, name, None)
        try:
            if f is not None and not getattr(f, 'closed', False):
                f.flush()
        except BaseException as e:
            if name == 'stdout':
                good = False
                try:
                    _say('Exception ignored in: %r\n' % (f,))
                    _say(''.join(traceback.format_exception_only(type(e), e)))
                except BaseException:
                    pass
    return good


def _settle():
    """All of a fresh interpreter that does not depend on the run."""
    _free_limits()
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        os.chdir(WORK)
        at = WORK_BYTES
    except OSError:  # outside a template; most runs bring another one then
        at = None
    _open_stdio()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _fresh_main()
    return at


def _set_env(env):
    """The run's environment, in its order; most often it is the one that is there already."""
    if env == _env:
        return
    for key in list(os.environb):
        del os.environb[key]
    for item in env:
        key, _, value = item.partition(b'=')
        os.environb[key] = value
    if os.environ.get('TZ') != 'UTC':
        time.tzset()


def _become(request, at):
    """From the request to the job's process: everything but the program itself. at: the working directory."""
    head = request.split(b'\0', 5)
    argc, envc, open_files, stack_bytes = map(int, head[:4])
    rest = head[5].split(b'\0')
    _set_env(rest[argc:argc + envc])
    _set_limits(open_files, stack_bytes)
    if head[4] != at:
        try:
            os.chdir(head[4])
        except OSError as e:
            _say('working directory: %s\n' % e.strerror)
            os._exit(127)
    random.seed()
    return [os.fsdecode(a) for a in rest[:argc]]


def _rehearse():
    """Do with harmless input what a run will do, before there is a run: the pages that it writes (reference counts,
    above all) are then this process's own already, and its code is hot."""
    with open('/dev/null', 'w') as null:
        sys.stdout = sys.stderr = null
        space = {'__name__': '__main__', '__builtins__': builtins}
        source = 'import sys, math\ndef f(n):\n    return [x * x for x in range(n)]\nprint(f(3), "%.2f" % 1.5, {1: "a"})\n'
        try:
            _alone(exec, compile(source, '<string>', 'exec', dont_inherit=True), space)
            raise ValueError('x')
        except ValueError as e:
            traceback.print_exception(e)
        for key, value in list(os.environb.items()):
            os.environb[key] = value
        random.seed()
        space.clear()
        _rehearse_end()
    sys.stdout = sys.stderr = None
    linecache.clearcache()


def _rehearse_end():
    """What _finish does, undone again."""
    main = threading._main_thread
    lock = main._tstate_lock
    threading._shutdown()
    lock.acquire()
    main._tstate_lock, main._is_stopped, threading._SHUTTING_DOWN = lock, False, False
    logging.shutdown([lambda: logging.lastResort])
    _flush()
    gc.collect()


def _spare(sock):
    _rehearse()
    _wait_and_run(sock)


def _wait_and_run(sock):
    at = _settle()
    sock.send(b'%d' % os.getpid())
    request = sock.recv(REQUEST_MAX)
    if not request:
        os._exit(0)
    sock.detach()
    os.close(REQUEST_FD)
    argv = _become(request, at)
    sys.orig_argv[:] = argv
    _finish(_run_main(argv))


REQUEST_FD = 4


def _arm(fds):
    """A spare: the process between is gone at once, so that init is the spare's parent."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.write(fds[0], b'0')
        with open('/proc/self/oom_score_adj', 'w') as f:
            f.write('0')
        if os.fork():
            os._exit(0)
        os.setsid()
        os.umask(0o22)
        os.setgroups([])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for fd, source in enumerate(fds[2:5]):
            os.dup2(source, fd)
        os.dup2(fds[1], REQUEST_FD, inheritable=False)
        os.closerange(REQUEST_FD + 1, REQUEST_FD + 32)
        os.close(SERVER_FD)
        _spare(socket.socket(fileno=REQUEST_FD))
    finally:
        os._exit(71)


_syscall = ctypes.PyDLL(None).syscall
_SYS_CLONE3, _SYS_SECCOMP = 435, 317
_CLONE_PARENT, _CLONE_INTO_CGROUP, _CLONE_NEWPID = 0x8000, 0x200000000, 0x20000000
_CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID = 0x1000000, 0x200000
_CELL_SPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x40000000  # mount, uts, ipc, net
_PR_SET_NO_NEW_PRIVS = 38


def _own_tid_address():
    """Where glibc keeps the thread's number, which a fork that it does not make leaves at the parent's. 0: not known."""
    get = ctypes.pythonapi.PyThread_get_thread_ident
    get.restype = ctypes.c_ulong
    address = get() + 0x2d0  # struct pthread of glibc 2.36, x86-64
    return address if ctypes.c_int.from_address(address).value == os.getpid() else 0


def _fork_beside(cgroup_fd):
    """os.fork(), but the child is in that cgroup from the start, and its parent is ours: one fork instead of two."""
    tid = _own_tid_address()
    flags = _CLONE_PARENT | _CLONE_INTO_CGROUP | (tid and _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID)
    args = (ctypes.c_uint64 * 11)(flags, 0, tid, 0, 0, 0, 0, 0, 0, 0, cgroup_fd)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _syscall(_SYS_CLONE3, args, 88)
    if pid:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def _confine(code):
    """The filter is for what is forked from here on; the server itself needs nothing that it takes away."""
    class Program(ctypes.Structure):
        _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_char_p)]
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _syscall(_SYS_SECCOMP, 1, 0, ctypes.byref(Program(len(code) // 8, code))) != 0:
        os._exit(72)


def _arm_in_cell(fds):
    """A spare in a container: its pid namespace is entered by being forked into it, the others by the spare."""
    cgroup, sock, cell = fds[0], fds[1], fds[5]
    if _libc.setns(cell, _CLONE_NEWPID) != 0 or _fork_beside(cgroup) != 0:
        return
    try:
        with open('/proc/self/oom_score_adj', 'w') as f:
            f.write('0')
        if _libc.setns(cell, _CELL_SPACES) != 0:
            os._exit(73)
        os.setsid()
        os.umask(0o22)
        os.setgroups([])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for fd, source in enumerate(fds[2:5]):
            os.dup2(source, fd)
        os.dup2(sock, REQUEST_FD, inheritable=False)
        os.closerange(REQUEST_FD + 1, REQUEST_FD + 32)
        os.close(SERVER_FD)
        _wait_and_run(socket.socket(fileno=REQUEST_FD))
    finally:
        os._exit(71)


def _serve():
    server = socket.socket(fileno=SERVER_FD)
    for name in ('stdin', 'stdout', 'stderr'):
        setattr(sys, name, None)
        setattr(sys, '__%s__' % name, None)
    while sys.path and sys.path[0] in ('', os.path.dirname(__file__)):
        del sys.path[0]
    gc.collect()
    gc.freeze()
    server.send(b'R')
    confined = False
    while True:
        data, fds, _, _ = socket.recv_fds(server, 1024, 6)
        if not data:
            return
        if data[:1] == b'C':
            if not confined:
                confined = True
                _confine(data[1:])
            _arm_in_cell(fds)
        else:
            _arm(fds)
        for fd in fds:
            os.close(fd)


_preloaded = ()
_env = [key + b'=' + value for key, value in os.environb.items()]
if __name__ == '__main__':
    _preloaded = frozenset(sys.modules)
    _serve()
