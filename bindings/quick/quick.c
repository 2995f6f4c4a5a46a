/* SPDX-License-Identifier: MIT
 *
 * The usual collective call from Python, without its price: `pccl._quick`.
 *
 * It knows no collective, no rule about arguments and no error message. The one idea: *each function here stands in for
 * a Python function, the rule, and takes only what every program does all the time* (plain arrays, numbers and enums).
 * At anything else it calls the rule with the same arguments, before it has done anything. So without this module pccl
 * does the same, only slower, and a test compares both over all kinds of arguments.
 *
 *   borrow      for pccl.arrays.borrow       numpy arrays
 *   build       for pccl.request.build       what has no timeout of its own and no factor
 *   all_reduce  for pccl.request.all_reduce  both in one step
 *   Call        for pccl._native.PlainCall
 *   Door        for the slots of pccl._native.Engine: all that lies between a Call and its ReduceInfo
 *
 * It calls the C API through addresses that the cffi module gives: one copy of the library, one state. Only the limited
 * API of Python is used. The GIL guards all that is here; it is released while the engine runs.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <limits.h>
#include <stdbool.h>

#include "pccl.h"

/* Of numpy's arrays that warn before they are first written to: its own flag, but not in its headers. */
#define WARNS_ON_WRITE INT_MIN

enum { DTYPES_MAX = 64, BUILD_POSITIONAL_MIN = 7, BUILD_POSITIONAL_MAX = 9 };

/* What `borrow_for`, `build_for`, `all_reduce_for` and `calls_for` are told, for as long as the process lives. */
static struct {
    PyObject *rule;
    PyTypeObject *borrowed;
    PyObject *dtypes[DTYPES_MAX]; /* by numpy's type number; NULL where pccl has none */
} borrowing;

static struct {
    PyObject *rule, *nothing, *premul_sum;
    PyTypeObject *reduce_op, *algorithm;
    PyObject *op_name, *algorithm_name;
} building;

static struct {
    PyObject *rule;
    PyTypeObject *modes; /* a tuple that begins with the flags for in place and for out of place */
} reducing;

static struct {
    pccl_status (*run)(pccl_engine *, const pccl_call *, int64_t, pccl_operation **, pccl_info *, pccl_error *);
    pccl_status (*wait)(pccl_operation *, int64_t, pccl_info *, pccl_error *);
    int (*done)(pccl_operation *);
    void (*operation_free)(pccl_operation *);
    long long slice_ms;
    PyTypeObject *info;
    PyObject *failure;  /* of the address of a pccl_error: an exception */
    PyObject *new_call; /* a pccl_call that cffi owns, and its address */
} calls;

/* The rule's answer. */
static PyObject *otherwise(PyObject *rule, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    PyObject *result = NULL, *named = NULL, *positional = PyTuple_New(count);
    if (!positional) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(arguments[i]);
        PyTuple_SetItem(positional, i, arguments[i]);
    }
    if (names) {
        if (!(named = PyDict_New())) goto done;
        for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++)
            if (PyDict_SetItem(named, PyTuple_GetItem(names, i), arguments[count + i])) goto done;
    }
    result = PyObject_Call(rule, positional, named);
done:
    Py_XDECREF(named);
    Py_DECREF(positional);
    return result;
}

