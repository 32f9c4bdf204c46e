// A fake of libcuda, NVRTC and cuBLASLt in one library, for tests on machines without a GPU;
// `fake_nccl.c` follows it in the same library.
//
// Work on a stream is delayed until something waits for it, because a GPU may run it arbitrarily
// late: data that is overwritten too early gives wrong results. "Device memory" is host memory. A
// compiled program is its source after a line with the options; only the kernels in `run` below
// work. Products are computed from the descriptors alone, as cuBLASLt's documentation defines them.
//
// Macros simulate faults: VERSION, INIT (cuInit's status), COUNT, MAJOR, MINOR (capability), MODE
// (compute mode), RETAIN (status of a context), MEMORY (bytes), LT_VERSION, NVRTC_MAJOR,
// NVRTC_MINOR, LOST_AFTER (launches), OLD_DRIVER (lacks new functions).
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 13000
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef MAJOR
#define MAJOR 9
#endif
#ifndef MINOR
#define MINOR 0
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef RETAIN
#define RETAIN 0
#endif
#ifndef MEMORY
#define MEMORY (1ull << 30)
#endif
#ifndef LT_VERSION
#define LT_VERSION 130002
#endif
#ifndef NVRTC_MAJOR
#define NVRTC_MAJOR 13
#endif
#ifndef NVRTC_MINOR
#define NVRTC_MINOR 0
#endif
#ifndef LOST_AFTER
#define LOST_AFTER (1 << 30)
#endif

typedef uint64_t u64;
typedef uint32_t u32;

// ---- Functions for tests.

// Live objects: memory, pinned memory, events, modules, graphs, streams, contexts, handles,
// descriptors. All must be released at the end.
static int alive, bad_calls, heuristics, slow_products, lost;
static u64 used;
int fake_alive(void) { return alive; }
int fake_bad_calls(void) { return bad_calls; }
int fake_heuristics(void) { return heuristics; }
int fake_slow_products(void) { return slow_products; }

static int bad(const char* what) {
    fprintf(stderr, "fake CUDA: %s\n", what);
    bad_calls++;
    return 1;
}

// ---- Streams.

typedef struct Work {
    void (*run)(struct Work*);
    // Whether it can run; NULL if always.
    int (*ready)(struct Work*);
    void *to, *from;
    u64 bytes, height, pitch;
    int byte;
    void* more;
    struct Work* next;
} Work;

typedef struct { Work *first, *last; int made; } Queue;
// `recorded` and `come` count the records that were submitted and have run.
typedef struct { u64 recorded, come; int timed; double time; Queue* on; } Event;

#define STREAMS 4
static Queue streams[STREAMS], *recording, *recorded_stream;
static double clock_now;

static void run_event(Work* w) {
    Event* event = w->more;
    event->come = w->bytes;
    event->time = clock_now;
}
static int event_came(Work* w) { return ((Event*)w->more)->come >= w->bytes; }
static void run_nothing(Work* w) { (void)w; }

static void push(Queue* queue, Work work) {
    Work* kept = malloc(sizeof *kept);
    *kept = work;
    kept->next = NULL;
    if (queue->last) queue->last->next = kept; else queue->first = kept;
    queue->last = kept;
}
static void start(Queue* s, Work work) {
    if (work.run == run_event) {
        Event* event = work.more;
        work.bytes = ++event->recorded;
        event->on = s;
    }
    push(s, work);
}
static void submit(Queue* s, Work work) {
    if (recording && s == recorded_stream) push(recording, work); else start(s, work);
}
// Runs one piece of work, of this stream if it has one that can run. Returns 0 if none can.
static int step(Queue* preferred) {
    for (int i = -1; i < STREAMS; i++) {
        Queue* s = i < 0 ? preferred : &streams[i];
        Work* work = s->first;
        if (!work || (work->ready && !work->ready(work))) continue;
        s->first = work->next;
        if (!s->first) s->last = NULL;
        clock_now += 1.0;
        work->run(work);
        free(work);
        return 1;
    }
    return 0;
}
// Runs all work of a stream.
static void drain(Queue* s) {
    while (s->first) if (!step(s)) usleep(100);
}
static void drain_all(void) {
    for (int i = 0; i < STREAMS; i++) drain(&streams[i]);
}
static int is_stream(void* s) {
    for (int i = 0; i < STREAMS; i++) if (s == &streams[i]) return streams[i].made;
    return 0;
}
static void run_copy(Work* w) { memmove(w->to, w->from, w->bytes); }
static void run_fill(Work* w) {
    for (u64 row = 0; row < w->height; row++) memset((char*)w->to + row * w->pitch, w->byte, w->bytes);
}

