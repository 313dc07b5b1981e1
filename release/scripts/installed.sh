#!/bin/sh
# Restarts nothing: the new version may need "farol migrate up" first.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
