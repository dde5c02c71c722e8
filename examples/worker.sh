#!/usr/bin/env bash
# usage: worker.sh QUEUE COMMAND [ARG]...
#
# A worker for a fairq queue: bash and psql.  Runs COMMAND for each task, with the
# payload as its input and FAIRQ_ID, FAIRQ_GROUP and FAIRQ_ATTEMPT in its
# environment.  Status 0 completes the task.  Any other status fails it: the task is
# retried later, and its error is the output of COMMAND on stderr.  PGHOST,
# PGDATABASE and so on name the database.  See README.md.
set -u
queue=$1
shift
command=("$@")
concurrency=${CONCURRENCY:-4}	# tasks at a time
lease=${LEASE:-60}	# seconds
grace=${GRACE:-5}	# seconds for tasks that still run at the end
third=$(awk -v lease="$lease" 'BEGIN { print lease / 3 }')
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

# Reads and executes statements.  The status is 2 if the server cannot be
# reached.  psql has its own session, so that the terminal's Ctrl-C does not interrupt it
# between pop's commit and the output of the tasks.
psql=(setsid --wait psql -XAtqw -v ON_ERROR_STOP=1 -v queue="$queue" -v lease="$lease s")

# Succeeds if the database is read-only, for example because the server is no longer the
# primary.
read_only() {
	[ "$("${psql[@]}" <<<'SHOW transaction_read_only')" = on ]
}

# Runs one task.  SIGTERM stops the work.
work() {	# ID ATTEMPT PAYLOAD GROUP
	local sql=("${psql[@]}" -v id="$1" -v attempt="$2") errors=$directory/$1.$2
	local pid='' stopped='' me=$BASHPID heart status end begun took
	trap 'trap "" TERM; stopped=1; [ -z "$pid" ] || stop "$pid"' TERM
	begun=$(date +%s%N)	# nanoseconds
	FAIRQ_ID=$1 FAIRQ_ATTEMPT=$2 FAIRQ_GROUP=$4 setsid "${command[@]}" <<<"$3" 2>"$errors" &
	pid=$!
	heartbeat "$me" &
	heart=$!
	wait "$pid"
	status=$?
	pid=''
	took=$((($(date +%s%N) - begun) / 1000))	# time-fair queues need it
	sql+=(-v "took=$((took > 0 ? took : 0)) microseconds")
	# Sends KILL instead of TERM, which a subshell that has just begun would
	# lose.
	{ kill -KILL "$heart" && wait "$heart"; } 2>/dev/null
	cat "$errors" >&2

	if [ "$status" -eq 0 ]; then
		end="SELECT fairq.complete(:id, :attempt, took => :'took')"
	elif [ -n "$stopped" ]; then
		# Returns the task to the queue. A cancelled task ends. A task whose
		# lease is lost does not change.
		end="SELECT fairq.release(:id, :attempt)"
	else
		end="SELECT fairq.fail(:id, :attempt, :'error', took => :'took')"
		sql+=(-v "error=status $status: $(tail -c 2000 "$errors" | iconv -c -f UTF-8 -t UTF-8)")
	fi
	# If only the answer was lost, a second try is harmless, since the call
	# names the attempt.
	until "${sql[@]}" <<<"$end" >/dev/null || { [ $? -ne 2 ] && ! read_only; } ||
		[ -n "$stopped" ]; do
		sleep 1
	done
	rm -f "$errors"
}

# Renews the lease of a task.  Ends the work if the lease is lost or the task is
# cancelled.
heartbeat() {	# PID-OF-WORK
	local never
	# No data arrives here, so a read with a timeout is a pause.
	exec {never}<> <(:)
	while :; do
		read -rt "$third" -u "$never"
		if [ "$("${sql[@]}" <<<"SELECT fairq.extend(:id, :attempt, :'lease') IS NULL")" = t ]; then
			kill "$1"
		fi
	done
}

# Ends a command and all processes that it has started.
stop() {	# PID
	kill -TERM -- "-$1" "$1"
	for _ in {1..10}; do
		kill -0 -- "-$1" || return
		sleep 0.05
	done
	kill -KILL -- "-$1"
} 2>/dev/null

# Sleeps until a pop may return a task.
wait_for_tasks() {
	# Errors are not shown here, because pop reports the same ones.
	"${psql[@]}" <<<"CALL fairq.wait(:'queue')" &>/dev/null &
	waiter=$!
	[ -z "$stopping" ] || end_wait
	wait "$waiter"
	waiter=''
}

# Ends wait_for_tasks.  Tries repeatedly, because a psql that has just started
# does not react to the signal yet.
end_wait() {
	for _ in {1..20}; do
		kill -INT "$waiter" || return
		sleep 0.05
	done
} 2>/dev/null

stopping='' status=0 waiter=''
# end_wait runs in the background, so that its end also ends a "wait -n" that
# was about to begin.
trap 'stopping=1; end_wait &' TERM INT
while [ -z "$stopping" ]; do
	mapfile -t running < <(jobs -pr)
	free=$((concurrency - ${#running[@]}))
	if [ "$free" -le 0 ]; then
		wait -n
		continue
	fi
	# Fields and rows end with a zero byte, which no text contains.
	mapfile -d '' -t tasks < <("${psql[@]}" -z -0 -v free="$free" -v name="$HOSTNAME:$$" <<-'SQL'
		SELECT id, attempt, payload, group_key
		  FROM fairq.pop(:'queue', :free, lease => :'lease', worker => :'name')
	SQL
	)
	wait $!
	popped=$?
	for ((i = 0; i < ${#tasks[@]}; i += 4)); do
		work "${tasks[@]:i:4}" &
	done
	if [ "$popped" -eq 2 ] || { [ "$popped" -eq 3 ] && read_only; }; then
		sleep 1
	# A status above 128 means a signal.  After a signal, $! may have been
	# end_wait.
	elif [ "$popped" -gt 0 ] && [ "$popped" -le 128 ] && [ -z "$stopping" ]; then
		status=1
		break
	elif [ ${#tasks[@]} -eq 0 ]; then
		wait_for_tasks
	fi
done

# Running tasks have GRACE seconds to end.  Then the worker stops those that
# still run, and releases them.
sleep "$grace" &
timer=$!
trap '' TERM INT
while [ "$(jobs -pr)" != "$timer" ] && kill -0 "$timer" 2>/dev/null; do
	wait -n
done
# shellcheck disable=SC2046
while kill $(jobs -pr) 2>/dev/null; do
	sleep 0.05
done
exit "$status"