// ---- Numbers.

static float widen(uint16_t bits, int type) {
    u32 wide;
    float value;
    if (type == 14) {
        wide = (u32)bits << 16;
    } else {
        u32 sign = (u32)(bits >> 15) << 31, exponent = bits >> 10 & 31, mantissa = bits & 1023;
        if (exponent == 0) return (sign ? -1.0f : 1.0f) * ldexpf((float)mantissa, -24);
        wide = sign | (exponent + 112) << 23 | mantissa << 13;
    }
    memcpy(&value, &wide, 4);
    return value;
}
static uint16_t narrow(float value, int type) {
    u32 wide;
    memcpy(&wide, &value, 4);
    if (type == 14) return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    // Only normal numbers, which tests use.
    u32 sign = wide >> 31 << 15, rest = wide & 0x7fffffff;
    if (rest < 0x38800000u) return (uint16_t)(sign | (u32)lrintf(fabsf(value) * 16777216.0f));
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | ((rest >> 13) - (112 << 10)));
}
// Types are those of cudaDataType: 0 is f32, 2 f16, 14 bf16.
static float get(const void* at, u64 i, int type) {
    return type == 0 ? ((const float*)at)[i] : widen(((const uint16_t*)at)[i], type);
}
static void put(void* at, u64 i, int type, float value) {
    if (type == 0) ((float*)at)[i] = value; else ((uint16_t*)at)[i] = narrow(value, type);
}

// ---- libcuda.

static int context_held;
static __thread int entered;
#define NEED_CONTEXT do { if (!entered) return bad("no context on this thread"), 201; \
                          if (lost) return 700; } while (0)
#define NOT_RECORDING do { if (recording) return bad("while recording"), 900; } while (0)

int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuGetErrorName(u32 status, const char** text) {
    *text = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
          : status == 999 ? "CUDA_ERROR_UNKNOWN" : status == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
    return *text ? 0 : 1;
}
int cuGetErrorString(u32 status, const char** text) {
    *text = status == 700 ? "an illegal memory access was encountered" : status == 2 ? "out of memory"
          : status == 999 ? "unknown error" : status == 803 ? "system has unsupported display driver / cuda driver combination" : NULL;
    return *text ? 0 : 1;
}
#ifndef OLD_DRIVER
int cuInit(u32 flags) { return flags ? 1 : INIT; }
int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal < COUNT ? 0 : 101; }
int cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
    // Of two devices the first is old.
    case 75: *value = COUNT > 1 && device == 0 ? 7 : MAJOR; return 0;
    case 76: *value = COUNT > 1 && device == 0 ? 5 : MINOR; return 0;
    case 16: *value = 132; return 0;
    case 20: *value = MODE; return 0;
    case 36: *value = 3201000; return 0;
    case 37: *value = 6144; return 0;
    case 97: *value = 232448; return 0;
    }
    return 1;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) { (void)device; *bytes = MEMORY; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
    (void)device;
    if (RETAIN) return RETAIN;
    context_held++, alive++;
    *context = &context_held;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; context_held--, alive--; return 0; }
