# Sourced by host-ranks.sh and ssh-nccl.sh.
# shellcheck shell=bash

# Waits for the processes in the array `pids` and sets `status` to the first failure, or 0. After a failure it calls
# `stop` every second, because the other ranks may wait for the lost one: a second SIGTERM ends them at once.
# shellcheck disable=SC2154 # The caller sets `pids`.
wait_all() {
    status=0
    while ((${#pids[@]} > 0)); do
        local i code
        for i in "${!pids[@]}"; do
            if ! kill -0 "${pids[i]}" 2>/dev/null; then
                wait "${pids[i]}"
                code=$?
                unset "pids[i]"
                ((status)) || status=$code
            fi
        done
        if ((status && ${#pids[@]} > 0)); then
            stop
        fi
        sleep 1
    done
}
