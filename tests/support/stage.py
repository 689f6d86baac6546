"""A home with the real Redis, Postgres, vmpool and scheduler of `brood up`, and the worker whose outcomes are scripted.

`brood up` starts the programs beside its own: the stage is a folder of hard links in which brood-worker is
brood-worker-scripted. Used by tests/chaos and bench/control."""
import os
import shutil
import subprocess
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BROOD_BUILD") or os.path.join(TOP, "build")


class Stage:
    """with Stage(settings) as s: brood is up at s.home."""

    def __init__(self, settings=None, env=None, scripted=True, home=None):
        self.settings = dict(settings or {})
        self.dir = tempfile.mkdtemp(prefix="brood-stage-")
        os.chmod(self.dir, 0o755)
        self.home = home or os.path.join(self.dir, "home")
        self.bin = os.path.join(self.dir, "bin")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BROOD_")}
        self.env["BROOD_HOME"] = self.home
        self.env.update(env or {})
        self.scripted = scripted
        self.run_dir = None

    def link(self, name, program):
        target = os.path.join(self.bin, name)
        if os.path.exists(target):
            os.unlink(target)
        try:
            os.link(os.path.join(BUILD, program), target)
        except OSError:
            shutil.copy2(os.path.join(BUILD, program), target)

    def __enter__(self):
        os.makedirs(self.bin, exist_ok=True)
        os.makedirs(self.home, exist_ok=True)
        for name in ("brood", "brood-scheduler", "brood-vmpool", "brood-qemu-seed"):
            if os.path.exists(os.path.join(BUILD, name)):
                self.link(name, name)
        for name in os.listdir(BUILD):
            if name.endswith(".so"):
                self.link(name, name)
        self.link("brood-worker", "tests/bin/brood-worker-scripted" if self.scripted else "brood-worker")
        with open(os.path.join(self.home, "brood.ini"), "w", encoding="utf-8") as f:
            for key, value in self.settings.items():
                section, name = key.split(".")
                f.write("[%s]\n%s = %s\n" % (section, name, value))
        self.up()
        if self.scripted:
            self.sql("INSERT INTO templates VALUES ('python', 'scripted', 256, 1) ON CONFLICT DO NOTHING")
        return self

    def __exit__(self, *_):
        self.brood("down", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        run_dir = self.run_dir
        if run_dir and os.path.isdir(run_dir) and not os.listdir(run_dir):
            os.rmdir(run_dir)

    def up(self):
        self.brood("up", "--detach")
        for line in self.brood("doctor", "--config", check=False).splitlines():
            if line.startswith("vmpool.socket") or line.startswith("socket"):
                self.run_dir = os.path.dirname(line.split("=", 1)[1].strip())

    def brood(self, *argv, check=True, timeout_s=180, stdin=None):
        done = subprocess.run([os.path.join(self.bin, "brood"), *argv], env=self.env, capture_output=True, text=True,
                              timeout=timeout_s, stdin=stdin or subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise RuntimeError("brood %s: exit %d\n%s" % (" ".join(argv), done.returncode, done.stderr))
        return done.stdout

    def sql(self, text, check=True):
        done = subprocess.run(["psql", "-X", "-q", "-At", "-h", os.path.join(self.run_dir, "pg"), "-U", "brood", "-d", "brood",
                               "-v", "ON_ERROR_STOP=1", "-c", text], capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise RuntimeError("psql: %s" % done.stderr)
        return done.stdout.strip()

    def redis(self, *argv):
        return subprocess.run(["redis-cli", "-s", os.path.join(self.run_dir, "redis.sock"), *argv], capture_output=True,
                              text=True, timeout=60).stdout.strip()

    def pid(self, name):
        """Of a service of the supervisor; None while it is not running."""
        try:
            with open(os.path.join(self.run_dir, "pids", name), encoding="utf-8") as f:
                return int(f.read().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def wait(self, what, seconds, poll_s=0.1):
        """what() until it is true; False when it never was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if what():
                return True
            time.sleep(poll_s)
        return False
