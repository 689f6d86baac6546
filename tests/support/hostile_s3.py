#!/usr/bin/python3
"""An S3 server that does wrong on purpose, for tests/integration/test_object_faults.c.

The bucket's name says what goes wrong, digits at its end aside; objects are kept in memory. Signatures are not checked. Every request is counted:
GET /_count/BUCKET answers the number of requests seen for BUCKET, /_log/BUCKET their lines.

usage: hostile_s3.py [DIR]; prints "ready ENDPOINT", ends when standard input does.
"""
import hashlib
import os
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
objects, log, uploads, inputs = {}, {}, {}, {}
stop = threading.Event()

ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId></Error>'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", headers=()):
        if isinstance(body, str):
            body = body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code, message="as asked"):
        self.reply(status, ERROR % (code, message))

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        # shutdown sends the reset at once; close alone waits for the handler's files
        self.rfile.close()
        self.connection.close()

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError, OSError):
            self.close_connection = True

    def whole(self, data):
        """A correct GET or HEAD, ranges too."""
        m = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        if not m:
            return self.reply(200, data, [("ETag", '"e"')])
        first = int(m[1])
        last = min(int(m[2]), len(data) - 1) if m[2] else len(data) - 1
        if first >= len(data):
            return self.error(416, "InvalidRange")
        self.reply(206, data[first:last + 1],
                   [("Content-Range", "bytes %d-%d/%d" % (first, last, len(data))), ("ETag", '"e"')])

    def serve(self):
        path, _, query = self.path.partition("?")
        parts = path.lstrip("/").split("/", 1)
        bucket, key = self.bucket, key = parts[0], urllib.parse.unquote(parts[1]) if len(parts) > 1 else ""
        if bucket in ("_count", "_log"):
            with lock:
                lines = list(log.get(key, []))
            return self.reply(200, str(len(lines)) if bucket == "_count" else "\n".join(lines))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        args = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        with lock:
            seen = log.setdefault(bucket, [])
            seen.append("%s %s" % (self.command, self.path))
            n = len(seen)
            same = sum(1 for line in seen if line == seen[-1])
        fault = getattr(self, "fault_" + bucket.replace("-", "_").rstrip("0123456789"), None)
        if fault and fault(n=n, same=same, key=key, args=args, body=body):
            return None
        return self.right(bucket, key, args, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def right(self, bucket, key, args, body):
        want = self.headers.get("x-amz-content-sha256", "")
        if body and want != hashlib.sha256(body).hexdigest():
            return self.error(400, "XAmzContentSHA256Mismatch")
        with lock:
            data = objects.get((bucket, key))
            if self.command == "PUT" and "uploadId" not in args:
                objects[bucket, key] = body
            elif self.command == "PUT":
                uploads[args["uploadId"]][int(args["partNumber"])] = body
            elif self.command == "DELETE" and "uploadId" in args:
                uploads.pop(args["uploadId"], None)
            elif self.command == "DELETE":
                objects.pop((bucket, key), None)
            elif self.command == "POST" and "uploads" in args:
                upload = "u/%d=" % (len(uploads) + 1)
                uploads[upload] = {}
                return self.reply(200, "<R><UploadId>%s</UploadId></R>" % upload)
            elif self.command == "POST":
                got = uploads.pop(args["uploadId"], None)
                if got is None:
                    return self.error(404, "NoSuchUpload")
                objects[bucket, key] = b"".join(got[i] for i in sorted(got))
                return self.reply(200, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
        if self.command == "PUT":
            return self.reply(200, b"", [("ETag", '"%s"' % hashlib.md5(body).hexdigest())])
        if self.command == "DELETE":
            return self.reply(204)
        if key == "":
            return self.reply(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        if data is None:
            return self.error(404, "NoSuchKey")
        return self.whole(data)

    # ---- one fault a bucket: True when it answered ----

    def fault_first_fails(self, same, **_):
        """500, then 503, then right: each request."""
        if same <= 2:
            self.error(*((500, "InternalError") if same == 1 else (503, "SlowDown")))
        return same <= 2

    def fault_always_busy(self, **_):
        self.error(503, "SlowDown", "Please reduce your request rate &amp; wait.")
        return True

    def fault_too_many(self, same, **_):
        if same == 1:
            self.error(429, "TooManyRequests")
        return same == 1

    def fault_forbidden(self, **_):
        self.error(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        return True

    def fault_absent(self, **_):
        self.error(404, "NoSuchBucket", "The specified bucket does not exist")
        return True

    def fault_elsewhere(self, **_):
        self.reply(301, ERROR % ("PermanentRedirect", "Use the right endpoint."),
                   [("x-amz-bucket-region", "eu-west-3"), ("Location", "http://127.0.0.1:9/")])
        return True

    def fault_slow(self, **_):
        if self.command != "GET":
            return False
        m = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.send_response(206 if m else 200)
        if m:
            self.send_header("Content-Range", "bytes %s-999/1000" % m[1])
        self.send_header("Content-Length", str(1000 - int(m[1]) if m else 1000))
        self.end_headers()
        self.wfile.write(b"x" * 10)
        self.wfile.flush()
        stop.wait(60)
        self.close_connection = True
        return True

    def broken(self, data, cut, announce):
        """Send the answer only up to byte cut of data."""
        m = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        first = int(m[1]) if m else 0
        last = min(int(m[2]), len(data) - 1) if m and m[2] else len(data) - 1
        self.send_response(206 if m else 200)
        if m:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))
        if announce:
            self.send_header("Content-Length", str(last + 1 - first))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data[first:min(cut, last + 1)])
        self.wfile.flush()
        self.close_connection = True

    def get_of(self, key):
        with lock:
            return objects.get((self.bucket, key)) if self.command == "GET" else None

    def fault_truncated(self, n, key, **_):
        """Every GET ends a third of the object further than it began."""
        data = self.get_of(key)
        if data is None:
            return False
        m = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.broken(data, (int(m[1]) if m else 0) + len(data) // 3 + 1, True)
        return True

    def fault_short_quietly(self, key, **_):
        """Cut, and no Content-Length that would tell."""
        data = self.get_of(key)
        if data is None:
            return False
        self.broken(data, len(data) // 2, False)
        return True

    def fault_wrong_bytes(self, key, **_):
        data = self.get_of(key)
        if data is None:
            return False
        self.whole(data[:-1] + bytes([data[-1] ^ 1]))
        return True

    def fault_ignores_range(self, key, **_):
        data = self.get_of(key)
        if data is None:
            return False
        self.reply(200, data)
        return True

    def fault_resets(self, same, **_):
        if same == 1:
            self.reset()
        return same == 1

    def fault_always_resets(self, **_):
        self.reset()
        return True

    def fault_second_part_fails(self, args, **_):
        if args.get("partNumber") == "2":
            self.error(400, "InvalidPart", "no")
            return True
        return False

    def fault_changes_input(self, key, args, **_):
        """POST KEY?path= says which local file; the first part that comes appends to it."""
        if "path" in args:
            inputs[self.bucket] = "/" + key.lstrip("/")
            self.reply(200)
            return True
        if args.get("partNumber") == "1":
            with open(inputs[self.bucket], "a") as f:
                f.write("more")
        return False

    def fault_late_error(self, same, args, **_):
        """200, and an error in the body: the first time the upload is completed."""
        if self.command == "POST" and "uploadId" in args and same == 1:
            self.reply(200, "\n \n" + ERROR % ("InternalError", "later"))
            return True
        return False

    def fault_lost_answer(self, same, args, key, body, **_):
        """The upload is completed, the answer lost; the second attempt finds no such upload."""
        if self.command == "POST" and "uploadId" in args and same == 1:
            with lock:
                got = uploads.pop(args["uploadId"])
                objects[self.bucket, key] = b"".join(got[i] for i in sorted(got))
            self.reset()
            return True
        return False

    def fault_big_error(self, **_):
        self.reply(400, "<Error><Code>Odd</Code>" + "x" * (1 << 20))
        return True

    def fault_not_xml(self, **_):
        self.reply(400, "<html>&&& <Code>no end")
        return True


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready http://127.0.0.1:%d" % server.server_port, flush=True)
    while os.read(0, 1):
        pass
    stop.set()
    os._exit(0)


main()
