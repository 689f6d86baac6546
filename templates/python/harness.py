"""Hidden Python tests against a candidate that is hostile: python3 /usr/lib/brood/harness CANDIDATE.py [ENTRY]

stdin: one line that is printed when all tests have passed, then the tests' source. Exit status 0 and that line on stdout:
every test ran and passed, and they have used the candidate. 1: a test failed (why is on stderr). 2: the candidate's process is gone. 3: the tests themselves
are at fault. Contract: docs/verdicts.md, "Python tests".

Two processes. This one holds the tests, and is never the candidate: it makes itself undumpable, so that a process of the
same user can neither trace it nor read its memory or descriptors, forks, and only then reads the tests. The other one runs
the candidate's code. They talk over a socket in which only data is: numbers, strings, containers. What the candidate
returns is rebuilt here from plain types, so there is no foreign __eq__, no exit, no patched builtin and no thread in the
process that compares. A candidate can end its own process, or this one: then the tests did not pass.
"""
import ast
import builtins
import collections
import ctypes
import datetime
import decimal
import fractions
import inspect
import json
import os
import socket
import struct
import sys
import traceback
import types
import unittest

MESSAGE_MAX = 64 << 20
ITEMS_MAX = 1 << 20
PR_SET_DUMPABLE = 4
# Modules that a test may use under the name by which the candidate has imported them.
MODULES = ('math', 'cmath', 'collections', 'itertools', 'functools', 're', 'random', 'string', 'typing', 'heapq', 'bisect',
           'datetime', 'decimal', 'fractions', 'statistics', 'copy', 'json', 'sys', 'os', 'operator', 'hashlib', 'time')
PLAIN = (type(None), bool, str)
FACTORIES = {kind.__name__: kind for kind in (int, list, dict, set, str, float, tuple, bool)}
VIEWS = {type({}.keys()): 'k', type({}.values()): 'v', type({}.items()): 'm'}
holds_tests = False  # this process: what it hands over must arrive as what it is, or not at all


class Uncrossable(TypeError):
    """A value that is not data."""


def encode(x, depth=0):
    if depth > 200:
        raise Uncrossable('nested too deeply')
    down = depth + 1
    kind = type(x)
    if kind in PLAIN:
        return x
    if isinstance(x, bool):
        return bool(x)
    if isinstance(x, int):
        return ['i', '%x' % x]
    if isinstance(x, float):
        return ['f', float(x).hex()]
    if isinstance(x, complex):
        return ['c', x.real.hex(), x.imag.hex()]
    if isinstance(x, str):
        return str.__str__(x)
    if isinstance(x, (bytes, bytearray)):
        return ['b' if isinstance(x, bytes) else 'y', bytes(x).hex()]
    if isinstance(x, dict):
        items = (collections.OrderedDict if isinstance(x, collections.OrderedDict) else dict).items(x)
        pairs = [[encode(k, down), encode(v, down)] for k, v in items]
        if isinstance(x, collections.defaultdict) and x.default_factory is not None:
            for name, factory in FACTORIES.items():
                if factory is x.default_factory:
                    return ['e', pairs, name]
            if holds_tests:
                raise Uncrossable('a defaultdict of %r is not data' % (x.default_factory,))
        return ['C' if isinstance(x, collections.Counter) else 'o' if isinstance(x, collections.OrderedDict) else 'd', pairs]
    if isinstance(x, collections.deque):
        return ['q', [encode(v, down) for v in collections.deque.__iter__(x)], x.maxlen]
    for tag, container in (('l', list), ('t', tuple), ('s', set), ('z', frozenset)):
        if isinstance(x, container):
            return [tag, [encode(v, down) for v in container.__iter__(x)]]
    if kind is range:
        return ['r', x.start, x.stop, x.step]
    if kind is decimal.Decimal:
        return ['D', str(x)]
    if kind is fractions.Fraction:
        return ['F', str(x)]
    if kind is datetime.datetime:
        return ['T', x.isoformat()]
    if kind is datetime.date:
        return ['A', x.isoformat()]
    if kind is datetime.timedelta:
        return ['E', x.days, x.seconds, x.microseconds]
    if kind in VIEWS:
        return [VIEWS[kind], [encode(v, down) for v in x]]
    if hasattr(kind, '__next__'):
        items = []
        for v in x:
            if len(items) == ITEMS_MAX:
                raise Uncrossable('an iterator of more than %d items' % ITEMS_MAX)
            items.append(encode(v, down))
        return ['g', items]
    raise Uncrossable('%s is not data' % kind.__name__)


