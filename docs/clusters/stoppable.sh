#!/bin/bash
# Runs a training command and passes SIGTERM and SIGINT on to it as SIGUSR1: mpirun passes that on to the ranks at once,
# but waits before it passes SIGTERM on, and then kills them.
#
#   stoppable.sh RESULT.json cloze pretrain .. --resume --json
#
# The command's output goes to RESULT.json. The exit status is 75 if the run was stopped before its last step, so that
# the caller can start it again; otherwise it is that of the command.
set -u
result=$1
shift

"$@" >"$result" &
child=$!
signalled=
trap 'signalled=1; kill -USR1 "$child"' TERM INT
while :; do
    signalled=
    wait "$child"
    status=$?
    # A signal ends the wait, but not the command.
    [[ $signalled && $status -gt 128 ]] || break
done
grep -q '"stopped":true' "$result" && status=75
exit "$status"