/* A number within bounds, of an int or a subclass of it. No exception is set either way. */
static bool number(PyObject *object, unsigned long long limit, unsigned long long *value) {
    if (!PyLong_Check(object)) return false;
    *value = PyLong_AsUnsignedLongLong(object);
    if (*value == ULLONG_MAX && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return *value <= limit;
}

/* Puts fresh references into a new tuple, or into one of a subclass. NULL among them means that memory is short. */
static PyObject *filled(PyTypeObject *type, PyObject **items, Py_ssize_t count) {
    PyObject *tuple = PyType_GenericAlloc(type, count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (tuple && items[i])
            PyTuple_SetItem(tuple, i, items[i]);
        else {
            Py_XDECREF(items[i]);
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* ---------------------------------------------------------------- borrow */

/* pccl's number of the element type of a plain array, as a borrowed reference; NULL for whatever is not one. */
static PyObject *plain_dtype(PyObject *object, bool writable) {
    if (Py_TYPE(object) != &PyArray_Type) return NULL;
    const PyArrayObject *array = (const PyArrayObject *)object;
    int needed = NPY_ARRAY_C_CONTIGUOUS | (writable ? NPY_ARRAY_WRITEABLE : 0);
    if ((PyArray_FLAGS(array) & (needed | WARNS_ON_WRITE)) != needed) return NULL;
    const PyArray_Descr *dtype = PyArray_DESCR((PyArrayObject *)object);
    if (dtype->type_num < 0 || dtype->type_num >= DTYPES_MAX || !PyArray_ISNBO(dtype->byteorder)) return NULL;
    if (PyDataType_HASFIELDS(dtype)) return NULL; /* numbers whose pieces have names */
    return borrowing.dtypes[dtype->type_num];
}

static PyObject *borrow(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)module;
    PyObject *dtype = NULL;
    if (count == 3 && !names && (arguments[1] == Py_True || arguments[1] == Py_False))
        dtype = plain_dtype(arguments[0], arguments[1] == Py_True);
    if (!dtype) return otherwise(borrowing.rule, arguments, count, names);
    PyArrayObject *array = (PyArrayObject *)arguments[0];
    Py_INCREF(dtype);
    Py_INCREF(arguments[0]);
    PyObject *address = PyLong_FromVoidPtr(PyArray_DATA(array));
    PyObject *items[] = {address, dtype, PyLong_FromSsize_t(PyArray_SIZE(array)), arguments[0]};
    return filled(borrowing.borrowed, items, 4);
}

/* borrow_for(rule, Borrowed, {numpy's number: pccl's}): stands in from now on. */
static PyObject *borrow_for(PyObject *module, PyObject *arguments) {
    PyObject *rule, *borrowed, *dtypes, *ours;
    if (!PyArg_ParseTuple(arguments, "OOO!", &rule, &borrowed, &PyDict_Type, &dtypes)) return NULL;
    for (long number = 0; number < DTYPES_MAX; number++) {
        PyObject *key = PyLong_FromLong(number);
        if (!key) return NULL;
        ours = PyDict_GetItemWithError(dtypes, key);
        Py_DECREF(key);
        Py_XINCREF(ours);
        borrowing.dtypes[number] = ours;
    }
    Py_INCREF(rule);
    Py_INCREF(borrowed);
    borrowing.rule = rule;
    borrowing.borrowed = (PyTypeObject *)borrowed;
    return PyObject_GetAttrString(module, "borrow");
}

/* ---------------------------------------------------------------- Call */

/* A pccl_call with its owner. It lies in the object until somebody looks at it, then in memory that cffi owns. */
typedef struct call_object {
    PyObject_HEAD pccl_call *call;
    PyObject *view;  /* a cffi pointer, or NULL while `call` is `own` */
    PyObject *owner; /* keeps alive what `call` points to */
    pccl_call own;
} call_object;

static PyTypeObject *call_type;

static call_object *call_new(PyObject *owner) {
    call_object *self = (call_object *)PyType_GenericAlloc(call_type, 0); /* zeroed */
    if (!self) return NULL;
    self->call = &self->own;
    Py_INCREF(owner);
    self->owner = owner;
    return self;
}

static PyObject *call_made(PyTypeObject *type, PyObject *arguments, PyObject *named) {
    (void)type;
    static char *names[] = {"owner", NULL};
    PyObject *owner;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "O", names, &owner)) return NULL;
    return (PyObject *)call_new(owner);
}

static void call_dealloc(PyObject *object) {
    call_object *self = (call_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->view);
    Py_XDECREF(self->owner);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *call_view(PyObject *object, void *unused) {
    (void)unused;
    call_object *self = (call_object *)object;
    if (!self->view) {
        PyObject *view, *made = PyObject_CallObject(calls.new_call, NULL);
        unsigned long long address;
        if (!made || !PyArg_ParseTuple(made, "OK", &view, &address)) {
            Py_XDECREF(made);
            return NULL;
        }
        if (!self->view) { /* another thread may have come in between */
            memcpy((void *)(uintptr_t)address, &self->own, sizeof self->own);
            Py_INCREF(view);
            self->view = view;
            self->call = (pccl_call *)(uintptr_t)address;
        }
        Py_DECREF(made);
    }
    Py_INCREF(self->view);
    return self->view;
}

static PyMemberDef call_members[] = {
    {"owner", T_OBJECT_EX, offsetof(call_object, owner), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef call_getset[] = {
    {"call", call_view, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot call_slots[] = {
    {Py_tp_new, call_made},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_members, call_members},
    {Py_tp_getset, call_getset},
    {0, NULL},
};
static PyType_Spec call_spec = {"pccl._quick.Call", sizeof(call_object), 0, Py_TPFLAGS_DEFAULT, call_slots};

/* ---------------------------------------------------------------- build */

static bool memory_of(PyObject *borrowed, unsigned long long *address, unsigned long long *dtype) {
    return Py_TYPE(borrowed) == borrowing.borrowed && number(PyTuple_GetItem(borrowed, 0), UINTPTR_MAX, address) &&
           number(PyTuple_GetItem(borrowed, 1), INT_MAX, dtype);
}

static bool op_of(PyObject *value, pccl_call *call) {
    unsigned long long chosen;
    if (Py_TYPE(value) != building.reduce_op || value == building.premul_sum || !number(value, INT_MAX, &chosen))
        return false;
    call->op = (pccl_reduce_op)chosen;
    return true;
}

static bool algorithm_of(PyObject *value, pccl_call *call) {
    unsigned long long chosen;
    if (Py_TYPE(value) != building.algorithm || !number(value, INT_MAX, &chosen)) return false;
    call->algorithm = (pccl_algorithm)chosen;
    return true;
}

static bool tag_of(PyObject *value, pccl_call *call) {
    unsigned long long tag;
    if (!PyLong_CheckExact(value) || !number(value, INT64_MAX, &tag)) return false;
    call->tag = tag;
    return true;
}

/* The two that may be given by name: `op` and `algorithm`. */
static bool named_of(PyObject *const *values, PyObject *names, pccl_call *call) {
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i); /* the names in a call are interned */
        if (name == building.op_name ? !op_of(values[i], call)
                                     : name != building.algorithm_name || !algorithm_of(values[i], call))
            return false;
    }
    return true;
}

/* All but the names: collective, flags, source, target, elements, tag, timeout[, epoch[, root]]. */
static bool positional_of(PyObject *const *arguments, Py_ssize_t count, pccl_call *call) {
    unsigned long long collective, flags, source, source_dtype, target, target_dtype, elements;
    unsigned long long epoch = 0, root = 0;
    if (count < BUILD_POSITIONAL_MIN || count > BUILD_POSITIONAL_MAX || arguments[6] != Py_None) return false;
    if (!number(arguments[0], INT_MAX, &collective) || !number(arguments[1], UINT32_MAX, &flags) ||
        !memory_of(arguments[2], &source, &source_dtype) || !memory_of(arguments[3], &target, &target_dtype) ||
        !number(arguments[4], UINT64_MAX, &elements) || !tag_of(arguments[5], call) ||
        (count > 7 && !number(arguments[7], UINT64_MAX, &epoch)) ||
        (count > 8 && !number(arguments[8], UINT32_MAX, &root)))
        return false;
    call->collective = (pccl_collective)collective;
    call->dtype = (pccl_dtype)(arguments[2] == building.nothing ? target_dtype : source_dtype);
    call->flags = (uint32_t)flags;
    call->input = (const void *)(uintptr_t)source;
    call->output = (void *)(uintptr_t)target;
    call->count = elements;
    call->expected_epoch = epoch;
    call->root = (uint32_t)root;
    return true;
}

/* A Call of `call` that keeps two objects alive. */
static PyObject *kept(const pccl_call *call, PyObject *one, PyObject *other) {
    PyObject *owner = PyTuple_New(2);
    if (!owner) return NULL;
    Py_INCREF(one);
    Py_INCREF(other);
    PyTuple_SetItem(owner, 0, one);
    PyTuple_SetItem(owner, 1, other);
    call_object *made = call_new(owner);
    Py_DECREF(owner);
    if (made) made->own = *call;
    return (PyObject *)made;
}

static PyObject *build(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)module;
    pccl_call call = {.op = PCCL_SUM, .algorithm = PCCL_AUTO};
    if (!positional_of(arguments, count, &call) || !named_of(arguments + count, names, &call))
        return otherwise(building.rule, arguments, count, names);
    return kept(&call, arguments[2], arguments[3]);
}

/* build_for(rule, NOTHING, PREMUL_SUM, Algorithm): stands in from now on. */
static PyObject *build_for(PyObject *module, PyObject *arguments) {
    PyObject *rule, *nothing, *premul_sum, *algorithm;
    if (!PyArg_ParseTuple(arguments, "OOOO", &rule, &nothing, &premul_sum, &algorithm)) return NULL;
    building.op_name = PyUnicode_InternFromString("op");
    building.algorithm_name = PyUnicode_InternFromString("algorithm");
    if (!building.op_name || !building.algorithm_name) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(arguments); i++) Py_INCREF(PyTuple_GetItem(arguments, i));
    building.rule = rule;
    building.nothing = nothing;
    building.premul_sum = premul_sum;
    building.reduce_op = Py_TYPE(premul_sum);
    building.algorithm = (PyTypeObject *)algorithm;
    return PyObject_GetAttrString(module, "build");
}

/* ---------------------------------------------------------------- all_reduce */

/* Two plain arrays of one layout, or without the second one that is both. */
static bool arrays_of(PyObject *send, PyObject *recv, pccl_call *call) {
    bool both = send == recv;
    unsigned long long dtype, same;
    PyObject *source = plain_dtype(send, both), *target = both ? source : plain_dtype(recv, true);
    if (!source || !target || !number(source, INT_MAX, &dtype) || !number(target, INT_MAX, &same) || dtype != same)
        return false;
    PyArrayObject *from = (PyArrayObject *)send, *to = (PyArrayObject *)recv;
    if (PyArray_SIZE(from) != PyArray_SIZE(to)) return false;
    call->dtype = (pccl_dtype)dtype;
    call->input = PyArray_DATA(from);
    call->output = PyArray_DATA(to);
    call->count = (uint64_t)PyArray_SIZE(from);
    return true;
}

/* all_reduce(send, recv, op, tag, algorithm, timeout, modes). */
static PyObject *all_reduce(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)module;
    pccl_call call = {.collective = PCCL_ALL_REDUCE};
    unsigned long long flags;
    if (count != 7 || names || arguments[5] != Py_None || Py_TYPE(arguments[6]) != reducing.modes)
        return otherwise(reducing.rule, arguments, count, names);
    PyObject *send = arguments[0], *recv = arguments[1] == Py_None ? send : arguments[1];
    if (!arrays_of(send, recv, &call) || !op_of(arguments[2], &call) || !tag_of(arguments[3], &call) ||
        !algorithm_of(arguments[4], &call) || !number(PyTuple_GetItem(arguments[6], send != recv), UINT32_MAX, &flags))
        return otherwise(reducing.rule, arguments, count, names);
    call.flags = (uint32_t)flags;
    return kept(&call, send, recv);
}

