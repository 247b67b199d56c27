// A stand-in for libcuda: the calls of the driver API that Muster makes, with its rules and real memory behind them.
//
// Device memory is host memory under other addresses (touching one from the CPU faults), every stream is a thread that
// works late, so that a buffer that is used again too early shows in the bytes, and the kernel is the same source as on
// a GPU. Compiled by gpu_stand_in.py, with the kernel's source before this one.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define INVALID_CONTEXT 201
#define NOT_READY 600
#define NOT_SUPPORTED 801
#define DEVICE_BIT 0x4000000000000000ULL
#define MOST 4096
#define OPERATIONS 4096

enum { ALLOCATIONS, REGISTERED, STREAMS, EVENTS, CONTEXTS, UNPINNED_COPIES, COPIES, LAUNCHES, KINDS };

typedef struct { u64 begin, size; } Range;
typedef struct Event { int timed, recorded, done; double at; } Event;
typedef struct { int kind; void *to; const void *from; u64 size; Event *event; u64 words[8]; u64 blocks; } Operation;
typedef struct Stream { pthread_t thread; Operation queue[OPERATIONS]; u64 first, last, finished; int ends; } Stream;
enum { COPY, RECORD, LAUNCH };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Range allocated[MOST], pinned[MOST];
static long counts[KINDS];
static u64 memory_bytes = 1ULL << 30, used_bytes = 0;
static long late_microseconds = 200, refuses_pinning = 0, major = 9, minor = 0, devices = 1;
static Stream *shared = 0;
static __thread int current = 0;

// -- what a test sets and asks ---------------------------------------------------------------------------------------
long stand_in_count(int kind) { return counts[kind]; }
void stand_in_set_memory(u64 size) { memory_bytes = size; }
void stand_in_set_late(long microseconds) { late_microseconds = microseconds; }
void stand_in_set_refuses_pinning(long refuses) { refuses_pinning = refuses; }
void stand_in_set_capability(long a, long b) { major = a; minor = b; }
void stand_in_set_devices(long count) { devices = count; }
void *stand_in_host_pointer(u64 address) { return (void *)(address ^ DEVICE_BIT); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int inside(const Range *ranges, u64 begin, u64 size) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST && !found; i++)
        found = ranges[i].size && begin >= ranges[i].begin && begin + size <= ranges[i].begin + ranges[i].size;
    pthread_mutex_unlock(&lock);
    return found;
}

static int put(Range *ranges, u64 begin, u64 size, int kind) {
    for (int i = 0; i < MOST; i++)
        if (!ranges[i].size) {
            ranges[i] = (Range){begin, size};
            counts[kind]++;
            return OK;
        }
    return OUT_OF_MEMORY;
}

static u64 take(Range *ranges, u64 begin, int kind) {
    for (int i = 0; i < MOST; i++)
        if (ranges[i].size && ranges[i].begin == begin) {
            u64 size = ranges[i].size;
            ranges[i].size = 0;
            counts[kind]--;
            return size;
        }
    return 0;
}

// -- devices and contexts --------------------------------------------------------------------------------------------
int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGetCount(int *count) { return *count = (int)devices, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal < devices ? OK : 101; }
int cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, (size_t)length, "stand-in %d", device), OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    return *value = (int)(attribute == 75 ? major : attribute == 76 ? minor : 0), OK;
}
int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN";
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    counts[CONTEXTS]++;
    return *context = &counts, OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    counts[CONTEXTS]--;
    return OK;
}
int cuCtxSetCurrent(void *context) { return current = context != 0, OK; }

// -- memory ----------------------------------------------------------------------------------------------------------
int cuMemGetInfo_v2(size_t *available, size_t *total) {
    if (!current) return INVALID_CONTEXT;
    *total = memory_bytes;
    *available = memory_bytes - used_bytes;
    return OK;
}

int cuMemAlloc_v2(u64 *address, size_t size) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    int status = used_bytes + size > memory_bytes ? OUT_OF_MEMORY : OK;
    void *memory = status == OK ? malloc(size ? size : 1) : 0;
    if (memory) {
        memset(memory, 0xA5, size);
        used_bytes += size;
        *address = (u64)memory | DEVICE_BIT;
        status = put(allocated, *address, size, ALLOCATIONS);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int cuMemFree_v2(u64 address) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    u64 size = take(allocated, address, ALLOCATIONS);
    used_bytes -= size;
    pthread_mutex_unlock(&lock);
    if (!size) return INVALID_VALUE;
    free(stand_in_host_pointer(address));
    return OK;
}

int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    if (refuses_pinning) return NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    int status = put(pinned, (u64)memory, size, REGISTERED);
    pthread_mutex_unlock(&lock);
    return status;
}

int cuMemHostUnregister(void *memory) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    u64 size = take(pinned, (u64)memory, REGISTERED);
    pthread_mutex_unlock(&lock);
    return size ? OK : 713;
}

// -- streams ---------------------------------------------------------------------------------------------------------
static void perform(Operation *operation) {
    u64 *words = operation->words;
    if (operation->kind == COPY) memcpy(operation->to, operation->from, operation->size);
    if (operation->kind == LAUNCH)
        hash_chunks(stand_in_host_pointer(words[0]), stand_in_host_pointer(words[1]), stand_in_host_pointer(words[2]),
                    operation->blocks, words[3], stand_in_host_pointer(words[4]));
}