int cuCtxSetCurrent(void* context) {
    if (context != &context_held || !context_held) return bad("not a context"), 201;
    entered = 1;
    return lost ? 700 : 0;
}
int cuStreamCreate(void** made, u32 flags) {
    NEED_CONTEXT;
    if (flags != 1) bad("a stream that waits for the null stream");
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].made) continue;
        streams[i].made = 1;
        alive++;
        *made = &streams[i];
        return 0;
    }
    return bad("too many streams");
}
int cuStreamDestroy_v2(void* s) {
    NEED_CONTEXT;
    if (!is_stream(s)) return bad("not a stream");
    drain(s);
    ((Queue*)s)->made = 0;
    alive--;
    return 0;
}
int cuStreamWaitEvent(void* s, void* event, u32 flags) {
    NEED_CONTEXT; NOT_RECORDING;
    if (!is_stream(s) || flags) return bad("a wait for an event");
    submit(s, (Work){.run = run_nothing, .ready = event_came, .more = event, .bytes = ((Event*)event)->recorded});
    return 0;
}
int cuStreamSynchronize(void* s) {
    NEED_CONTEXT;
    NOT_RECORDING;
    if (!is_stream(s)) bad("not a stream");
    drain(s);
    return lost ? 700 : 0;
}
int cuStreamBeginCapture_v2(void* s, int mode) {
    NEED_CONTEXT;
    NOT_RECORDING;
    if (!is_stream(s) || mode != 2) bad("a recording");
    recording = calloc(1, sizeof *recording);
    recorded_stream = s;
    return 0;
}
int cuStreamEndCapture(void* s, void** graph) {
    NEED_CONTEXT;
    if (s != recorded_stream || !recording) return 901;
    *graph = recording;
    recording = NULL;
    alive++;
    return 0;
}
int cuGraphInstantiateWithFlags(void** made, void* graph, u64 flags) {
    NEED_CONTEXT;
    if (flags) bad("flags of a graph");
    Queue* queue = calloc(1, sizeof *queue);
    for (Work* work = ((Queue*)graph)->first; work; work = work->next) push(queue, *work);
    *made = queue;
    alive++;
    return 0;
}
int cuGraphLaunch(void* graph, void* s) {
    NEED_CONTEXT;
    NOT_RECORDING;
    if (!is_stream(s)) bad("not a stream");
    for (Work* work = ((Queue*)graph)->first; work; work = work->next) start(s, *work);
    return 0;
}
int cuGraphDestroy(void* graph) { (void)graph; alive--; return 0; }
int cuGraphExecDestroy(void* graph) { (void)graph; NEED_CONTEXT; alive--; return 0; }

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    NEED_CONTEXT;
    *free_bytes = MEMORY - used, *total = MEMORY;
    return 0;
}
// The size precedes the returned memory.
int cuMemAlloc_v2(u64* at, size_t bytes) {
    NEED_CONTEXT;
    NOT_RECORDING;
    if (!bytes) return 1;
    if (bytes > MEMORY - used) return 2;
    char* memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
    *(u64*)memory = bytes;
    memset(memory + 256, 0xa5, bytes);
    used += bytes, alive++;
    *at = (u64)(memory + 256);
    return 0;
}
int cuMemFree_v2(u64 at) {
    NEED_CONTEXT;
    drain_all();
    char* memory = (char*)at - 256;
    used -= *(u64*)memory, alive--;
    free(memory);
    return 0;
}
int cuMemHostAlloc(void** memory, size_t bytes, u32 flags) {
    NEED_CONTEXT;
    if (flags) bad("flags of pinned memory");
    *memory = malloc(bytes);
    alive++;
    return 0;
}
int cuMemFreeHost(void* memory) {
    NEED_CONTEXT;
    for (int i = 0; i < STREAMS; i++) if (streams[i].first) bad("pinned memory given back while work waits");
    free(memory);
    alive--;
    return 0;
}
#define STREAM if (!is_stream(s)) return bad("not a stream"), 400
int cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, void* s) {
    NEED_CONTEXT; NOT_RECORDING; STREAM;
    submit(s, (Work){.run = run_copy, .to = (void*)to, .from = (void*)from, .bytes = bytes});
    return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, void* s) {
    NEED_CONTEXT; NOT_RECORDING; STREAM;
    submit(s, (Work){.run = run_copy, .to = to, .from = (void*)from, .bytes = bytes});
    return 0;
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void* s) {
    NEED_CONTEXT; STREAM;
    submit(s, (Work){.run = run_copy, .to = (void*)to, .from = (void*)from, .bytes = bytes});
    return 0;
}
int cuMemsetD8Async(u64 at, unsigned char byte, size_t bytes, void* s) {
    NEED_CONTEXT; STREAM;
    submit(s, (Work){.run = run_fill, .to = (void*)at, .byte = byte, .bytes = bytes, .height = 1});
    return 0;
}
int cuMemsetD2D8Async(u64 at, size_t pitch, unsigned char byte, size_t width, size_t height, void* s) {
    NEED_CONTEXT; STREAM;
    if (pitch < width) return 1;
    submit(s, (Work){.run = run_fill, .to = (void*)at, .byte = byte, .bytes = width, .height = height, .pitch = pitch});
    return 0;
}
int cuEventCreate(void** made, u32 flags) {
    NEED_CONTEXT;
    Event* event = calloc(1, sizeof *event);
    event->timed = !(flags & 2);
    *made = event;
    alive++;
    return 0;
}
int cuEventRecord(void* event, void* s) {
    NEED_CONTEXT; NOT_RECORDING; STREAM;
    submit(s, (Work){.run = run_event, .more = event});
    return 0;
}
// An event in a recording that other streams can wait for.
int cuEventRecordWithFlags(void* event, void* s, u32 flags) {
    NEED_CONTEXT; STREAM;
    if (flags != 1 || !recording) return bad("an external event outside of a recording"), 1;
    submit(s, (Work){.run = run_event, .more = event});
    return 0;
}
static int come(Event* event) { return event->come >= event->recorded; }
int cuEventQuery(void* made) {
    Event* event = made;
    NEED_CONTEXT;
    while (!come(event) && step(event->on)) {}
    return come(event) ? 0 : 600;
}
int cuEventSynchronize(void* made) {
    Event* event = made;
    NEED_CONTEXT; NOT_RECORDING;
    while (!come(event)) if (!step(event->on)) usleep(100);
    return 0;
}
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
    Event *a = from, *b = to;
    if (!a->timed || !b->timed) return 400;
    if (!come(a) || !come(b)) return 600;
    *milliseconds = (float)(b->time - a->time);
    return 0;
}
int cuEventDestroy_v2(void* event) { NEED_CONTEXT; free(event); alive--; return 0; }