/* all_reduce_for(rule, Modes): stands in from now on. What build_for is told counts here, too. */
static PyObject *all_reduce_for(PyObject *module, PyObject *arguments) {
    PyObject *rule, *modes;
    if (!PyArg_ParseTuple(arguments, "OO", &rule, &modes)) return NULL;
    Py_INCREF(rule);
    Py_INCREF(modes);
    reducing.rule = rule;
    reducing.modes = (PyTypeObject *)modes;
    return PyObject_GetAttrString(module, "all_reduce");
}

/* ---------------------------------------------------------------- Door */

/* An operation that nobody waits for any more. Until it has ended it borrows what its call owns. */
typedef struct abandoned {
    struct abandoned *next;
    pccl_operation *operation;
    PyObject *call;
} abandoned;

typedef struct door_object {
    PyObject_HEAD pccl_engine *engine;
    int inside; /* threads that are in the engine */
    char closed, forked;
    abandoned *left;
} door_object;

/* Takes those that have ended, or all, out of the list, and then gives them back: that may run other code. */
static void door_forget(door_object *self, bool all) {
    abandoned *over = NULL;
    for (abandoned **place = &self->left; *place;) {
        abandoned *one = *place;
        if (all || calls.done(one->operation)) {
            *place = one->next;
            one->next = over;
            over = one;
        } else
            place = &one->next;
    }
    while (over) {
        abandoned *next = over->next;
        if (!self->forked) calls.operation_free(over->operation);
        Py_DECREF(over->call);
        PyMem_Free(over);
        over = next;
    }
}

