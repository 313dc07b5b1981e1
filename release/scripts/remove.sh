#!/bin/sh
# dpkg says "remove" or "upgrade"; rpm how many versions will be left.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl stop 'farol-*.service'
	systemctl disable --quiet farol-work@.service farol-schedule.service farol-mirror.service farol-serve.service
fi
