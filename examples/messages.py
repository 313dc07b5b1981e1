#!/usr/bin/env python3
"""Runs a command for each message of a queue of Farol: messages.py QUEUE RECEIVER COMMAND [ARG...]

The command reads the message from standard input, and has MESSAGE_ID and
MESSAGE_SENDER in its environment. If it exits with 0, its output is the message's
result. Otherwise the message is given again after FAROL_FAIL_TIMEOUT seconds, or the
server's fail_timeout. FAROL_URL is the server, FAROL_TOKEN our token there.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

URL = os.environ.get("FAROL_URL", "http://127.0.0.1:4180")
TOKEN = os.environ.get("FAROL_TOKEN")  # a server on this machine may need none
LONGEST = 60_000  # bytes of a result


class Stopped(Exception):
    """A signal asked us to stop."""


stopping = False
busy = False  # the current message is answered first


def stop(*_):
    global stopping
    if not stopping and not busy:
        stopping = True
        raise Stopped
    stopping = True


def pull(body, timeout=30):
    """Makes a call and returns its status and answer; status 0 means no answer."""
    request = urllib.request.Request(
        f"{URL}/pull",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as refused:
        return refused.code, {"_error": refused.read().decode(errors="replace")}
    except (OSError, ValueError) as error:
        return 0, {"_error": str(error)}


def answer(queue, receiver, message, result):
    """Saves a result. Without an answer it is sent again, which does no harm."""
    for _ in range(10):
        status, said = pull({"receiver": receiver, "results": {queue: {str(message["id"]): result}}})
        if status == 200:
            return
        if 400 <= status < 500:
            print(status, said["_error"], file=sys.stderr)
            return
        time.sleep(1)


def work(queue, receiver, command, message):
    environment = dict(os.environ, MESSAGE_ID=str(message["id"]), MESSAGE_SENDER=message["sender"])
    try:
        done = subprocess.run(command, env=environment, input=message["message"].encode(), stdout=subprocess.PIPE)
    except (OSError, ValueError) as error:  # there is no such command, or no memory for it
        print(error, file=sys.stderr)
        return
    if done.returncode == 0:
        answer(queue, receiver, message, done.stdout[-LONGEST:].decode(errors="replace").replace("\0", " ").strip())


def main():
    global busy
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    queue, receiver, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    want = {}
    if os.environ.get("FAROL_FAIL_TIMEOUT"):
        want["fail_timeout"] = float(os.environ["FAROL_FAIL_TIMEOUT"])
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        while not stopping:
            status, got = pull({"receiver": receiver, "timeout": 20, "queues": {queue: want}}, timeout=330)
            busy = True
            if status == 200:
                work(queue, receiver, command, got["messages"][queue][0])
            busy = False
            if status not in (200, 204) and not stopping:
                print(status, got["_error"], file=sys.stderr)
                time.sleep(5)
    except Stopped:
        pass


main()
