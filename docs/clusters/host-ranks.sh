#!/bin/bash
# Starts the ranks of one host, one for each GPU, and waits for them. SIGTERM, SIGINT and SIGHUP are passed on.
#
#   MASTER_ADDR=HOST0 MASTER_PORT=29500 host-ranks.sh HOST HOSTS GPUS cloze pretrain ..
#
# HOST is the number of this host, from 0; HOSTS is how many there are, GPUS how many each of them has.
set -u
host=$1 hosts=$2 gpus=$3
shift 3
# shellcheck source=docs/clusters/wait-all.sh
. "$(dirname "$0")/wait-all.sh"

stop() { kill -TERM "${pids[@]}"; }

pids=()
for ((gpu = 0; gpu < gpus; gpu++)); do
    CUDA_VISIBLE_DEVICES=$gpu "$@" --rank $((host * gpus + gpu)) --world $((hosts * gpus)) &
    pids+=($!)
done
trap stop TERM INT HUP USR1
wait_all
exit "$status"
