#!/usr/bin/env bash
# Runs the files of docs/clusters with stand-ins for cloze, srun, scontrol and ssh: that each rank gets its numbers,
# that SIGTERM reaches the ranks, and that a stopped run is started again and a finished one is not. tests/clusters.rs
# runs it.
set -euo pipefail
# Each command gets a process group.
set -m
files=$(cd "$(dirname "$0")/../docs/clusters" && pwd)
work=$(mktemp -d)
# ssh-nccl.sh names files in /tmp after the port.
export MASTER_PORT=$$
trap 'rm -rf "$work" "/tmp/cloze-$$-"*' EXIT
mkdir "$work/bin"
export PATH=$work/bin:$PATH WORK=$work

stand_in() {
  { echo '#!/bin/bash'; cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# Trains until one rank gets SIGTERM if $WORK/slow exists; rank 1 fails, when all have begun, if $WORK/broken exists.
stand_in cloze <<'EOF'
while (($# > 2)); do [[ $1 == --rank ]] && RANK=$2 && WORLD_SIZE=$4; shift; done
stopped=false
trap 'touch $WORK/stop' TERM USR1
echo "$RANK/$WORLD_SIZE gpu ${CUDA_VISIBLE_DEVICES-} ${MASTER_ADDR-}" >>"$WORK/ranks"
if [[ -e $WORK/broken && $RANK == 1 ]]; then
  until [[ $(wc -l <"$WORK/ranks") -eq $WORLD_SIZE ]]; do sleep 0.1; done
  exit 3
fi
while [[ -e $WORK/slow && ! -e $WORK/stop ]]; do sleep 0.1; done
[[ ! -e $WORK/stop ]] || stopped=true
((RANK)) || echo "{\"steps\":1,\"stopped\":$stopped}"
EOF
stand_in srun <<'EOF'
while [[ $1 == --* ]]; do shift; done
trap 'kill -TERM $(jobs -p)' TERM USR1
for ((i = 0; i < SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE; i++)); do
  RANK=$i WORLD_SIZE=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE)) "$@" &
done
while [[ $(jobs -pr) ]]; do wait; done
EOF
stand_in scontrol <<'EOF'
[[ $1 == show ]] && printf 'node1\nnode2\n' || echo "$*" >>"$WORK/requeued"
EOF
stand_in ssh <<'EOF'
while [[ $1 == -* ]]; do shift 2; done
exec bash -c "$2"
EOF

fail() { echo "tests/clusters.sh: $*" >&2; exit 1; }
# Expects a status of a command; with $WORK/slow, sends SIGTERM when all ranks run: to the command, or to its whole
# process group.
expect() {
  local wanted=$1 ranks=$2 receiver=$3 status=0
  shift 3
  rm -f "$work/ranks" "$work/requeued" "$work/stop"
  timeout --foreground 120 "$@" >"$work/output" 2>&1 &
  local pid=$!
  if [[ -e $work/slow ]]; then
    timeout 60 bash -c "until [[ \$(wc -l <'$work/ranks') -eq $ranks ]]; do sleep 0.1; done" 2>/dev/null ||
      fail "$ranks ranks did not start: $* $(cat "$work/output" "$work/ranks")"
    case $receiver in
      group) kill -TERM -- "-$pid" ;;
      command) kill -TERM "$pid" ;;
    esac
  fi
  wait "$pid" || status=$?
  ((status == wanted)) || fail "status $status, not $wanted: $* $(cat "$work/output")"
  [[ $(wc -l <"$work/ranks") -eq $ranks ]] || fail "$ranks ranks expected: $(cat "$work/ranks")"
}

export SLURM_SUBMIT_DIR=$files CLOZE_FOLDER=$work SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=2
export SLURM_CPUS_PER_TASK=1 SLURM_JOB_NODELIST='node[1-2]'
printf '# two hosts\nnode1 slots=2\nnode2\n' >"$work/hosts"
for stopped in no yes; do
  [[ $stopped == no ]] || touch "$work/slow"
  for job in mpi nccl; do
    expect "$([[ $stopped == no ]] && echo 0 || echo 75)" 4 group bash "$files/slurm-$job.sbatch"
    [[ -e $work/requeued ]] && requeued=yes || requeued=no
    [[ $requeued == "$stopped" ]] || fail "slurm-$job.sbatch: stopped: $stopped, requeued: $requeued"
  done
  expect 0 4 command "$files/ssh-nccl.sh" "$work/hosts" 2 cloze pretrain --json
  printf '%s gpu %s node1\n' 0/4 0 1/4 1 2/4 0 3/4 1 | diff - <(sort "$work/ranks") >&2
done
# The other ranks are ended when one has failed.
touch "$work/broken"
expect 3 2 none env MASTER_ADDR=node1 MASTER_PORT=1 "$files/host-ranks.sh" 0 1 2 cloze pretrain --json
