#!/bin/bash
# Trains on the processors of the hosts in a hostfile, with Open MPI.
#
#   mpi-hosts.sh HOSTFILE cloze pretrain ..
#
# Ranks are not bound to cores: each uses its share of the cores. SIGTERM and SIGINT go on as SIGUSR1, which mpirun passes
# to the ranks at once: they write a checkpoint and end, and mpirun with them.
set -u
hostfile=$1
shift
mpirun --hostfile "$hostfile" --bind-to none "$@" &
mpirun=$!
trap 'kill -USR1 "$mpirun"' TERM INT USR1
# A signal ends the wait, but not mpirun.
while kill -0 "$mpirun" 2>/dev/null; do
    wait "$mpirun"
    status=$?
done
exit "$status"
