/* A libnvidia-ml.so.1 with one device that does what files say, where there is no driver.
 *
 * The folder NVML_SHIM_FOLDER holds two files, read anew on each call and replaced by renaming:
 *   device   lines of a word and a number or a name: what is scripted
 *   own      one number: the bytes that the replica itself holds now
 * Memory in use is what the replica holds and what a scripted co-tenant holds.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, UNKNOWN = 999 };

typedef struct {
    char uuid[96];
    unsigned long long total, reserved, cotenant, own, reasons, clock_mhz;
    long long lied_free;                 /* told as free whatever is in use; -1 for the truth */
    int init, handle, memory, clock, v2; /* errors to answer with, by what is asked */
} Device;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

static FILE *open_file(const char *name) {
    const char *folder = getenv("NVML_SHIM_FOLDER");
    char path[PATH_MAX];
    if (folder == NULL) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "r");
}

static void take(Device *device, const char *word, const char *value) {
    unsigned long long number = strtoull(value, NULL, 10);
    if (!strcmp(word, "uuid")) snprintf(device->uuid, sizeof device->uuid, "%s", value);
    if (!strcmp(word, "total")) device->total = number;
    if (!strcmp(word, "reserved")) device->reserved = number;
    if (!strcmp(word, "cotenant")) device->cotenant = number;
    if (!strcmp(word, "reasons")) device->reasons = number;
    if (!strcmp(word, "clock_mhz")) device->clock_mhz = number;
    if (!strcmp(word, "lied_free")) device->lied_free = strtoll(value, NULL, 10);
    if (!strcmp(word, "init_error")) device->init = (int)number;
    if (!strcmp(word, "handle_error")) device->handle = (int)number;
    if (!strcmp(word, "memory_error")) device->memory = (int)number;
    if (!strcmp(word, "v2_error")) device->v2 = (int)number;
    if (!strcmp(word, "clock_error")) device->clock = (int)number;
}

static int read_device(Device *device) {
    char word[32], value[96];
    FILE *file = open_file("device");
    memset(device, 0, sizeof *device);
    device->lied_free = -1;
    if (file == NULL) return UNKNOWN;
    while (fscanf(file, "%31s %95s", word, value) == 2) take(device, word, value);
    fclose(file);
    file = open_file("own");
    if (file == NULL) return UNKNOWN;
    int found = fscanf(file, "%llu", &device->own);
    fclose(file);
    return found == 1 ? SUCCESS : UNKNOWN;
}

/* Memory as the driver tells it: of an overbooked device nothing is free, and no more in use. */
static int read_memory(Device *device, unsigned long long *free_bytes, unsigned long long *used) {
    int error = read_device(device);
    if (error != SUCCESS) return error;
    if (device->memory != SUCCESS) return device->memory;
    unsigned long long usable = device->total - device->reserved;
    *used = device->own + device->cotenant;
    if (*used > usable) *used = usable;
    *free_bytes = device->lied_free < 0 ? usable - *used : (unsigned long long)device->lied_free;
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags) {
    Device device;
    (void)flags;
    int error = read_device(&device);
    return error != SUCCESS ? error : device.init;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) { return error == SUCCESS ? "success" : "scripted error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "0.0.shim");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    static char device;
    *handle = &device;
    return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    Device device;
    int error = read_device(&device);
    if (error != SUCCESS) return error;
    if (device.handle != SUCCESS) return device.handle;
    if (strcmp(uuid, device.uuid)) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(0, handle);
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) {
    Device device;
    (void)handle;
    int error = read_device(&device);
    if (error == SUCCESS) snprintf(uuid, length, "%s", device.uuid);
    return error;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    (void)handle;
    snprintf(name, length, "Shim");
    return SUCCESS;
}

/* The old form counts the driver's own reserve as used. */
int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Device device;
    (void)handle;
    int error = read_memory(&device, &memory->free, &memory->used);
    memory->total = device.total;
    memory->used += device.reserved;
    return error;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory) {
    Device device;
    (void)handle;
    int error = read_memory(&device, &memory->free, &memory->used);
    memory->total = device.total;
    memory->reserved = device.reserved;
    return error != SUCCESS ? error : device.v2;
}

int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned int *clock_mhz) {
    Device device;
    (void)handle;
    (void)kind;
    int error = read_device(&device);
    *clock_mhz = (unsigned int)device.clock_mhz;
    return error != SUCCESS ? error : device.clock;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    Device device;
    (void)handle;
    int error = read_device(&device);
    *reasons = device.reasons;
    return error != SUCCESS ? error : device.clock;
}
