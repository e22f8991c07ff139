/* The machine code of mpi.py, which says what it does. HANDLE: a handle of MPI, int32_t or int64_t.

   Each operation is called as int (operation, operands): the operands' table begins with the number of elements. */
#include "../parts/clock.h"

int sched_yield(void);

typedef struct CollectiveWord Operation;
typedef struct MeetingWord Meeting;

/* The operands' table. */
typedef struct {
    uint64_t count;
    void *in, *out;
    HANDLE *request; /* of reduce_start alone */
} Operands;

/* The functions of MPI. */
typedef int Receive(void *to, int n, HANDLE type, int rank, int tag, HANDLE comm, HANDLE *request);
typedef int Send(const void *from, int n, HANDLE type, int rank, int tag, HANDLE comm, HANDLE *request);
typedef int TestAll(int n, HANDLE *requests, int *flag, void *statuses);
typedef int ReduceLocal(const void *in, void *inout, int n, HANDLE type, HANDLE reduction);
typedef int Reduce(const void *in, void *out, int n, HANDLE type, HANDLE reduction, int root, HANDLE comm, HANDLE *);
typedef int AllReduce(const void *in, void *out, int n, HANDLE type, HANDLE reduction, HANDLE comm, HANDLE *);
typedef int AllGather(const void *in, int n, HANDLE type, void *out, int each, HANDLE as, HANDLE comm, HANDLE *);
typedef int Broadcast(void *inout, int n, HANDLE type, int root, HANDLE comm, HANDLE *);
typedef int Barrier(HANDLE comm, HANDLE *);

enum { LONG = 0, FAILED = 1, TOGETHER = 2 }; /* what meet answers */

static Meeting *meeting_of(const Operation *op) { return (Meeting *)op->MEETING; }
static uint64_t size_of(const Operation *op) { return (uint64_t)meeting_of(op)->SIZE; }
static uint64_t rank_of(const Operation *op) { return (uint64_t)meeting_of(op)->RANK; }
static HANDLE comm_of(const Operation *op) { return (HANDLE)meeting_of(op)->COMM; }
static HANDLE type_of(const Operation *op) { return (HANDLE)op->TYPE; }
static HANDLE reduction_of(const Operation *op) { return (HANDLE)op->REDUCTION; }

/* Note why the operation fails: neither it nor any later one can go on. */
static int fail(Operation *op, word why) {
    op->STATUS = why;
    *(word *)meeting_of(op)->FAILED = 1;
    return FAILED;
}

/* Test until the requests have ended (0), or the time is up. The first look at the clock comes after some turns. */
static int wait(Operation *op, int n, HANDLE *requests) {
    TestAll *test = (TestAll *)meeting_of(op)->TEST_ALL;
    word patience = meeting_of(op)->PATIENCE, begun = 0;
    for (word i = 1;; i++) {
        int is_done;
        _Alignas(16) char statuses[512];
        int status = test(n, requests, &is_done, statuses);
        if (status)
            return fail(op, status);
        if (is_done)
            return 0;
        if (i & LOOKS)
            continue;
        sched_yield();
        word time = now();
        if (!begun)
            begun = time;
        if (time - begun > patience)
            return fail(op, TOO_LATE);
    }
}

/* What was begun with this status and request, unless it failed. */
static int completed(Operation *op, int status, HANDLE *request) {
    return status ? fail(op, status) : wait(op, 1, request);
}

/* The bytes of a rank's header with its operand, and whether those of all ranks fit together. */
static uint64_t stride_of(uint64_t nbytes) { return (nbytes + HEADER_UP) & -8; }

static bool is_short(uint64_t size, uint64_t nbytes) { return nbytes <= SHORT && stride_of(nbytes) * size <= SHORT; }

static char *blocks_of(const Operation *op) { return (char *)meeting_of(op)->BLOCKS; }

/* Note another header than the own one, which begins the blocks, and whose it is. */
static int differ(Operation *op, const word *header, uint64_t rank) {
    __builtin_memcpy(&op->FOUND, header, HEADER_BYTES);
    op->OWN_COUNT = ((const word *)blocks_of(op))[2];
    op->FOUND_RANK = (word)rank;
    return fail(op, DIFFERENT);
}