def decode(x):
    """Only ever builds the types named here, whatever the other side has sent."""
    if type(x) in PLAIN:
        return x
    tag = x[0]
    if tag == 'i':
        return int(x[1], 16)
    if tag == 'f':
        return float.fromhex(x[1])
    if tag == 'c':
        return complex(float.fromhex(x[1]), float.fromhex(x[2]))
    if tag in 'by':
        return (bytes if tag == 'b' else bytearray).fromhex(x[1])
    if tag in 'dCoe':
        pairs = {decode(k): decode(v) for k, v in x[1]}
        if tag == 'e':
            return collections.defaultdict(FACTORIES[x[2]], pairs)
        return pairs if tag == 'd' else {'C': collections.Counter, 'o': collections.OrderedDict}[tag](pairs)
    if tag in 'ltszqgkvm':
        items = [decode(v) for v in x[1]]
        if tag == 'q':
            return collections.deque(items, x[2])
        if tag == 'k':
            return dict.fromkeys(items).keys()
        if tag == 'v':
            return dict(enumerate(items)).values()
        if tag == 'm':
            return dict(items).items()
        return {'l': list, 't': tuple, 's': set, 'z': frozenset, 'g': iter}[tag](items)
    if tag == 'r':
        return range(int(x[1]), int(x[2]), int(x[3]))
    if tag == 'D':
        return decimal.Decimal(x[1])
    if tag == 'F':
        return fractions.Fraction(x[1])
    if tag == 'T':
        return datetime.datetime.fromisoformat(x[1])
    if tag == 'A':
        return datetime.date.fromisoformat(x[1])
    if tag == 'E':
        return datetime.timedelta(x[1], x[2], x[3])
    raise ValueError('unknown tag')


def send(sock, message):
    data = json.dumps(message).encode()
    if len(data) > MESSAGE_MAX:
        raise Uncrossable('more than %d bytes' % MESSAGE_MAX)
    sock.sendall(struct.pack('>I', len(data)) + data)


def receive(sock):
    head = sock.recv(4, socket.MSG_WAITALL)
    if len(head) != 4:
        raise EOFError
    size = struct.unpack('>I', head)[0]
    if size > MESSAGE_MAX:
        raise ValueError('too long')
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return json.loads(parts)


# ---- the candidate's process ----

def look_up(space, name):
    if name not in space:
        return ['none']
    value = space[name]
    if isinstance(value, types.ModuleType):
        return ['module', value.__name__]
    if callable(value):
        return ['callable']
    return ['value', encode(value)]


def answer(space, request):
    what, name = request[0], request[1]
    if what == 'look_up':
        return look_up(space, name)
    args, kwargs = decode(request[2]), decode(request[3])
    before = request[2][1] + [v for _, v in request[3][1]]
    try:
        reply = ['value', encode(space[name](*args, **kwargs))]
    except BaseException as e:
        reply = raised(e)
    after = [encode(a) for a in [*args, *kwargs.values()]]  # an iterator may end here: its call is over
    return reply + [[a if a != b else None for a, b in zip(after, before)]]


def raised(e):
    traceback.print_exc()
    return ['raised', [[c.__name__ for c in type(e).__mro__], str(e)[:10000]]]


