/* A libnvidia-ml.so.1 for machines that have none: answers what a script says.
 *
 * The file named by NVML_STAND_IN is read by nvmlInit. Its lines are `key = value`, and `[system]`,
 * `[gpu N]` and `[mig N M]` begin a section. A function answers with its key's value; without
 * the key it is not supported. A value `error N` is returned as the status N, `A ; B` answers A
 * once and B from then on, and `lost_after = N` loses a device after N calls for it.
 *
 * Sizes, version words and statuses are those of nvml.h. -DOLD_DRIVER leaves out the functions that
 * drivers before 510 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};

enum { MOST_SECTIONS = 64, MOST_KEYS = 48, MOST_GPUS = 16, MOST_PROCESSES = 16 };

#define MEMORY_V2 0x02000028u
#define ADDRESSING_MODE_V1 0x01000008u

typedef struct {
    char key[64];
    char value[1024];
} entry_t;

typedef struct {
    char name[64];
    entry_t entries[MOST_KEYS];
    int count;
    int calls;
} section_t;

typedef section_t *device_t;

typedef struct {
    unsigned long long total, free, used;
} memory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;

typedef struct {
    char legacy_bus_id[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info_t;

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
} process_t;

typedef struct {
    unsigned int version, value;
} addressing_mode_t;

_Static_assert(sizeof(memory_v2_t) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(pci_info_t) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(process_t) == 24, "nvmlProcessInfo_v2_t");

static section_t sections[MOST_SECTIONS];
static int section_count;
static int users;

static char *trimmed(char *text)
{
    char *end = text + strlen(text);
    while (*text == ' ' || *text == '\t')
        text++;
    while (end > text && strchr(" \t\r\n", end[-1]))
        *--end = '\0';
    return text;
}

static section_t *section_named(const char *name)
{
    for (int i = 0; i < section_count; i++)
        if (!strcmp(sections[i].name, name))
            return &sections[i];
    return NULL;
}

static void add_line(char *line)
{
    char *text = trimmed(line), *equals = strchr(text, '=');
    if (*text == '[' && section_count < MOST_SECTIONS) {
        section_t *section = &sections[section_count++];
        memset(section, 0, sizeof *section);
        snprintf(section->name, sizeof section->name, "%.*s", (int)strlen(text) - 2, text + 1);
    } else if (equals && section_count) {
        section_t *section = &sections[section_count - 1];
        entry_t *entry = &section->entries[section->count++];
        if (section->count > MOST_KEYS)
            abort();
        *equals = '\0';
        snprintf(entry->key, sizeof entry->key, "%s", trimmed(text));
        snprintf(entry->value, sizeof entry->value, "%s", trimmed(equals + 1));
    }
}

static int read_script(void)
{
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1200];
    if (!file)
        return 0;
    section_count = 0;
    while (fgets(line, sizeof line, file))
        add_line(line);
    fclose(file);
    return 1;
}

static entry_t *entry_of(section_t *section, const char *key)
{
    for (int i = 0; section && i < section->count; i++)
        if (!strcmp(section->entries[i].key, key))
            return &section->entries[i];
    return NULL;
}

/* Give the value of a key in `out`; the status when there is none, or it is an error. */
static int peek(section_t *section, const char *key, char *out, size_t size)
{
    entry_t *entry = entry_of(section, key);
    if (!entry)
        return NOT_SUPPORTED;
    snprintf(out, size, "%.*s", (int)strcspn(entry->value, ";"), entry->value);
    memmove(out, trimmed(out), strlen(trimmed(out)) + 1);
    return strncmp(out, "error ", 6) ? SUCCESS : atoi(out + 6);
}

/* Go on to the next of several answers. */
static void advance(section_t *section, const char *key)
{
    entry_t *entry = entry_of(section, key);
    char *rest = entry ? strchr(entry->value, ';') : NULL;
    if (rest) {
        rest = trimmed(rest + 1);
        memmove(entry->value, rest, strlen(rest) + 1);
    }
}

static int value_of(section_t *section, const char *key, char *out, size_t size)
{
    int status = peek(section, key, out, size);
    advance(section, key);
    return status;
}

