#!/bin/sh
# Runs a command for each message of a queue of Farol: messages.sh QUEUE RECEIVER COMMAND [ARG...]
# The command reads the message from standard input, and has MESSAGE_ID in its environment. If it exits with 0, its output is the
# message's result. Otherwise the message is given again after FAROL_FAIL_TIMEOUT seconds, or the server's fail_timeout. FAROL_URL is
# the server, FAROL_TOKEN our token there.
set -u
[ $# -ge 3 ] || { echo 'usage: messages.sh QUEUE RECEIVER COMMAND [ARG...]' >&2; exit 64; }
url=${FAROL_URL:-http://127.0.0.1:4180} pid='' busy='' stopping='' answer=$(mktemp) && out=$(mktemp) || exit 1
call() { # BODY: becomes curl, which prints the answer and then the status. The token appears in no list of processes.
	exec curl -sS -K - -w '\n%{http_code}\n' --max-time 330 -H 'Content-Type: application/json' -d "$1" "$url/pull" <<-END
		${FAROL_TOKEN:+header = \"Authorization: Bearer $FAROL_TOKEN\"}
	END
}
quoted() { tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g'; } # as a JSON string
decoded() { # the message, with its escapes as printf's %b has them
	sed -n 's/.*"message":"\([^"\\]*\(\\.[^"\\]*\)*\)".*/\1/p' "$answer" | sed 's/\\\\/\\0134/g; s/\\"/"/g
		s/\\u000b/\\0013/g; s/\\u000e/\\0016/g; s/\\u000f/\\0017/g; s/\\u000\([1-7]\)/\\000\1/g; s/\\u001\([0-7]\)/\\002\1/g
		s/\\u0018/\\0030/g; s/\\u0019/\\0031/g; s/\\u001a/\\0032/g; s/\\u001b/\\0033/g; s/\\u001c/\\0034/g; s/\\u001d/\\0035/g
		s/\\u001e/\\0036/g; s/\\u001f/\\0037/g; s/\\u2028/\\0342\\0200\\0250/g; s/\\u2029/\\0342\\0200\\0251/g'
}
stop() { # a signal asked us to stop: the current message is answered first
	stopping=yes
	[ -z "$busy" ] || return
	trap '' TERM INT
	kill $pid ${!:-} 2>/dev/null # the last process may have no name yet
	rm -f "$answer" "$out"
	exit 0
}
trap stop TERM INT
queue=$1 receiver=$(printf %s "$2" | quoted) && shift 2
while :; do
	call "{\"receiver\":\"$receiver\",\"timeout\":20,\"queues\":{\"$queue\":{${FAROL_FAIL_TIMEOUT:+\"fail_timeout\":$FAROL_FAIL_TIMEOUT}}}}" >"$answer" &
	pid=$!
	wait $pid # and not the call itself: a shell handles signals only between commands
	pid=''
	case $(tail -n 1 "$answer") in
	200) ;;
	204) continue ;;
	*) cat "$answer" >&2; sleep 5 & wait $!; continue ;;
	esac
	busy=yes id=$(sed -n 's/.*"id":\([0-9]*\).*/\1/p' "$answer")
	if printf %b "$(decoded)" | MESSAGE_ID=$id "$@" >"$out"; then
		result=$(tail -c 60000 "$out" | quoted)
		for _ in 1 2 3 4 5 6 7 8 9 10; do # without an answer it is sent again
			case $(call "{\"receiver\":\"$receiver\",\"results\":{\"$queue\":{\"$id\":\"$result\"}}}" 2>&1 | tail -n 1) in 200 | 4??) break ;; esac
			sleep 1
		done
	fi
	busy=''
	[ -z "$stopping" ] || stop
done