def candidate_main(sock, path):
    null = os.open('/dev/null', os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    space = {'__name__': 'candidate', '__builtins__': builtins, '__file__': path}
    module = types.ModuleType('candidate')
    module.__dict__.update(space)
    space = module.__dict__
    sys.modules['candidate'] = module
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    with open(path, encoding='utf-8') as f:
        exec(compile(f.read(), path, 'exec', dont_inherit=True), space)
    send(sock, ['ready'])
    while True:
        request = receive(sock)
        try:
            reply = answer(space, request)
        except BaseException as e:
            reply = raised(e) + [[]]
        sys.stdout.flush()
        send(sock, reply)


# ---- the tests' process ----

class CandidateError(Exception):
    """Raised in a test when the candidate raised something that is no built-in Exception."""


class Gone(BaseException):
    """The candidate's process has ended, or speaks nonsense."""


class Broken(BaseException):
    """The tests cannot be run."""


class Candidate:
    def __init__(self, sock):
        self.sock = sock
        self.failed = 0  # exit status that no `except:` of a test undoes
        self.uses = 0  # calls, and names that the tests have looked up

    def ask(self, request):
        try:
            send(self.sock, request)
            return receive(self.sock)
        except (OSError, EOFError, ValueError, RecursionError) as e:
            self.failed = 2
            raise Gone(repr(e)) from None

    def call(self, name, args, kwargs):
        try:
            request = ['call', name, encode(list(args)), encode(kwargs)]
        except Uncrossable as e:
            self.failed = 3
            raise Broken('an argument for %s cannot be handed over: %s' % (name, e)) from None
        self.uses += 1
        reply = self.ask(request)
        try:
            for mine, changed in zip([*args, *kwargs.values()], reply[2]):
                if changed is not None:
                    update(mine, decode(changed))
            if reply[0] == 'value':
                return decode(reply[1])
            names, text = reply[1][0], str(reply[1][1])
        except (KeyError, IndexError, TypeError, ValueError, RecursionError, ArithmeticError) as e:
            self.failed = 2
            raise Gone('a broken answer: %r' % e) from None
        raise rebuilt(names, text)

    def look_up(self, name):
        reply = self.ask(['look_up', name])
        if reply[0] == 'callable':
            return lambda *args, **kwargs: self.call(name, args, kwargs)
        if reply[0] == 'module' and reply[1] in MODULES:
            return __import__(reply[1])
        if reply[0] == 'value':
            return decode(reply[1])
        raise KeyError(name)


def update(mine, changed):
    """What a function did to its argument is done to the test's own object; what is in it are new objects."""
    kind = next((k for k in (tuple, list, bytearray, collections.deque, dict, set)
                 if isinstance(mine, k) and isinstance(changed, k)), None)
    if kind is tuple:
        for a, b in zip(mine, changed):
            update(a, b)
    elif kind in (list, bytearray):
        mine[:] = changed
    elif kind is not None:
        mine.clear()
        (mine.extend if kind is collections.deque else mine.update)(changed)


def rebuilt(names, text):
    for name in names if isinstance(names, list) else []:
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
            return kind(text)
    return CandidateError('%s: %s' % (names, text))


class Space(dict):
    """The tests' names; what they do not define is the candidate's."""

    def __init__(self, candidate):
        super().__init__(__name__='tests', __builtins__=builtins)
        self.candidate = candidate

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        value = self.candidate.look_up(name)
        self.candidate.uses += 1
        return value


def call_test(function, name, *args):
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        raise Broken('%s takes arguments, and there are no fixtures' % name) from None
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise Broken('%s is no plain function' % name)
    function(*args)


def run_functions(space, tree):
    """Tests as pytest finds them. Those that the tests themselves name anywhere are theirs to call."""
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, value in list(space.items()):
        if name in named or getattr(value, '__module__', None) != space['__name__']:
            continue
        if isinstance(value, types.FunctionType) and name.startswith('test'):
            call_test(value, name)
        elif isinstance(value, type) and name.startswith('Test') and not issubclass(value, unittest.TestCase):
            for method in dir(value):
                if method.startswith('test') and callable(getattr(value, method)):
                    mine = value()
                    getattr(mine, 'setup_method', bool)()
                    call_test(getattr(mine, method), '%s.%s' % (name, method))
                    getattr(mine, 'teardown_method', bool)()


def run_unittests(space):
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for kind in list(space.values()):
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase):
            suite.addTests(loader.loadTestsFromTestCase(kind))
    if suite.countTestCases() == 0:
        return True
    return unittest.TextTestRunner(stream=sys.stderr).run(suite).wasSuccessful()


def run_tests(source, entry, candidate):
    space = Space(candidate)
    try:
        tree = ast.parse(source, 'tests')
        code = compile(tree, 'tests', 'exec', dont_inherit=True)
    except (SyntaxError, ValueError):
        traceback.print_exc()
        return 3
    try:
        exec(code, space)
        if 'check' in space and entry:
            space['check'](candidate.look_up(entry))
        run_functions(space, tree)
        if not run_unittests(space):
            return 1
        if candidate.uses == 0:
            raise Broken('no test has used the candidate%s' % (
                '; check(candidate) is called only with an ENTRY' if 'check' in space and not entry else ''))
        return 0
    except Gone as e:
        print('harness: the candidate is gone: %s' % e, file=sys.stderr)
        return 2
    except Broken as e:
        print('harness: %s' % e, file=sys.stderr)
        return 3
    except BaseException:
        traceback.print_exc()
        return 1


def main():
    global holds_tests
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 or len(sys.argv) not in (2, 3):
        return 3
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            mine.close()
            candidate_main(theirs, sys.argv[1])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    holds_tests = True
    theirs.close()
    text = sys.stdin.read()
    done, _, source = text.partition('\n')
    candidate = Candidate(mine)
    try:
        if receive(mine) != ['ready']:
            raise ValueError
    except (OSError, EOFError, ValueError, RecursionError):
        print('harness: the candidate does not load', file=sys.stderr)
        return 2
    status = run_tests(source, sys.argv[2] if len(sys.argv) == 3 else '', candidate)
    sys.stdout.flush()
    status = status or candidate.failed
    if status == 0:
        os.write(1, done.encode() + b'\n')
    return status


def run():
    status = main()
    sys.stderr.flush()
    os._exit(status)


if __name__ == '__main__':
    run()
