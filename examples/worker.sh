#!/bin/sh
# Runs a command for each item at a stage of Farol: worker.sh STAGE COMMAND [ARG...]
# The command has ITEM_ID, ITEM_NAME, ITEM_BUCKET, ITEM_ETAG, ITEM_SIZE, ITEM_OBJECT and ITEM_INSTITUTION in its environment. It
# exits with 0 if its work is done, and with 65 if the bag is at fault; any other code causes a retry. Its output becomes the item's
# note. FAROL_URL is the server, FAROL_TOKEN our token there.
set -u
[ $# -ge 2 ] || { echo 'usage: worker.sh STAGE COMMAND [ARG...]' >&2; exit 64; }
url=${FAROL_URL:-http://127.0.0.1:4180} pid='' id='' answer=$(mktemp) && out=$(mktemp) || exit 1
call() { # CALL BODY: becomes curl, which prints the answer and then the status. The token appears in no list of processes.
	exec curl -sS -K - -w '%{http_code}\n' --max-time 330 -H 'Content-Type: application/json' -d "$2" "$url/v1/$1" <<-END
		${FAROL_TOKEN:+header = \"Authorization: Bearer $FAROL_TOKEN\"}
	END
}
number() { sed -n "s/.*\"$1\":\\([0-9.]*\\).*/\\1/p" "$answer"; }
text() { sed -n "s/.*\"$1\":\"\\([^\"\\\\]*\\(\\\\.[^\"\\\\]*\\)*\\)\".*/\\1/p" "$answer" | sed 's/\\\(["\\]\)/\1/g'; }
quoted() { tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g'; } # as a JSON string
end() { # CALL MORE: ends the claim. Without an answer it is sent again; 409 means that it had arrived, or that another worker has the item.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		case $(call "$1" "{\"id\":$id,\"token\":$token$2}" 2>&1) in *200 | *4??) break ;; esac
		sleep 1
	done
	id=''
}
stop() { # a signal asked us to stop: the item goes back, and the attempt does not count
	trap '' TERM INT
	kill $pid ${!:-} 2>/dev/null # the last process may have no name yet
	[ -z "$id" ] || end release ',"reason":"The worker was asked to stop."'
	rm -f "$answer" "$out"
	exit 0
}
trap stop TERM INT
stage=$(printf %s "$1" | quoted) && shift
while :; do
	call claim "{\"worker\":\"worker.sh\",\"pid\":$$,\"stages\":[\"$stage\"],\"wait\":20}" >"$answer" &
	pid=$!
	wait $pid # and not the call itself: a shell handles signals only between commands
	pid=''
	case $(tail -n 1 "$answer") in
	200) ;;
	204) continue ;;
	*) cat "$answer" >&2; sleep 5 & wait $!; continue ;;
	esac
	token=$(number token) every=$(number heartbeat) id=$(number id)
	ITEM_ID=$id ITEM_NAME=$(text name) ITEM_BUCKET=$(text bucket) ITEM_ETAG=$(text etag) ITEM_SIZE=$(number size) \
		ITEM_OBJECT=$(text object_identifier) ITEM_INSTITUTION=$(text institution) "$@" >"$out" 2>&1 &
	pid=$!
	( # heartbeats, as long as this shell lives; a lost item stops its work
		while sleep "$every" && kill -0 $$; do case $(call heartbeat "{\"id\":$id,\"token\":$token}") in *404 | *409) break ;; esac; done
		kill $pid
	) >/dev/null 2>&1 &
	beats=$!
	wait $pid && code=0 || code=$?
	kill $beats 2>/dev/null
	pid='' said=$(printf %s "$(tail -c 2000 "$out")" | quoted)
	case $code in
	0) end finish ",\"note\":\"$said\"" ;;
	65) end fail ",\"code\":\"refused\",\"reason\":\"${said:-refused}\"" ;;
	*) end retry ",\"code\":\"exit-$code\",\"reason\":\"Exit code $code. $said\"" ;;
	esac
done