/* Without memory for a note of it, it is kept for ever. */
static void door_abandon(door_object *self, pccl_operation *operation, PyObject *call) {
    door_forget(self, false);
    Py_INCREF(call);
    abandoned *one = PyMem_Malloc(sizeof *one);
    if (!one) return;
    *one = (abandoned){.next = self->left, .operation = operation, .call = call};
    self->left = one;
}

static PyObject *info_of(const pccl_info *info) {
    PyObject *items[] = {
        PyLong_FromUnsignedLong(info->world_size),   PyLong_FromUnsignedLongLong(info->tx_bytes),
        PyLong_FromUnsignedLongLong(info->rx_bytes), PyLong_FromUnsignedLong(info->rank),
        PyLong_FromUnsignedLongLong(info->epoch),    PyLong_FromLong((long)info->algorithm),
        PyLong_FromUnsignedLong(info->peer),
    };
    return filled(calls.info, items, sizeof items / sizeof *items);
}

static void raise_failure(const pccl_error *error) {
    PyObject *failure = PyObject_CallFunction(calls.failure, "K", (unsigned long long)(uintptr_t)error);
    if (!failure) return;
    PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
    Py_DECREF(failure);
}

/* run(call): starts an operation and waits for its end, in slices between which Python handles signals. Its ReduceInfo;
 * None when the door is closed and nothing was started. */
