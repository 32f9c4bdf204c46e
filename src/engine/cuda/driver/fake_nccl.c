// A fake of NCCL, after `fake.c` in the same library. Each rank loads a library of its own, so that ranks may be threads
// or processes; they meet in a file whose path is the unique id. Values are added up in the order of the ranks.
#ifndef OLD_DRIVER
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define RANKS 4
#define SLOT (4u << 20)

// What the ranks share. A rank posts the numbers of a call and takes those of all: both count calls.
typedef struct {
    _Atomic u64 joined, posted[RANKS], taken[RANKS], kind[RANKS];
    _Atomic int aborted;
    char slots[RANKS][SLOT];
} Table;
typedef struct {
    Table* table;
    int rank, size, ended;
    u64 calls;
} Comm;
typedef struct { char path[128]; } Id;

int ncclGetVersion(int* version) { *version = 22703; return 0; }
const char* ncclGetErrorString(u32 status) {
    return status == 6 ? "remote process exited or there was a network error" : "invalid argument";
}
int ncclGetUniqueId(Id* id) {
    const char* folder = getenv("TMPDIR");
    memset(id, 0, sizeof *id);
    snprintf(id->path, sizeof id->path, "%s/fake-nccl-XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(id->path);
    return file < 0 || ftruncate(file, sizeof(Table)) || close(file) ? 2 : 0;
}
int ncclCommInitRank(void** made, int size, Id id, int rank) {
    NEED_CONTEXT;
    int file = open(id.path, O_RDWR);
    if (file < 0 || size > RANKS || rank >= size) return 4;
    Comm* comm = calloc(1, sizeof *comm);
    comm->table = mmap(NULL, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    comm->rank = rank, comm->size = size;
    comm->table->joined++;
    // The file can go once all have it.
    while (comm->table->joined < (u64)size) usleep(100);
    if (!rank) unlink(id.path);
    alive++;
    *made = comm;
    return 0;
}

// Posts this rank's values, once all ranks have taken those of the call before.
static int all_posted(Work* w) {
    Comm* comm = w->more;
    Table* table = comm->table;
    u64 call = w->pitch;
    if (comm->ended) return 1;
    if (table->posted[comm->rank] < call) {
        for (int r = 0; r < comm->size; r++) if (table->taken[r] < call - 1) return 0;
        memcpy(table->slots[comm->rank], w->from, w->bytes);
        table->kind[comm->rank] = w->bytes * 2 + (u64)w->byte;
        table->posted[comm->rank] = call;
    }
    for (int r = 0; r < comm->size; r++) if (table->posted[r] < call) return 0;
    return 1;
}
static void run_collective(Work* w) {
    Comm* comm = w->more;
    Table* table = comm->table;
    if (comm->ended) return;
    for (int r = 0; r < comm->size; r++)
        if (table->kind[r] != table->kind[comm->rank]) bad("the ranks make different calls");
    for (int r = 0; r < comm->size; r++) {
        if (w->byte) {
            memcpy((char*)w->to + (u64)r * w->bytes, table->slots[r], w->bytes);
        } else {
            float *to = w->to, *values = (float*)table->slots[r];
            for (u64 i = 0; i < w->bytes / 4; i++) to[i] = r ? to[i] + values[i] : values[i];
        }
    }
    table->taken[comm->rank] = w->pitch;
}
static int collective(const void* from, void* to, size_t bytes, int gather, Comm* comm, void* s) {
    NEED_CONTEXT; NOT_RECORDING; STREAM;
    if (comm->ended || bytes > SLOT) return bad("a call to NCCL"), 4;
    submit(s, (Work){.run = run_collective, .ready = all_posted, .to = to, .from = (void*)from, .bytes = bytes,
                     .byte = gather, .pitch = ++comm->calls, .more = comm});
    return 0;
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* comm, void* s) {
    if (type != 7 || operation) return bad("a sum of other numbers"), 4;
    return collective(from, to, 4 * count, 0, comm, s);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, void* comm, void* s) {
    if (type != 1) return bad("a gather of other numbers"), 4;
    return collective(from, to, count, 1, comm, s);
}
int ncclCommGetAsyncError(void* comm, u32* status) {
    *status = ((Comm*)comm)->table->aborted ? 6 : 0;
    return 0;
}
// Work that still waits for the others does nothing.
int ncclCommAbort(void* made) {
    NEED_CONTEXT;
    Comm* comm = made;
    comm->table->aborted = 1;
    comm->ended = 1;
    alive--;
    return 0;
}
int ncclCommDestroy(void* made) {
    NEED_CONTEXT;
    Comm* comm = made;
    munmap(comm->table, sizeof(Table));
    free(comm);
    alive--;
    return 0;
}
#endif