static int number_of(section_t *section, const char *key, unsigned int *out)
{
    char text[1024];
    int status = value_of(section, key, text, sizeof text);
    if (status == SUCCESS)
        *out = (unsigned int)strtoul(text, NULL, 0);
    return status;
}

static int text_of(section_t *section, const char *key, char *out, unsigned int size)
{
    char text[1024];
    int status = value_of(section, key, text, sizeof text);
    if (status != SUCCESS)
        return status;
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int check_system(const void *out)
{
    if (!users)
        return UNINITIALIZED;
    return out ? SUCCESS : INVALID_ARGUMENT;
}

static int check_device(device_t device, const void *out)
{
    char after[1024];
    if (!users)
        return UNINITIALIZED;
    if (device < sections || device >= sections + section_count || !out)
        return INVALID_ARGUMENT;
    device->calls++;
    if (value_of(device, "lost_after", after, sizeof after) == SUCCESS)
        return device->calls > atoi(after) ? GPU_IS_LOST : SUCCESS;
    return SUCCESS;
}

#define CHECK(expression)                                                                          \
    do {                                                                                           \
        int status_ = (expression);                                                                \
        if (status_ != SUCCESS)                                                                    \
            return status_;                                                                        \
    } while (0)

/* The system */

int nvmlInitWithFlags(unsigned int flags)
{
    unsigned int refused;
    (void)flags;
    if (!users && !read_script())
        return DRIVER_NOT_LOADED;
    if (number_of(section_named("system"), "init", &refused) == SUCCESS && refused)
        return (int)refused;
    users++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    return status == GPU_IS_LOST ? "GPU is lost" : "Scripted Error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    CHECK(check_system(out));
    return text_of(section_named("system"), "driver", out, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    CHECK(check_system(out));
    return number_of(section_named("system"), "cuda", (unsigned int *)out);
}

int nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int size)
{
    char key[32];
    int status;
    CHECK(check_system(out));
    snprintf(key, sizeof key, "process %u", pid);
    status = text_of(section_named("system"), key, out, size);
    return status == NOT_SUPPORTED ? NOT_FOUND : status;
}

int nvmlDeviceGetCount_v2(unsigned int *out)
{
    char name[32];
    int status;
    CHECK(check_system(out));
    status = number_of(section_named("system"), "count", out);
    if (status != NOT_SUPPORTED)
        return status;
    for (*out = 0; *out < MOST_GPUS; ++*out) {
        snprintf(name, sizeof name, "gpu %u", *out);
        if (!section_named(name))
            break;
    }
    return SUCCESS;
}

static int handle_of(const char *name, device_t *out)
{
    char value[1024];
    device_t found = section_named(name);
    if (!found)
        return NOT_FOUND;
    if (value_of(found, "handle", value, sizeof value) != NOT_SUPPORTED)
        return atoi(value + 6);
    *out = found;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *out)
{
    char name[32];
    unsigned int count;
    CHECK(check_system(out));
    CHECK(nvmlDeviceGetCount_v2(&count));
    if (index >= count)
        return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "gpu %u", index);
    return handle_of(name, out);
}

/* What a device is */

int nvmlDeviceGetName(device_t device, char *out, unsigned int size)
{
    CHECK(check_device(device, out));
    return text_of(device, "name", out, size);
}

int nvmlDeviceGetUUID(device_t device, char *out, unsigned int size)
{
    CHECK(check_device(device, out));
    return text_of(device, "uuid", out, size);
}

int nvmlDeviceGetPciInfo_v3(device_t device, pci_info_t *out)
{
    char text[1024];
    CHECK(check_device(device, out));
    CHECK(value_of(device, "pci", text, sizeof text));
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%.31s", text);
    if (sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3)
        abort();
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor)
{
    unsigned int sm;
    CHECK(check_device(device, major));
    CHECK(number_of(device, "sm", &sm));
    *major = (int)sm / 10;
    *minor = (int)sm % 10;
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetAddressingMode(device_t device, addressing_mode_t *out)
{
    CHECK(check_device(device, out));
    if (out->version != ADDRESSING_MODE_V1)
        return ARGUMENT_VERSION_MISMATCH;
    return number_of(device, "addressing_mode", &out->value);
}
#endif

#define NUMBER(function, key)                                                                      \
    int function(device_t device, unsigned int *out)                                               \
    {                                                                                              \
        CHECK(check_device(device, out));                                                          \
        return number_of(device, key, out);                                                        \
    }

NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerUsage, "power_draw_mw")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "max_pcie_gen")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "max_mig")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance")