/* Find out that all ranks are at this operation. If their operands are short, all of them come with the headers:
   TOGETHER. Else headers go from each rank to its neighbour: LONG.

   In round d each rank hands the blocks of the last min(d, size - d) ranks up to itself to the rank d places on; block
   j is that of the rank j places back. */
static int meet(Operation *op, uint64_t count, const void *in, uint64_t nbytes) {
    const Meeting *meeting = meeting_of(op);
    if (*(word *)meeting->FAILED)
        return fail(op, OUT_OF_STEP);
    Receive *receive = (Receive *)meeting->RECEIVE;
    Send *send = (Send *)meeting->SEND;
    HANDLE comm = comm_of(op), byte = (HANDLE)meeting->BYTE, requests[2];
    uint64_t size = size_of(op), rank = rank_of(op);
    bool are_short = is_short(size, nbytes);
    uint64_t payload = are_short ? nbytes : 0, stride = stride_of(payload);
    char *blocks = blocks_of(op);
    word *own = (word *)blocks;
    own[0] = op->PLACE;
    own[1] = op->KIND;
    own[2] = (word)count;
    __builtin_memcpy(blocks + HEADER_BYTES, in, payload);
    uint64_t d = 1;
    do {
        uint64_t handed = d < size - d ? d : size - d;
        int to = (int)((rank + d) % size), from = (int)((rank + size - d) % size);
        char *got = blocks + d * stride;
        int status = receive(got, SHORT, byte, from, TAG, comm, &requests[0]);
        status |= send(blocks, (int)(handed * stride), byte, to, TAG, comm, &requests[1]);
        if (status)
            return fail(op, status);
        if (wait(op, 2, requests))
            return FAILED;
        for (uint64_t j = 0; j < handed; j++) {
            const word *header = (const word *)(got + j * stride);
            if ((header[0] ^ own[0]) | (header[1] ^ own[1]) | (header[2] ^ own[2]))
                return differ(op, header, (rank + size - (d + j)) % size);
        }
        d *= 2;
    } while (d < size && are_short);
    return are_short ? TOGETHER : LONG;
}

/* The operand of a rank, as it came with the headers; each had that number of bytes. */
static char *operand(const Operation *op, uint64_t nbytes, uint64_t rank) {
    uint64_t size = size_of(op), back = (rank_of(op) + size - rank) % size;
    return blocks_of(op) + back * stride_of(nbytes) + HEADER_BYTES;
}

/* The reduction of the operands that came with the headers, in the order of ranks; of their parts at an offset. */
static int combine(Operation *op, void *out, uint64_t nbytes, uint64_t offset, uint64_t part, int n) {
    ReduceLocal *reduce = (ReduceLocal *)meeting_of(op)->REDUCE_LOCAL;
    __builtin_memcpy(out, operand(op, nbytes, 0) + offset, part);
    for (uint64_t i = 1; i < size_of(op); i++) {
        int status = reduce(operand(op, nbytes, i) + offset, out, n, type_of(op), reduction_of(op));
        if (status)
            return fail(op, status);
    }
    return 0;
}

static uint64_t bytes_of(const Operation *op, const Operands *operands) {
    return operands->count * (uint64_t)op->ITEMSIZE;
}

/* Meet where MPI can count the elements of operands of that number of bytes. */
static int start(Operation *op, const Operands *operands, uint64_t nbytes) {
    if (operands->count > MOST) {
        op->STATUS = TOO_LONG;
        return FAILED;
    }
    return meet(op, operands->count, operands->in, nbytes);
}

/* On one process: the result is the operand. */
int copy(const Operation *op, const Operands *operands) {
    __builtin_memcpy(operands->out, operands->in, bytes_of(op, operands));
    return 0;
}

int nothing(const Operation *op, const Operands *operands) {
    (void)op, (void)operands;
    return 0;
}