// ---- Kernels: an image is the options, a line break, and the source.

#define PARAMETERS 16
typedef struct {
    char name[64];
    int element, count, shared_limit, offsets[PARAMETERS], sizes[PARAMETERS];
} Kernel;
typedef struct { Kernel* kernel; unsigned char values[8 * PARAMETERS]; } Launch;

int cuModuleLoadData(void** module, const void* image) {
    NEED_CONTEXT;
    if (strncmp(image, "-DELEMENT=", 10)) return 200;
    *module = strdup(image);
    alive++;
    return 0;
}
int cuModuleUnload(void* module) { NEED_CONTEXT; free(module); alive--; return 0; }
int cuModuleGetFunction(void** made, void* module, const char* name) {
    NEED_CONTEXT;
    char declared[128];
    snprintf(declared, sizeof declared, "void %s(", name);
    const char* at = strstr(module, declared);
    if (!at) return 500;
    Kernel* kernel = calloc(1, sizeof *kernel);
    strncpy(kernel->name, name, sizeof kernel->name - 1);
    kernel->element = ((char*)module)[10] - '0';
    kernel->shared_limit = 49152;
    at += strlen(declared);
    // Each parameter ends with a comma or the closing parenthesis.
    for (int offset = 0, pointer = 0; kernel->count < PARAMETERS; at++) {
        if (*at == '*') pointer = 1;
        if (*at != ',' && *at != ')') continue;
        int size = pointer ? 8 : 4;
        offset = (offset + size - 1) / size * size;
        kernel->offsets[kernel->count] = offset;
        kernel->sizes[kernel->count++] = size;
        offset += size, pointer = 0;
        if (*at == ')') break;
    }
    *made = kernel;
    return 0;
}
int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* size) {
    Kernel* kernel = function;
    if (index >= (size_t)kernel->count) return 1;
    *offset = (size_t)kernel->offsets[index], *size = (size_t)kernel->sizes[index];
    return 0;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
    if (attribute != 8) return 1;
    *value = ((Kernel*)function)->shared_limit;
    return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    if (attribute != 8 || value > 232448) return 1;
    ((Kernel*)function)->shared_limit = value;
    return 0;
}
static void run_kernel(Work* work) {
    Launch* launch = work->more;
    Kernel* k = launch->kernel;
    static const int types[] = {0, 14, 2};
    int type = types[k->element];
    u64 words[PARAMETERS];
    float numbers[PARAMETERS];
    for (int i = 0; i < k->count; i++) {
        words[i] = 0;
        memcpy(&words[i], launch->values + 8 * i, (size_t)k->sizes[i]);
        memcpy(&numbers[i], &words[i], 4);
    }
    if (!strcmp(k->name, "scale")) {
        // (x, n, by)
        for (u64 i = 0; i < words[1]; i++)
            put((void*)words[0], i, type, get((void*)words[0], i, type) * numbers[2]);
    } else if (!strcmp(k->name, "add_bias")) {
        // (n, width, x, bias)
        for (u64 i = 0; i < words[0] * words[1]; i++)
            put((void*)words[2], i, type,
                get((void*)words[2], i, type) + ((float*)words[3])[i % words[1]]);
    } else {
        bad("a kernel that it does not know");
    }
}
int cuLaunchKernel(void* function, u32 x, u32 y, u32 z, u32 tx, u32 ty, u32 tz, u32 shared, void* s,
                   void** parameters, void** extra) {
    NEED_CONTEXT; STREAM;
    static int launches;
    Kernel* kernel = function;
    if (!x || !y || !z || !tx || ty != 1 || tz != 1 || tx > 1024 || extra) return 1;
    if (shared > (u32)kernel->shared_limit) return 1;
    if (launches++ >= LOST_AFTER) { lost = 1; return 700; }
    Launch* launch = malloc(sizeof *launch);
    launch->kernel = kernel;
    for (int i = 0; i < kernel->count; i++)
        memcpy(launch->values + 8 * i, parameters[i], (size_t)kernel->sizes[i]);
    submit(s, (Work){.run = run_kernel, .more = launch});
    return 0;
}