static int clock_of(device_t device, const char *prefix, unsigned int type, unsigned int *out)
{
    static const char *const names[] = {"graphics", "sm", "memory", "video"};
    char key[64];
    CHECK(check_device(device, out));
    if (type > 3)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s%s_clock", prefix, names[type]);
    return number_of(device, key, out);
}

int nvmlDeviceGetClockInfo(device_t device, unsigned int type, unsigned int *out)
{
    return clock_of(device, "", type, out);
}

int nvmlDeviceGetMaxClockInfo(device_t device, unsigned int type, unsigned int *out)
{
    return clock_of(device, "max_", type, out);
}

/* `nvlinks = 1 1 0` are the states of three links; there are no more. */
int nvmlDeviceGetNvLinkState(device_t device, unsigned int link, unsigned int *out)
{
    char text[1024];
    CHECK(check_device(device, out));
    CHECK(value_of(device, "nvlinks", text, sizeof text));
    if (2 * link >= strlen(text))
        return INVALID_ARGUMENT;
    *out = (unsigned int)(text[2 * link] - '0');
    return SUCCESS;
}

/* MIG */

int nvmlDeviceGetMigMode(device_t device, unsigned int *current, unsigned int *pending)
{
    CHECK(check_device(device, current));
    CHECK(number_of(device, "mig", current));
    *pending = *current;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned int index, device_t *out)
{
    char name[80];
    CHECK(check_device(device, out));
    snprintf(name, sizeof name, "mig %s %u", device->name + strlen("gpu "), index);
    return handle_of(name, out);
}

/* Memory, as `total reserved free used`, and processes, as `pid:bytes` (`?`: not available) */

static int memory_of(device_t device, memory_v2_t *out)
{
    char text[1024];
    CHECK(value_of(device, "memory", text, sizeof text));
    if (sscanf(text, "%llu %llu %llu %llu", &out->total, &out->reserved, &out->free, &out->used) != 4)
        abort();
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t device, memory_t *out)
{
    memory_v2_t answer;
    CHECK(check_device(device, out));
    CHECK(memory_of(device, &answer));
    /* Version 1 has no field for what is reserved and counts it as used. */
    *out = (memory_t){answer.total, answer.free, answer.used + answer.reserved};
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2_t *out)
{
    unsigned int accepted = 1;
    CHECK(check_device(device, out));
    number_of(device, "accepts_memory_v2", &accepted);
    if (out->version != MEMORY_V2 || !accepted)
        return ARGUMENT_VERSION_MISMATCH;
    return memory_of(device, out);
}
#endif

static int processes_of(device_t device, const char *key, unsigned int *count, process_t *out)
{
    char text[1024], *word, *rest = NULL;
    process_t found[MOST_PROCESSES];
    unsigned int number = 0;
    CHECK(check_device(device, count));
    CHECK(peek(device, key, text, sizeof text));
    for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *colon = strchr(word, ':');
        if (number == MOST_PROCESSES || !colon)
            abort();
        found[number].pid = (unsigned int)strtoul(word, NULL, 10);
        found[number].used = colon[1] == '?' ? ~0ull : strtoull(colon + 1, NULL, 10);
        found[number].gpu_instance = found[number].compute_instance = ~0u;
        number++;
    }
    if (*count < number || (number && !out)) {
        *count = number;
        return INSUFFICIENT_SIZE;
    }
    advance(device, key);
    *count = number;
    if (number)
        memcpy(out, found, number * sizeof *out);
    return SUCCESS;
}

#define PROCESSES(function, key)                                                                   \
    int function(device_t device, unsigned int *count, process_t *out)                             \
    {                                                                                              \
        return processes_of(device, key, count, out);                                              \
    }

#ifdef OLD_DRIVER
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")
#else
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
#endif