static PyObject *door_run(PyObject *object, PyObject *argument) {
    door_object *self = (door_object *)object;
    if (!PyObject_TypeCheck(argument, call_type)) return PyErr_Format(PyExc_TypeError, "a Call is needed");
    if (self->closed || self->forked) Py_RETURN_NONE;
    const pccl_call *call = ((call_object *)argument)->call;
    pccl_engine *engine = self->engine;
    pccl_operation *operation = NULL;
    pccl_info info;
    pccl_error error;
    pccl_status status;
    bool interrupted = false;
    self->inside++;
    Py_BEGIN_ALLOW_THREADS status = calls.run(engine, call, calls.slice_ms, &operation, &info, &error);
    Py_END_ALLOW_THREADS while (status == PCCL_PENDING && !(interrupted = PyErr_CheckSignals() != 0)) {
        Py_BEGIN_ALLOW_THREADS status = calls.wait(operation, calls.slice_ms, &info, &error);
        Py_END_ALLOW_THREADS
    }
    if (interrupted)
        door_abandon(self, operation, argument);
    else if (operation && !self->forked)
        calls.operation_free(operation);
    self->inside--;
    if (interrupted) return NULL;
    if (status == PCCL_OK) return info_of(&info);
    raise_failure(&error);
    return NULL;
}