static void *work(void *argument) {
    Stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first == stream->last && !stream->ends) pthread_cond_wait(&changed, &lock);
        if (stream->first == stream->last) break;
        Operation operation = stream->queue[stream->first++ % OPERATIONS];
        pthread_mutex_unlock(&lock);
        if (operation.kind == COPY && late_microseconds) usleep((useconds_t)late_microseconds);
        perform(&operation);
        pthread_mutex_lock(&lock);
        if (operation.kind == RECORD) operation.event->at = now(), operation.event->done = 1;
        stream->finished++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static Stream *new_stream(void) {
    Stream *stream = calloc(1, sizeof *stream);
    pthread_create(&stream->thread, 0, work, stream);
    return stream;
}

// The handles 0 to 2 are the driver's own streams.
static Stream *find(void *handle) {
    if ((u64)handle > 2) return handle;
    if (!shared) shared = new_stream();
    return shared;
}

static int add(void *handle, Operation operation) {
    if (!current) return INVALID_CONTEXT;
    Stream *stream = find(handle);
    pthread_mutex_lock(&lock);
    while (stream->last - stream->first == OPERATIONS) pthread_cond_wait(&changed, &lock);
    stream->queue[stream->last++ % OPERATIONS] = operation;
    if (operation.kind == RECORD) operation.event->recorded = 1, operation.event->done = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    *stream = new_stream();
    counts[STREAMS]++;
    return OK;
}

int cuStreamSynchronize(void *handle) {
    if (!current) return INVALID_CONTEXT;
    Stream *stream = find(handle);
    pthread_mutex_lock(&lock);
    while (stream->finished != stream->last) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuStreamDestroy_v2(void *handle) {
    if (!current) return INVALID_CONTEXT;
    Stream *stream = handle;
    pthread_mutex_lock(&lock);
    stream->ends = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, 0);
    free(stream);
    counts[STREAMS]--;
    return OK;
}

int cuEventCreate(void **event, unsigned flags) {
    if (!current) return INVALID_CONTEXT;
    *event = calloc(1, sizeof(Event));
    ((Event *)*event)->timed = !(flags & 2);
    counts[EVENTS]++;
    return OK;
}

int cuEventDestroy_v2(void *event) {
    free(event);
    counts[EVENTS]--;
    return OK;
}

int cuEventRecord(void *event, void *stream) { return add(stream, (Operation){.kind = RECORD, .event = event}); }

int cuEventSynchronize(void *handle) {
    Event *event = handle;
    pthread_mutex_lock(&lock);
    while (event->recorded && !event->done) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    Event *begin = from, *end = to;
    if (!begin->timed || !end->timed || !begin->recorded || !end->recorded) return 400;
    if (!begin->done || !end->done) return NOT_READY;
    *milliseconds = (float)(1e3 * (end->at - begin->at));
    return OK;
}

static void note_copy(const void *host, u64 size) {
    int is_pinned = inside(pinned, (u64)host, size);
    pthread_mutex_lock(&lock);
    counts[COPIES]++;
    if (!is_pinned) counts[UNPINNED_COPIES]++;
    pthread_mutex_unlock(&lock);
}

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t size, void *stream) {
    if (!inside(allocated, to, size)) return INVALID_VALUE;
    note_copy(from, size);
    return add(stream, (Operation){.kind = COPY, .to = stand_in_host_pointer(to), .from = from, .size = size});
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t size, void *stream) {
    if (!inside(allocated, from, size)) return INVALID_VALUE;
    return add(stream, (Operation){.kind = COPY, .to = to, .from = stand_in_host_pointer(from), .size = size});
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, void *stream) {
    if (!inside(allocated, from, size) || !inside(allocated, to, size)) return INVALID_VALUE;
    void *target = stand_in_host_pointer(to);
    return add(stream, (Operation){.kind = COPY, .to = target, .from = stand_in_host_pointer(from), .size = size});
}

int cuMemcpyHtoD_v2(u64 to, const void *from, size_t size) {
    if (!current) return INVALID_CONTEXT;
    if (!inside(allocated, to, size)) return INVALID_VALUE;
    return memcpy(stand_in_host_pointer(to), from, size), OK;
}

int cuMemcpyDtoH_v2(void *to, u64 from, size_t size) {
    if (!current) return INVALID_CONTEXT;
    if (!inside(allocated, from, size)) return INVALID_VALUE;
    return memcpy(to, stand_in_host_pointer(from), size), OK;
}

// -- the kernel ------------------------------------------------------------------------------------------------------
int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)image;
    return memcmp(image, "\177ELF", 4) ? 200 : OK;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "hash_chunks") ? 500 : OK;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned b, unsigned c,
                   unsigned shared_bytes, void *stream, void **parameters, void **extra) {
    if (!function || y != 1 || z != 1 || threads != 288 || b != 1 || c != 1 || shared_bytes || extra) return INVALID_VALUE;
    Operation operation = {.kind = LAUNCH, .blocks = x};
    for (int i = 0; i < 5; i++) operation.words[i] = *(u64 *)parameters[i];
    if (!inside(allocated, operation.words[1], 24 * (u64)x)) return INVALID_VALUE;
    counts[LAUNCHES]++;
    return add(stream, operation);
}
