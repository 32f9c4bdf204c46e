#!/bin/bash
# Trains on the GPUs of several hosts that are reached with ssh and share this folder's path and the current one.
#
#   ssh-nccl.sh HOSTFILE GPUS cloze pretrain ..
#
# HOSTFILE has a host on each line (what follows its name is ignored), GPUS is how many GPUs each host has. The ranks
# meet on the first host at MASTER_PORT (29500). SIGTERM and SIGINT are passed on.
set -u
hostfile=$1 gpus=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=docs/clusters/wait-all.sh
. "$here/wait-all.sh"

port=${MASTER_PORT:-29500}
mapfile -t hosts < <(awk '!/^ *(#|$)/ { print $1 }' "$hostfile")

# Runs a line of shell on a host.
on() { ssh -o BatchMode=yes "$1" "$2"; }

# One rank that stops is enough: it tells the others.
stop() { on "${hosts[0]}" "kill -TERM \$(cat /tmp/cloze-$port-0.pid)" </dev/null; }

printf -v command '%q ' "$@"
printf -v folder '%q' "$PWD"
pids=()
for i in "${!hosts[@]}"; do
    ranks="env MASTER_ADDR=${hosts[0]} MASTER_PORT=$port $here/host-ranks.sh $i ${#hosts[@]} $gpus $command"
    on "${hosts[i]}" "cd $folder && echo \$\$ >/tmp/cloze-$port-$i.pid && exec $ranks" </dev/null &
    pids+=($!)
done
trap stop TERM INT USR1
wait_all
exit "$status"