/* The reduction of operands of a number of bytes, or of the part of it that begins at an offset. */
static int reduced(Operation *op, const Operands *operands, uint64_t whole, uint64_t offset, uint64_t part) {
    int n = (int)operands->count, met = start(op, operands, whole);
    HANDLE request;
    if (met == TOGETHER)
        return combine(op, operands->out, whole, offset, part, n);
    if (met == FAILED)
        return met;
    AllReduce *function = (AllReduce *)op->FUNCTION;
    int status = function(operands->in, operands->out, n, type_of(op), reduction_of(op), comm_of(op), &request);
    return completed(op, status, &request);
}

int all_reduce(Operation *op, const Operands *operands) {
    uint64_t nbytes = bytes_of(op, operands);
    return reduced(op, operands, nbytes, 0, nbytes);
}

int reduce_scatter(Operation *op, const Operands *operands) {
    uint64_t nbytes = bytes_of(op, operands);
    return reduced(op, operands, nbytes * size_of(op), nbytes * rank_of(op), nbytes);
}

int all_gather(Operation *op, const Operands *operands) {
    uint64_t nbytes = bytes_of(op, operands);
    int n = (int)operands->count, met = start(op, operands, nbytes);
    HANDLE type = type_of(op), request;
    if (met == TOGETHER)
        for (uint64_t i = 0; i < size_of(op); i++)
            __builtin_memcpy((char *)operands->out + i * nbytes, operand(op, nbytes, i), nbytes);
    if (met != LONG)
        return met == FAILED;
    AllGather *function = (AllGather *)op->FUNCTION;
    int status = function(operands->in, n, type, operands->out, n, type, comm_of(op), &request);
    return completed(op, status, &request);
}

int broadcast(Operation *op, const Operands *operands) {
    uint64_t nbytes = bytes_of(op, operands);
    int root = (int)op->ROOT, met = start(op, operands, nbytes);
    HANDLE request;
    if (met == FAILED)
        return met;
    if (met == TOGETHER)
        __builtin_memcpy(operands->out, operand(op, nbytes, (uint32_t)root), nbytes);
    else if (op->IS_ROOT)
        __builtin_memcpy(operands->out, operands->in, nbytes);
    if (met == TOGETHER)
        return 0;
    Broadcast *function = (Broadcast *)op->FUNCTION;
    int status = function(operands->out, (int)operands->count, type_of(op), root, comm_of(op), &request);
    return completed(op, status, &request);
}

int reduce(Operation *op, const Operands *operands) {
    uint64_t nbytes = bytes_of(op, operands);
    int n = (int)operands->count, met = start(op, operands, nbytes);
    HANDLE request;
    if (met == FAILED)
        return met;
    if (!op->IS_ROOT)
        __builtin_memset(operands->out, 0, nbytes);
    if (met == TOGETHER)
        return op->IS_ROOT ? combine(op, operands->out, nbytes, 0, nbytes, n) : 0;
    Reduce *function = (Reduce *)op->FUNCTION;
    int status = function(operands->in, operands->out, n, type_of(op), reduction_of(op), (int)op->ROOT, comm_of(op),
                          &request);
    return completed(op, status, &request);
}

/* The request is kept in the operand after the result until reduce_wait. Operands are met as long ones, which do not go
   with the headers. */
int reduce_start(Operation *op, const Operands *operands) {
    if (start(op, operands, SHORT))
        return FAILED;
    AllReduce *function = (AllReduce *)op->FUNCTION;
    int status = function(operands->in, operands->out, (int)operands->count, type_of(op), reduction_of(op), comm_of(op),
                          operands->request);
    return status ? fail(op, status) : 0;
}

/* The operands are the result, which is there then, and the request. */
int reduce_wait(Operation *op, const Operands *operands) { return wait(op, 1, operands->out); }

/* All ranks are there when a message has come from each, if only by way of others. */
int barrier(Operation *op, const Operands *operands) {
    (void)operands;
    int met = meet(op, 0, op, 0);
    HANDLE request;
    if (met != LONG)
        return met == FAILED;
    return completed(op, ((Barrier *)op->FUNCTION)(comm_of(op), &request), &request);
}
