#!/usr/bin/env python3
"""Runs a command for each item at a stage of Farol: worker.py STAGE COMMAND [ARG...]

The command has ITEM_ID, ITEM_NAME, ITEM_BUCKET, ITEM_ETAG, ITEM_SIZE, ITEM_OBJECT
and ITEM_INSTITUTION in its environment. It exits with 0 if its work is done, and
with 65 if the bag is at fault; any other code causes a retry. Its output becomes
the item's note. FAROL_URL is the server, FAROL_TOKEN our token there.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

URL = os.environ.get("FAROL_URL", "http://127.0.0.1:4180")
TOKEN = os.environ.get("FAROL_TOKEN")  # a server on this machine may need none
AT_FAULT = 65  # as in sysexits.h: the input was wrong


class Stopped(Exception):
    """A signal asked us to stop."""


stopping = False
interruptible = True  # an end in progress is completed first


def stop(*_):
    global stopping
    if interruptible and not stopping:
        stopping = True
        raise Stopped
    stopping = True


def call(name, body, timeout=30):
    """Makes a call and returns its status and answer; status 0 means no answer."""
    request = urllib.request.Request(
        f"{URL}/v1/{name}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as refused:
        return refused.code, {"detail": refused.read().decode(errors="replace")}
    except (OSError, ValueError) as error:
        return 0, {"detail": str(error)}


def end(item, how, **more):
    """Ends the claim. Without an answer it is sent again; 409 means that it had
    arrived, or that another worker has the item."""
    for _ in range(10):
        status, _answer = call(how, {"id": item["id"], "token": item["token"], **more})
        if status == 200 or 400 <= status < 500:
            return
        time.sleep(1)


def keep(item, process, done):
    """Renews the lease until the work is done, and stops the work if it is lost."""
    while not done.wait(item["heartbeat"]):
        status, _ = call("heartbeat", {"id": item["id"], "token": item["token"]})
        if status in (404, 409):
            process.terminate()
            return


def work(item, command):
    global interruptible
    environment = dict(os.environ)
    for name, key in {
        "ID": "id", "NAME": "name", "BUCKET": "bucket", "ETAG": "etag", "SIZE": "size",
        "OBJECT": "object_identifier", "INSTITUTION": "institution",
    }.items():
        environment["ITEM_" + name] = str(item[key])
    process = None
    done = threading.Event()
    try:
        interruptible = False  # or the process would be unknown, and not be stopped
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        interruptible = True
        if stopping:
            raise Stopped
        threading.Thread(target=keep, args=(item, process, done), daemon=True).start()
        said = process.communicate()[0][-2000:].decode(errors="replace").strip()
        interruptible = False
    except Stopped:
        done.set()
        if process:
            process.terminate()
        end(item, "release", reason="The worker was asked to stop.")
        raise
    except OSError as error:  # there is no such command, or no memory for it
        end(item, "retry", code="not-run", reason=str(error))
        interruptible = True
        time.sleep(5)
        return
    done.set()
    if process.returncode == 0:
        end(item, "finish", note=said)
    elif process.returncode == AT_FAULT:
        end(item, "fail", code="refused", reason=said or "refused")
    else:
        end(item, "retry", code=f"exit-{abs(process.returncode)}", reason=f"Exit code {process.returncode}. {said}")
    interruptible = True


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        while not stopping:
            wanted = {"worker": "worker.py", "pid": os.getpid(), "stages": [sys.argv[1]], "wait": 20}
            status, answer = call("claim", wanted, timeout=330)
            if status == 200:
                work(answer["items"][0], sys.argv[2:])
            elif status != 204:
                print(status, answer["detail"], file=sys.stderr)
                time.sleep(5)
    except Stopped:
        pass


main()
