#!/usr/bin/python3
"""OpenStack Swift with its S3 layer as a test server: account, container, object and proxy server in one process.

usage: swift_s3.py DIR

DIR is an empty folder on a file system with user xattrs. Listens on loopback ports of the kernel's choice, prints
"ready ENDPOINT ACCESS_KEY SECRET_KEY" when it answers, and ends when its standard input does. Prints "skip WHY" and ends
with status 0 where Swift is not installed (Debian: python3-swift) or the folder cannot hold its xattrs.

This is how Swift's own functional tests run it (test/functional/__init__.py, in_process_setup): no service, no ring
builder, no memcached, one replica.
"""
import array
import os
import sys

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
PART_POWER = 2

# min_segment_size: parts may be small, so that the logic of parts is tested with bodies of a megabyte
PROXY_CONF = """
[DEFAULT]
swift_dir = {dir}
[pipeline:main]
pipeline = catch_errors proxy-logging listing_formats bulk s3api tempauth slo proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
dns_compliant_bucket_names = true
check_bucket_owner = false
location = {region}
storage_domain = s3.localhost
min_segment_size = 1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
"""


class Cache:
    """What Swift wants of memcached, in one process."""

    def __init__(self):
        self.values = {}

    def get(self, key, raise_on_error=False):
        return self.values.get(key)

    def set(self, key, value, *args, **kwargs):
        self.values[key] = value

    def delete(self, key, server_key=None):
        self.values.pop(key, None)

    def incr(self, key, delta=1, time=0):
        self.values[key] = max(0, self.values.get(key, 0) + delta)
        return self.values[key]


def skip(why):
    print("skip", why, flush=True)
    sys.exit(0)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    top = os.path.abspath(sys.argv[1])
    try:
        import eventlet
        eventlet.patcher.monkey_patch(all=False, socket=True, select=True, thread=True, time=True)
        from eventlet import wsgi
        from swift.account import server as account_server
        from swift.common import utils
        from swift.common.ring import RingData
        from swift.common.storage_policy import POLICIES
        from swift.common.wsgi import SwiftHttpProtocol, loadapp
        from swift.container import server as container_server
        from swift.obj import server as object_server
    except ImportError as e:
        skip("Swift is not installed (package python3-swift): %s" % e)
    try:
        probe = os.path.join(top, "probe")
        open(probe, "w").close()
        os.setxattr(probe, "user.swift.probe", b"1")
        os.unlink(probe)
    except OSError as e:
        skip("%s cannot hold user xattrs: %s" % (top, e))

    devices = os.path.join(top, "devices")
    for part in ("sda1/tmp", "sda1/accounts", "sda1/containers", "sda1/objects"):
        os.makedirs(os.path.join(devices, part))
    utils.HASH_PATH_SUFFIX = utils.HASH_PATH_PREFIX = b"brood"

    class Quiet:
        def write(self, *_):
            pass

    logger = utils.get_logger({"log_name": "swift", "log_level": "ERROR"}, log_to_console=True)
    conf = {"devices": devices, "swift_dir": top, "mount_check": "false", "allowed_sync_hosts": "127.0.0.1"}

    def serve(app, name=None):
        sock = eventlet.listen(("127.0.0.1", 0))
        eventlet.spawn(wsgi.server, sock, app, Quiet(), protocol=SwiftHttpProtocol, log_output=False, debug=False)
        port = sock.getsockname()[1]
        if name:
            device = {"id": 0, "zone": 1, "region": 1, "device": "sda1", "ip": "127.0.0.1", "port": port, "weight": 1.0,
                      "replication_ip": "127.0.0.1", "replication_port": port}
            assignment = [array.array("H", [0] * 2 ** PART_POWER)]
            RingData(assignment, [device], 32 - PART_POWER).save(os.path.join(top, name + ".ring.gz"))
        return port

    serve(account_server.AccountController(conf, logger=logger), "account")
    serve(container_server.ContainerController(conf, logger=logger), "container")
    serve(object_server.ObjectController(conf, logger=logger), "object")
    POLICIES.default.object_ring = None
    proxy_conf = os.path.join(top, "proxy.conf")
    with open(proxy_conf, "w") as f:
        f.write(PROXY_CONF.format(dir=top, region=REGION))
    pipeline = loadapp(proxy_conf, global_conf={"swift_dir": top, "log_level": "ERROR"})
    cache = Cache()

    def app(env, start_response):
        env["swift.cache"] = cache
        return pipeline(env, start_response)

    port = serve(app)
    print("ready http://127.0.0.1:%d %s %s" % (port, ACCESS_KEY, SECRET_KEY), flush=True)
    eventlet.hubs.trampoline(0, read=True)
    os._exit(0)


main()
