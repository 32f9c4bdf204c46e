#!/bin/bash
# Trains on the processors of the hosts in a hostfile, with Open MPI.
#
#   mpi-hosts.sh HOSTFILE cloze pretrain ..
#
# Ranks are not bound to cores: each uses its share of the cores. Open MPI passes a SIGTERM on after 10 s (its timeout),
# and 10 s later it kills the ranks.
set -u
hostfile=$1
shift
exec mpirun --hostfile "$hostfile" --bind-to none --mca odls_base_sigkill_timeout 10 "$@"