// ---- NVRTC.

typedef struct { const char* source; char* image; char log[256]; } Program;
int nvrtcVersion(int* major, int* minor) { *major = NVRTC_MAJOR, *minor = NVRTC_MINOR; return 0; }
int nvrtcGetNumSupportedArchs(int* count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int* numbers) { numbers[0] = 75, numbers[1] = 80, numbers[2] = 90; return 0; }
static int compilations;
int fake_compilations(void) { return compilations; }
int nvrtcCreateProgram(void** made, const char* source, const char* name, int headers, void* a, void* b) {
    if (!name || headers || a || b) bad("a program");
    Program* program = calloc(1, sizeof *program);
    program->source = source;
    *made = program;
    alive++;
    return 0;
}
int nvrtcCompileProgram(void* made, int count, const char** options) {
    Program* program = made;
    compilations++;
    size_t length = strlen(program->source) + 2;
    for (int i = 0; i < count; i++) length += strlen(options[i]) + 1;
    program->image = calloc(1, length);
    for (int i = 0; i < count; i++) strcat(strcat(program->image, options[i]), " ");
    strcat(strcat(program->image, "\n"), program->source);
    strcpy(program->log, "compiled");
    return strstr(program->source, "#error") ? 6 : 0;
}
int nvrtcDestroyProgram(void** made) { free(((Program*)*made)->image); free(*made); alive--; return 0; }
int nvrtcGetCUBINSize(void* p, size_t* size) { *size = strlen(((Program*)p)->image) + 1; return 0; }
int nvrtcGetCUBIN(void* p, char* to) { strcpy(to, ((Program*)p)->image); return 0; }
int nvrtcGetPTXSize(void* p, size_t* size) { return nvrtcGetCUBINSize(p, size); }
int nvrtcGetPTX(void* p, char* to) { return nvrtcGetCUBIN(p, to); }
int nvrtcGetProgramLogSize(void* p, size_t* size) { *size = strlen(((Program*)p)->log) + 1; return 0; }
int nvrtcGetProgramLog(void* p, char* to) { strcpy(to, ((Program*)p)->log); return 0; }