/* freed(): the engine is, and borrows nothing any more. */
static PyObject *door_freed(PyObject *object, PyObject *unused) {
    (void)unused;
    door_forget((door_object *)object, true);
    Py_RETURN_NONE;
}

static PyObject *door_made(PyTypeObject *type, PyObject *arguments, PyObject *named) {
    static char *names[] = {"engine", NULL};
    unsigned long long engine;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "K", names, &engine)) return NULL;
    door_object *self = (door_object *)PyType_GenericAlloc(type, 0);
    if (self) self->engine = (pccl_engine *)(uintptr_t)engine;
    return (PyObject *)self;
}

/* Of an engine that was never freed: what was abandoned may still be borrowed, and stays. */
static void door_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMemberDef door_members[] = {
    {"inside", T_INT, offsetof(door_object, inside), READONLY, NULL},
    {"closed", T_BOOL, offsetof(door_object, closed), 0, NULL},
    {"forked", T_BOOL, offsetof(door_object, forked), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef door_methods[] = {
    {"run", door_run, METH_O, NULL},
    {"freed", door_freed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot door_slots[] = {
    {Py_tp_new, door_made},
    {Py_tp_dealloc, door_dealloc},
    {Py_tp_members, door_members},
    {Py_tp_methods, door_methods},
    {0, NULL},
};
static PyType_Spec door_spec = {"pccl._quick.Door", sizeof(door_object), 0, Py_TPFLAGS_DEFAULT, door_slots};

/* ---------------------------------------------------------------- the module */

/* calls_for((run, wait, done, operation_free), (bytes of a pccl_call, pccl_info, pccl_error), slice_ms, ReduceInfo,
 * failure, new_call). Raises ImportError for addresses of a library that was built from another header. */
static PyObject *calls_for(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long run, wait, done, operation_free, call_bytes, info_bytes, error_bytes;
    PyObject *info;
    if (!PyArg_ParseTuple(arguments, "(KKKK)(KKK)LOOO", &run, &wait, &done, &operation_free, &call_bytes, &info_bytes,
                          &error_bytes, &calls.slice_ms, &info, &calls.failure, &calls.new_call))
        return NULL;
    if (call_bytes != sizeof(pccl_call) || info_bytes != sizeof(pccl_info) || error_bytes != sizeof(pccl_error))
        return PyErr_Format(PyExc_ImportError, "pccl._quick and pccl._cffi were not built together");
    Py_INCREF(info);
    Py_INCREF(calls.failure);
    Py_INCREF(calls.new_call);
    calls.info = (PyTypeObject *)info;
    calls.run = (void *)(uintptr_t)run;
    calls.wait = (void *)(uintptr_t)wait;
    calls.done = (void *)(uintptr_t)done;
    calls.operation_free = (void *)(uintptr_t)operation_free;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"borrow", (PyCFunction)(void (*)(void))borrow, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"build", (PyCFunction)(void (*)(void))build, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"all_reduce", (PyCFunction)(void (*)(void))all_reduce, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"borrow_for", borrow_for, METH_VARARGS, NULL},
    {"build_for", build_for, METH_VARARGS, NULL},
    {"all_reduce_for", all_reduce_for, METH_VARARGS, NULL},
    {"calls_for", calls_for, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "pccl._quick", .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit__quick(void);
PyMODINIT_FUNC PyInit__quick(void) {
    import_array();
    PyObject *module = PyModule_Create(&definition), *call = PyType_FromSpec(&call_spec);
    PyObject *door = PyType_FromSpec(&door_spec);
    if (!module || !call || !door || PyModule_AddObjectRef(module, "Call", call) ||
        PyModule_AddObjectRef(module, "Door", door)) {
        Py_XDECREF(module);
        Py_XDECREF(call);
        Py_XDECREF(door);
        return NULL;
    }
    Py_DECREF(door);
    call_type = (PyTypeObject *)call;
    return module;
}
