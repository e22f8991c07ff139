/* The machine code of xla.py: the handler that XLA calls for every program, a function of XLA's typed FFI. */
#include "../../runtime/parts/part.h"

/* The version of XLA's interface that it says it is for. */
FILLED(MAJOR);
FILLED(MINOR);

typedef struct ProgramWord Program;
typedef struct Record Record;
_Static_assert(sizeof(Record) == RECORD * sizeof(word), "records lie one after the other");

/* -- structures of xla/ffi/api/c_api.h, as version 0 has them, with the names of what is read ---------------------- */

typedef struct {
    size_t size;
    void *extension;
} Head;

typedef struct {
    Head head;
    int32_t major, minor;
} Version;

typedef struct {
    Head head;
    int32_t dtype;
    void *data;
    int64_t rank;
    const int64_t *dims;
} Buffer;

typedef struct {
    Head head;
    char *message;
    int32_t code;
} ErrorArguments;

typedef struct {
    Head head;
    Version version;
    void *internal;
    void *(*create_error)(ErrorArguments *);
} Api;

typedef struct {
    size_t size;
    Version version;
    uint32_t traits;
} Metadata;

typedef struct {
    size_t size;
    int32_t type;
    void *next;
    Metadata *metadata; /* of METADATA_TYPE */
} Extension;

typedef struct {
    size_t size;
    Extension *extension;
    const Api *api;
    void *context;
    int32_t stage;
    struct {
        Head head;
        int64_t count;
        void *types;
        Buffer **items;
    } arguments, results;
    struct {
        Head head;
        int64_t count;
        void *types, *names;
        struct {
            int64_t dtype;
            Program **value;
        } **items;
    } attributes;
} Frame;

enum { METADATA_TYPE = 1 }; /* of the extension that asks a handler for its version */

enum { OUT_OF_MEMORY = 8, FAILED_CHECK = 9, WRONG_CALL = 13 }; /* as XLA_FFI_Error_Code has them */

/* ------------------------------------------------------------------------------------------------------------------ */

/* What an empty buffer without an address has instead. */
static _Alignas(16) char nowhere[16];

/* An XLA_FFI_Error with a text, which XLA copies. */
static void *error(const Frame *frame, word text, int code) {
    enum { SIZE = offsetof(ErrorArguments, code) + sizeof(int32_t) };
    ErrorArguments arguments = {{SIZE, NULL}, (char *)text, code};
    return frame->api->create_error(&arguments);
}

/* How many axes a buffer has before those of its record; negative where its dtype is another. */
static word extra(const Buffer *buffer, const Record *record) {
    return (uint32_t)buffer->dtype == record->DTYPE ? buffer->rank - record->RANK : -1;
}

/* The product of the first sizes of a buffer. */
static word product(const Buffer *buffer, word axes) {
    word total = 1;
    for (word i = 0; i < axes; i++)
        total *= buffer->dims[i];
    return total;
}

/* Whether the last sizes of a buffer are those of its record, and its address a multiple of the size of an element. */
static bool fits(const Buffer *buffer, const Record *record, word axes) {
    bool so_far = ((word)buffer->data & record->MASK) == 0;
    for (word i = 0; i < record->RANK; i++)
        so_far &= buffer->dims[axes + i] == ((const word *)record->SHAPE)[i];
    return so_far;
}

/* Null, or an XLA_FFI_Error. */
void *handler(const Frame *frame) {
    if (frame->extension != NULL && frame->extension->type == METADATA_TYPE) {
        Metadata *metadata = frame->extension->metadata;
        metadata->version.major = (int32_t)NUMBER(MAJOR);
        metadata->version.minor = (int32_t)NUMBER(MINOR);
        metadata->traits = 0;
        return NULL;
    }
    const Program *program = *frame->attributes.items[0]->value; /* the one attribute is the address of its words */
    const Record *records = (const Record *)program->RECORDS;
    word feeds = program->FEEDS, results = program->RESULTS, both = feeds + results;
    if (frame->arguments.count != feeds || frame->results.count != results)
        return error(frame, program->MISMATCH, WRONG_CALL);
    char **table = __builtin_alloca((size_t)both * sizeof(char *));
    char **given = __builtin_alloca((size_t)feeds * sizeof(char *));
    char *copies = __builtin_alloca_with_align((size_t)program->COPIES + 1, 8 * ROOM);
    word *strides = __builtin_alloca((size_t)both * sizeof(word));
    /* Results have all axes of the batch: the first of them says how many calls there are. */
    Buffer *first = frame->results.items[0];
    word axes = extra(first, &records[feeds]);
    if (axes < 0)
        return error(frame, program->MISMATCH, WRONG_CALL);
    word calls = product(first, axes);
    for (word i = 0; i < both; i++) {
        const Buffer *buffer = i < feeds ? frame->arguments.items[i] : frame->results.items[i - feeds];
        word own_axes = extra(buffer, &records[i]);
        bool is_shared = own_axes == 0 && i < feeds; /* by all calls */
        if (!is_shared && (own_axes != axes || product(buffer, own_axes) != calls))
            return error(frame, program->MISMATCH, WRONG_CALL);
        if (!fits(buffer, &records[i], own_axes))
            return error(frame, program->MISMATCH, WRONG_CALL);
        table[i] = buffer->data == NULL ? nowhere : buffer->data;
        strides[i] = is_shared ? 0 : records[i].NBYTES;
    }
    int (*entry)(char **feeds, char **results, void *user) = (void *)program->ENTRY;
    for (word call = 0; call < calls; call++) {
        char *copy = copies;
        for (word i = 0; i < feeds; i++) {
            const Record *record = &records[i];
            given[i] = table[i];
            if (record->RESULT < 0 || table[i] != table[feeds + record->RESULT])
                continue;
            given[i] = __builtin_memcpy(copy, table[i], (size_t)record->NBYTES);
            copy += (record->NBYTES + ROOM - 1) & -ROOM;
        }
        int status = entry(given, table + feeds, NULL);
        if (status) {
            /* Statuses of checks count from 1; texts[0] is of all others. */
            bool is_check = status > 0 && status <= program->CHECKS;
            word text = ((const word *)program->TEXTS)[is_check ? status : 0];
            return error(frame, text, is_check ? FAILED_CHECK : OUT_OF_MEMORY);
        }
        for (word i = 0; i < both; i++)
            table[i] += strides[i];
    }
    return NULL;
}