// ---- cuBLASLt.

typedef struct { int type; u64 rows, columns; int64_t leading; } Layout;
typedef struct { int compute, scale, a, b, epilogue; const void* bias; } Operation;
typedef struct { u64 workspace; u32 reductions, alignments[4]; } Preference;
typedef struct { u64 data[8]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; } Result;
typedef struct { Operation operation; Layout a, b, d; const void *from_a, *from_b; void* to; float alpha, beta; int slow; } Product;

size_t cublasLtGetVersion(void) { return LT_VERSION; }
const char* cublasLtGetStatusString(int status) { return status == 7 ? "CUBLAS_STATUS_INVALID_VALUE" : "another status"; }
int cublasLtCreate(void** handle) { *handle = &alive; if (!entered) bad("no context"); alive++; return 0; }
int cublasLtDestroy(void* handle) { if (handle != &alive) bad("not a handle"); alive--; return 0; }
int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
    Operation* operation = calloc(1, sizeof *operation);
    operation->compute = compute, operation->scale = scale, operation->epilogue = 1;
    *made = operation;
    alive++;
    return 0;
}
int cublasLtMatmulDescSetAttribute(void* made, int attribute, const void* value, size_t size) {
    Operation* operation = made;
    switch (attribute) {
    case 3: if (size != 4) return 7; memcpy(&operation->a, value, 4); return 0;
    case 4: if (size != 4) return 7; memcpy(&operation->b, value, 4); return 0;
    case 7: if (size != 4) return 7; memcpy(&operation->epilogue, value, 4); return 0;
    case 8: if (size != 8) return 7; memcpy(&operation->bias, value, 8); return 0;
    }
    return 7;
}
int cublasLtMatmulDescDestroy(void* made) { free(made); alive--; return 0; }
int cublasLtMatrixLayoutCreate(void** made, int type, u64 rows, u64 columns, int64_t leading) {
    if (leading < (int64_t)rows) return 7;
    Layout* layout = malloc(sizeof *layout);
    *layout = (Layout){type, rows, columns, leading};
    *made = layout;
    alive++;
    return 0;
}
int cublasLtMatrixLayoutDestroy(void* made) { free(made); alive--; return 0; }
int cublasLtMatmulPreferenceCreate(void** made) {
    Preference* preference = calloc(1, sizeof *preference);
    preference->reductions = 7;
    for (int i = 0; i < 4; i++) preference->alignments[i] = 256;
    *made = preference;
    alive++;
    return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* made, int attribute, const void* value, size_t size) {
    Preference* preference = made;
    if (attribute == 1 && size == 8) return memcpy(&preference->workspace, value, 8), 0;
    if (attribute == 3 && size == 4) return memcpy(&preference->reductions, value, 4), 0;
    if (attribute >= 5 && attribute <= 8 && size == 4)
        return memcpy(&preference->alignments[attribute - 5], value, 4), 0;
    return 7;
}
int cublasLtMatmulPreferenceDestroy(void* made) { free(made); alive--; return 0; }

