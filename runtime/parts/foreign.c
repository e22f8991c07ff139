/* The machine code of foreign.py, a part of the module of entry_text.py: where the data of an object lies that is no
   array. */
#include "part.h"

/* Offsets of the fields of an object, as entry_words.py has them: its type, and what follows its head. */
FILLED(TYPE);
FILLED(DATA);
/* Of a list: how many items it has, and where their addresses are. */
FILLED(LIST_SIZE);
FILLED(LIST_ITEMS);

word PyLong_AsLongLongAndOverflow(void *, int *overflow);
void *PyObject_GetAttr(void *, void *name);
void *PyObject_VectorcallMethod(void *name, void *const *arguments, word count, void *names);
void Py_DecRef(void *);
void PyErr_Clear(void);

typedef struct ProducerWord Producer;
_Static_assert(sizeof(Producer) == PRODUCER * sizeof(word), "producers lie one after the other");

/* DLTensor of DLPack's header; dtype as element_word describes it. */
typedef struct {
    char *data;
    int32_t device, device_number, ndim;
    uint32_t dtype;
    const word *shape, *strides;
    uint64_t offset;
} Tensor;

/* Write a number of Python to memory, in the dtype of its record; null if it does not fit or is none. */
static void *number_in(void *object, const void *type, word element, void *place, const struct ForeignWord *known) {
    if (type == (void *)known->FLOAT || type == (void *)known->FLOAT64) {
        double value = *(const double *)((char *)object + NUMBER(DATA));
        if (element == FLOAT64) {
            *(double *)place = value;
            return place;
        }
        if (element != FLOAT32)
            return NULL;
        float rounded = (float)value;
        *(float *)place = rounded;
        bool overflows = __builtin_isinf(rounded) && !__builtin_isinf(value);
        return overflows ? NULL : place;
    }
    int overflow;
    word value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow)
        return NULL;
    switch (element) {
    case FLOAT64:
        *(double *)place = (double)value;
        return place;
    case FLOAT32:
        *(float *)place = (float)value;
        return place;
    case INT64:
        *(word *)place = value;
        return place;
    case INT32:
        *(int32_t *)place = (int32_t)value;
        return (int32_t)value == value ? place : NULL;
    }
    return NULL;
}

/* Write the numbers of a list, which has the axes from ``axis`` on, to memory; its end, or null where they do not fit.
   Nothing here lets another thread or Python code at the list. What NumPy would round twice, from a whole number to a
   double and on, is left to it. */
static char *list_in(void *list, const struct Field *record, word axis, char *place, const struct ForeignWord *known) {
    enum { EXACT = 1ll << 53 };
    if (*(void **)((char *)list + NUMBER(TYPE)) != (void *)known->LIST)
        return NULL;
    word count = ((const word *)record->DIMS)[axis];
    if (*(const word *)((char *)list + NUMBER(LIST_SIZE)) != count)
        return NULL;
    void *const *items = *(void *const **)((char *)list + NUMBER(LIST_ITEMS));
    word element = record->ELEMENT;
    for (word i = 0; i < count; i++) {
        void *item = items[i];
        if (axis + 1 < record->NDIM) {
            place = list_in(item, record, axis + 1, place, known);
            if (place == NULL)
                return NULL;
            continue;
        }
        const void *type = *(void **)((char *)item + NUMBER(TYPE));
        bool is_float = type == (void *)known->FLOAT || type == (void *)known->FLOAT64;
        if (!is_float && type != (void *)known->INT)
            return NULL;
        if (number_in(item, type, element, place, known) == NULL)
            return NULL;
        if (!is_float && (element == FLOAT64 || element == FLOAT32)) {
            double value = element == FLOAT64 ? *(double *)place : *(float *)place;
            if (value < -(double)EXACT || value > (double)EXACT)
                return NULL;
        }
        place += (element >> 8 & 255) >> 3;
    }
    return place;
}

/* Whether something that was asked of a tensor is False; an exception is none of the caller's. */
static bool is_false(void *answer, const struct ForeignWord *known) {
    if (answer == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DecRef(answer);
    return answer == (void *)known->FALSE;
}

/* Whether a described tensor is C-contiguous in memory of this machine, with the dtype and shape of a record. */
static bool is_expected(const Tensor *tensor, const struct Field *record) {
    word ndim = record->NDIM;
    if (tensor->device != CPU || (uint32_t)tensor->ndim != ndim || tensor->dtype != record->ELEMENT)
        return false;
    bool any_strides = tensor->strides == NULL || record->NBYTES == 0;
    for (word dense = 1, i = ndim; i-- > 0;) {
        word size = ((const word *)record->DIMS)[i];
        if (tensor->shape[i] != size)
            return false;
        if (!any_strides && size != 1 && tensor->strides[i] != dense)
            return false;
        dense *= size;
    }
    return true;
}

/* The address of the data of an object that is as its record expects; null of any other one, without an exception.
   number: memory for one word, where a number of Python is put. writes: it shall be written to. */
HIDDEN void *data_of(void *object, const struct Field *record, void *number, const struct ForeignWord *known,
                     int writes) {
    const void *type = *(void **)((char *)object + NUMBER(TYPE));
    word element = record->ELEMENT;
    bool is_number = type == (void *)known->FLOAT || type == (void *)known->FLOAT64 || type == (void *)known->INT;
    if (is_number && !record->NDIM && !writes)
        return number_in(object, type, element, number, known);
    if (type == (void *)known->LIST && record->LISTED && !writes)
        return list_in(object, record, 0, (char *)record->LISTED, known) ? (void *)record->LISTED : NULL;
    const Producer *producer = (const void *)&known->PRODUCERS;
    while ((void *)producer->TYPE != type) {
        if (!producer->TYPE)
            return NULL;
        producer++;
    }
    if (writes && !producer->WRITABLE)
        return NULL;
    void *attribute = (void *)producer->ATTRIBUTE, *method = (void *)producer->METHOD;
    if (attribute != NULL && !is_false(PyObject_GetAttr(object, attribute), known))
        return NULL;
    if (method != NULL && !is_false(PyObject_VectorcallMethod(method, &object, 1, NULL), known))
        return NULL;
    Tensor tensor;
    int (*describe)(void *object, Tensor *tensor) = (void *)producer->FUNCTION;
    if (describe(object, &tensor)) {
        PyErr_Clear();
        return NULL;
    }
    if (!is_expected(&tensor, record))
        return NULL;
    char *data = tensor.data + tensor.offset;
    word nbytes = (element >> 8 & 255) >> 3; /* of an element */
    return (word)data & (nbytes - 1) ? NULL : data;
}