static int allowed(const Operation* o, const Layout* a, const Layout* b, const Layout* d) {
    u64 rows = o->a ? a->columns : a->rows, inner = o->a ? a->rows : a->columns;
    u64 inner_too = o->b ? b->columns : b->rows, columns = o->b ? b->rows : b->columns;
    return inner == inner_too && rows == d->rows && columns == d->columns && inner && rows && columns
        && a->type == b->type && (d->type == 0 || d->type == a->type) && o->scale == 0
        && (o->compute == 68 || (o->compute == 77 && a->type == 0))
        && (o->epilogue == 1 || o->epilogue == 4);
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d,
                                   void* preference, int asked, Result* results, int* count) {
    const Preference* p = preference;
    heuristics++;
    if (handle != &alive || c != d || asked < 3) return 7;
    if (!allowed(operation, a, b, d)) return 15;
    if (p->workspace != 256 << 20 || p->reductions != 2) bad("a preference");
    // The first is unusable; an algorithm stores its request for later checks. The second is slow.
    results[0].state = 15;
    for (int which = 1; which < 3; which++) {
        results[which].state = 0, results[which].workspace = 1 << 20;
        for (int i = 0; i < 4; i++) results[which].algorithm.data[i] = p->alignments[i];
        results[which].algorithm.data[4] = which;
    }
    *count = 3;
    return 0;
}
int cublasLtMatmulAlgoCheck(void* handle, void* operation, void* a, void* b, void* c, void* d,
                            const Algorithm* algorithm, Result* result) {
    if (handle != &alive || c != d) return 7;
    if (!allowed(operation, a, b, d) || algorithm->data[4] > 2) return 15;
    result->state = 0, result->workspace = 1 << 20;
    return 0;
}
static void run_product(Work* work) {
    Product* p = work->more;
    const Operation* o = &p->operation;
    u64 inner = o->a ? p->a.rows : p->a.columns;
    if (p->slow) clock_now += 5.0;
    for (u64 row = 0; row < p->d.rows; row++)
        for (u64 column = 0; column < p->d.columns; column++) {
            double sum = 0.0;
            for (u64 i = 0; i < inner; i++) {
                u64 at_a = o->a ? row * (u64)p->a.leading + i : i * (u64)p->a.leading + row;
                u64 at_b = o->b ? i * (u64)p->b.leading + column : column * (u64)p->b.leading + i;
                sum += (double)get(p->from_a, at_a, p->a.type) * get(p->from_b, at_b, p->b.type);
            }
            u64 at = column * (u64)p->d.leading + row;
            float value = p->alpha * (float)sum;
            if (p->beta != 0.0f) value += p->beta * get(p->to, at, p->d.type);
            if (o->epilogue == 4) value += get(o->bias, row, p->d.type);
            put(p->to, at, p->d.type, value);
        }
}
int cublasLtMatmul(void* handle, void* operation, const float* alpha, const void* a, Layout* a_layout,
                   const void* b, Layout* b_layout, const float* beta, const void* c, Layout* c_layout,
                   void* d, Layout* d_layout, const Algorithm* algorithm, void* workspace,
                   size_t workspace_bytes, void* s) {
    if (lost) return 13;
    if (!entered || handle != &alive || c != d || c_layout != d_layout || !is_stream(s)) return 7;
    if (!workspace || (u64)workspace % 256 || workspace_bytes != 256 << 20) return 7;
    if (!allowed(operation, a_layout, b_layout, d_layout)) return 7;
    const void* places[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if ((u64)places[i] % algorithm->data[i]) return bad("less aligned than was said"), 7;
    Product* product = malloc(sizeof *product);
    *product = (Product){*(Operation*)operation, *a_layout, *b_layout, *d_layout, a, b, d, *alpha, *beta, algorithm->data[4] == 1};
    if (product->slow) slow_products++;
    submit(s, (Work){.run = run_product, .more = product});
    return 0;
}
#endif
