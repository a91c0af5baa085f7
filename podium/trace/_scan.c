/* Reads a JSON array of objects, or lines of them, straight into columns.

   scan(data, start, lines, fields, nested) -> None | (end, n, columns, extras)

   A field is (name, kind, words): kind 'n' a number, 'i' a count, 'b' a boolean, 's' a string, 'j' any value
   on one line (its text is kept), 'r' any value (its place is kept), 'q' a string and 'v' any value that are only checked, 'o' the object whose members `nested` lists. 's' and 'j'
   are stored as codes of `words`, a Words. A field that no object has is no column. Members of an object that no field names become extras, kind 'j'.

   It only ever answers for plain, well-formed input; for anything else it answers None, and scan.py, which says
   what all of this means, reads the same input with msgspec. A test holds the two equal. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAX_FIELDS 48
#define SLOTS 128
#define WAIT 16
#define MAX_EXTRAS 64
#define MAX_DEPTH 128

/* ---- Words: strings to codes, in order of first appearance ---- */

typedef struct {
    uint32_t hash;
    int32_t code; /* -1: free */
} Slot;

typedef struct {
    PyObject_HEAD
    char *text;
    uint64_t used, room;
    uint64_t *at; /* word i is text[at[i]] .. text[at[i + 1]] */
    Slot *table;  /* open addressing */
    uint64_t mask;
    int32_t n, most;
} Words;

static uint64_t secret = 0x9E3779B97F4A7C15u;

static inline uint64_t mix(uint64_t a, uint64_t b) {
    __uint128_t r = (__uint128_t)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

static inline uint32_t hash_of(const char *p, size_t n) {
    uint64_t h = secret ^ (n * 0xA0761D6478BD642Fu), w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = mix(h ^ w, 0xE7037ED1A0B428DBu);
    }
    w = 0;
    memcpy(&w, p, n);
    return (uint32_t)mix(h ^ w, 0x8EBC6AF09C88C6E3u ^ secret);
}

static int words_table(Words *d, uint64_t size) {
    Slot *table = PyMem_RawMalloc(size * sizeof *table);
    if (!table) return -1;
    memset(table, 0xff, size * sizeof *table);
    for (uint64_t i = 0; d->table && i <= d->mask; i++) {
        Slot slot = d->table[i];
        if (slot.code < 0) continue;
        uint64_t s = slot.hash & (size - 1);
        while (table[s].code >= 0) s = (s + 1) & (size - 1);
        table[s] = slot;
    }
    PyMem_RawFree(d->table);
    d->table = table;
    d->mask = size - 1;
    return 0;
}

/* The code of a word, new if need be; -2 when memory runs out. */
static int32_t words_code(Words *d, const char *p, size_t n, uint32_t h) {
    uint64_t s = h & d->mask;
    for (; d->table[s].code >= 0; s = (s + 1) & d->mask) {
        int32_t c = d->table[s].code;
        if (d->table[s].hash == h && d->at[c + 1] - d->at[c] == n && !memcmp(d->text + d->at[c], p, n)) return c;
    }
    if (d->n == INT32_MAX - 2) return -2;
    if (d->n + 1 >= d->most) {
        int32_t most = d->most < (1 << 29) ? d->most * 2 : INT32_MAX;
        uint64_t *at = PyMem_RawRealloc(d->at, ((size_t)most + 1) * sizeof *at);
        if (!at) return -2;
        d->at = at;
        d->most = most;
    }
    if (d->used + n > d->room) {
        uint64_t room = (d->used + n) * 3 / 2 + 64;
        char *text = PyMem_RawRealloc(d->text, room);
        if (!text) return -2;
        d->text = text;
        d->room = room;
    }
    memcpy(d->text + d->used, p, n);
    d->used += n;
    d->table[s] = (Slot){h, d->n};
    d->at[++d->n] = d->used;
    if ((uint64_t)d->n * 3 > d->mask * 2 && words_table(d, (d->mask + 1) * 2)) return -2;
    return d->n - 1;
}

static void words_dealloc(Words *d) {
    PyMem_RawFree(d->text);
    PyMem_RawFree(d->at);
    PyMem_RawFree(d->table);
    Py_TYPE(d)->tp_free((PyObject *)d);
}

static PyObject *words_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Words *d = (Words *)type->tp_alloc(type, 0);
    if (!d) return NULL;
    d->most = 16;
    d->at = PyMem_RawCalloc(d->most + 1, sizeof *d->at);
    d->room = 64;
    d->text = PyMem_RawMalloc(d->room);
    if (!d->at || !d->text || words_table(d, 64)) {
        Py_DECREF(d);
        return PyErr_NoMemory();
    }
    return (PyObject *)d;
}

static PyObject *words_item(Words *d, Py_ssize_t i) {
    if (i < 0 || i >= d->n) {
        PyErr_SetString(PyExc_IndexError, "no such word");
        return NULL;
    }
    return PyUnicode_DecodeUTF8(d->text + d->at[i], d->at[i + 1] - d->at[i], "strict");
}

/* Whether every word is UTF-8. */
static PyObject *words_valid(Words *d, PyObject *unused) {
    uint64_t i = 0, high = 0, w;
    for (; i + 8 <= d->used; i += 8) {
        memcpy(&w, d->text + i, 8);
        high |= w;
    }
    for (; i < d->used; i++) high |= (unsigned char)d->text[i];
    if (!(high & 0x8080808080808080u)) Py_RETURN_TRUE;
    for (int32_t k = 0; k < d->n; k++) {
        PyObject *s = words_item(d, k);
        if (!s) {
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        Py_DECREF(s);
    }
    Py_RETURN_TRUE;
}

static PyObject *words_add(Words *d, PyObject *word) {
    Py_ssize_t n;
    const char *p = PyUnicode_AsUTF8AndSize(word, &n);
    if (!p) return NULL;
    int32_t code = words_code(d, p, n, hash_of(p, n));
    return code < 0 ? PyErr_NoMemory() : PyLong_FromLong(code);
}

static Py_ssize_t words_len(Words *d) { return d->n; }

static PyMethodDef words_methods[] = {
    {"code", (PyCFunction)words_add, METH_O, "The code of a word, a new one if need be."},
    {"valid", (PyCFunction)words_valid, METH_NOARGS, "Whether every word is UTF-8."},
    {NULL}};
static PySequenceMethods words_sequence = {.sq_length = (lenfunc)words_len, .sq_item = (ssizeargfunc)words_item};
static PyTypeObject WordsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "podium.trace._scan.Words",
    .tp_basicsize = sizeof(Words),
    .tp_dealloc = (destructor)words_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Strings to codes, in order of first appearance.",
    .tp_methods = words_methods,
    .tp_as_sequence = &words_sequence,
    .tp_new = words_new,
};

/* ---- JSON: each of these takes the place where a value starts and gives the place after it, or NULL ---- */

#define SPACE(c) ((c) == ' ' || (c) == '\n' || (c) == '\r' || (c) == '\t')

static inline const char *space(const char *p, const char *end) {
    while (p < end && SPACE(*p)) p++;
    return p;
}

#define EVERY(c) (0x0101010101010101u * (c))
#define ZERO(w) (((w) - EVERY(1)) & ~(w) & EVERY(0x80))

/* Four hexadecimal digits, or -1. */
static long hex4(const char *p, const char *end) {
    long unit = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        if (!Py_ISXDIGIT(p[i])) return -1;
        unit = unit * 16 + (Py_ISDIGIT(p[i]) ? p[i] - '0' : Py_TOLOWER(p[i]) - 'a' + 10);
    }
    return unit;
}

/* From the opening quote; `plain` is cleared if there is an escape. */
static inline const char *string(const char *p, const char *end, int *plain) {
    for (p++; p < end; p++) {
        uint64_t w; /* eight bytes at a time while none of them is a quote, an escape or a control character */
        for (; end - p >= 8; p += 8) {
            memcpy(&w, p, 8);
            if (ZERO(w ^ EVERY('"')) | ZERO(w ^ EVERY('\\')) | ((w - EVERY(0x20)) & ~w & EVERY(0x80))) break;
        }
        unsigned char c = (unsigned char)*p;
        if (c == '"') return p + 1;
        if (c < 0x20) return NULL;
        if (c == '\\') {
            *plain = 0;
            if (++p >= end) return NULL;
            if (*p == 'u') {
                long unit = hex4(p + 1, end);
                p += 4;
                if (unit >= 0xD800 && unit < 0xDC00) { /* the first half of a pair: the second must follow */
                    if (end - p < 3 || p[1] != '\\' || p[2] != 'u') return NULL;
                    long low = hex4(p + 3, end);
                    if (low < 0xDC00 || low >= 0xE000) return NULL;
                    p += 6;
                } else if (unit < 0 || (unit >= 0xDC00 && unit < 0xE000)) {
                    return NULL;
                }
            } else if (!strchr("\"\\/bfnrt", *p) || !*p) {
                return NULL;
            }
        }
    }
    return NULL;
}

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#if LDBL_MANT_DIG == 64
static const long double LONG_POWERS[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                          1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                          1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
#endif

/* JSON's number grammar; the nearest double. */
static const char *number(const char *p, const char *end, double *value) {
    const char *from = p;
    int negative = p < end && *p == '-';
    uint64_t m = 0;
    int digits = 0, scale = 0, exponent = 0;
    p += negative;
    const char *lead = p;
    for (; p < end && Py_ISDIGIT(*p); p++, digits++) m = m * 10 + (*p - '0');
    if (p == lead || (*lead == '0' && p - lead > 1)) return NULL;
    if (p < end && *p == '.') {
        const char *dot = ++p;
        for (; p < end && Py_ISDIGIT(*p); p++, digits++, scale--) m = m * 10 + (*p - '0');
        if (p == dot) return NULL;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        int down = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        const char *exp = p;
        for (; p < end && Py_ISDIGIT(*p); p++)
            if (exponent < 10000) exponent = exponent * 10 + (*p - '0');
        if (p == exp) return NULL;
        if (down) exponent = -exponent;
    }
    scale += exponent;
    if (digits <= 15 && scale >= -22 && scale <= 22) { /* both exact, so one rounding */
        double v = scale < 0 ? (double)m / POWERS[-scale] : (double)m * POWERS[scale];
        *value = negative ? -v : v;
        return p;
    }
#if LDBL_MANT_DIG == 64
    if (digits <= 19 && scale >= -27 && scale <= 0) { /* one rounding to 64 bits, then to 53 unless close to a tie */
        long double v = (long double)m / LONG_POWERS[-scale];
        uint64_t mantissa;
        memcpy(&mantissa, &v, 8);
        if ((mantissa & 0x7ff) - 0x3ff > 2) {
            *value = negative ? -(double)v : (double)v;
            return p;
        }
    }
#endif
    char copy[64];
    if (p - from >= (ptrdiff_t)sizeof copy) return NULL;
    memcpy(copy, from, p - from);
    copy[p - from] = 0;
    double v = PyOS_string_to_double(copy, NULL, NULL);
    if ((v == -1.0 && PyErr_Occurred()) || v - v != 0.0) {
        PyErr_Clear();
        return NULL;
    }
    *value = v;
    return p;
}

/* A whole number from 0 to 2^53. */
static const char *count(const char *p, const char *end, double *value) {
    const char *from = p;
    uint64_t m = 0;
    for (; p < end && Py_ISDIGIT(*p) && p - from < 17; p++) m = m * 10 + (*p - '0');
    if (p == from || (*from == '0' && p - from > 1) || m > (uint64_t)1 << 53) return NULL;
    if (p < end && (Py_ISDIGIT(*p) || *p == '.' || *p == 'e' || *p == 'E')) return NULL;
    *value = (double)m;
    return p;
}

static int is_utf8(const char *p, size_t n) {
    size_t i = 0;
    while (i < n && !(p[i] & 0x80)) i++;
    if (i == n) return 1;
    PyObject *s = PyUnicode_DecodeUTF8(p, n, "strict");
    PyErr_Clear();
    Py_XDECREF(s);
    return s != NULL;
}

static inline const char *word(const char *p, const char *end, const char *w, size_t n) {
    return (size_t)(end - p) >= n && !memcmp(p, w, n) ? p + n : NULL;
}

static const char *skip(const char *p, const char *end, int depth) {
    int plain;
    double number_;
    if (p >= end || depth > MAX_DEPTH) return NULL;
    switch (*p) {
    case '"': return string(p, end, &plain);
    case 't': return word(p, end, "true", 4);
    case 'f': return word(p, end, "false", 5);
    case 'n': return word(p, end, "null", 4);
    case '[':
    case '{': {
        char close = *p == '[' ? ']' : '}';
        p = space(p + 1, end);
        if (p < end && *p == close) return p + 1;
        for (;;) {
            if (close == '}') {
                if (p >= end || *p != '"' || !(p = string(p, end, &plain))) return NULL;
                p = space(p, end);
                if (p >= end || *p != ':') return NULL;
                p = space(p + 1, end);
            }
            if (!(p = skip(p, end, depth + 1))) return NULL;
            p = space(p, end);
            if (p >= end) return NULL;
            if (*p == close) return p + 1;
            if (*p != ',') return NULL;
            p = space(p + 1, end);
        }
    }
    default: return number(p, end, &number_);
    }
}

/* ---- the columns being filled ---- */

typedef struct {
    char *data;
    int64_t used, room; /* bytes */
} Buffer;

static int push(Buffer *b, const void *item, size_t n) {
    if (b->used + (int64_t)n > b->room) {
        int64_t room = b->room ? b->room * 2 : 4096;
        char *data = PyMem_RawRealloc(b->data, room);
        if (!data) return -1;
        b->data = data;
        b->room = room;
    }
    memcpy(b->data + b->used, item, n);
    b->used += n;
    return 0;
}

typedef struct {
    const char *name;
    Py_ssize_t size;
    char kind;
    Words *words;
    Buffer out;
} Field;

typedef struct {
    char *name;
    size_t size;
    Words *words;
    Buffer rows, codes;
} Extra;

typedef struct {
    Field field[MAX_FIELDS];
    int n, slot[SLOTS], next[MAX_FIELDS]; /* a field's name leads to a slot, a slot to a chain of fields */
} Scope;

typedef struct {
    Scope top, nested;
    Extra extra[MAX_EXTRAS];
    int n_extra;
    int64_t n, room; /* objects read, objects there is room for */
    const char *base;
    struct {
        Field *field;
        int64_t row;
        const char *p;
        size_t size;
        uint32_t hash;
    } waiting[WAIT]; /* words whose slot is on its way from memory, a ring */
    unsigned asked, answered;
    Buffer spelled; /* the last string that had escapes, without them */
} Scan;

static size_t width(char kind) { return kind == 'n' || kind == 'i' ? 8 : kind == 'b' ? 1 : kind == 's' || kind == 'j' ? 4 : 0; }

/* Room in a field for as many objects as the scan has room for, absent until told otherwise. */
static int fit(Scan *s, Field *f) {
    size_t w = width(f->kind);
    int64_t had = f->out.room;
    char *data = PyMem_RawRealloc(f->out.data, s->room * w);
    if (!data) return -1;
    f->out.data = data;
    f->out.room = s->room;
    if (w == 8)
        for (int64_t r = had; r < s->room; r++) ((double *)data)[r] = Py_NAN;
    else
        memset(data + had * w, 0xff, (s->room - had) * w); /* -1 */
    return 0;
}

static int answer(Scan *s) {
    unsigned i = s->answered++ % WAIT;
    Field *f = s->waiting[i].field;
    int32_t code = words_code(f->words, s->waiting[i].p, s->waiting[i].size, s->waiting[i].hash);
    ((int32_t *)f->out.data)[s->waiting[i].row] = code;
    return code < 0 ? -1 : 0;
}

/* Look a word up, but not before its slot has had time to arrive: a column of random ids misses every cache. */
static int await(Scan *s, Field *f, const char *p, size_t size) {
    if (s->asked - s->answered == WAIT && answer(s)) return -1;
    uint32_t hash = hash_of(p, size);
    __builtin_prefetch(&f->words->table[hash & f->words->mask]);
    unsigned i = s->asked++ % WAIT;
    s->waiting[i].field = f;
    s->waiting[i].row = s->n;
    s->waiting[i].p = p;
    s->waiting[i].size = size;
    s->waiting[i].hash = hash;
    return 0;
}

/* A character as UTF-8. */
static int spell(Buffer *b, uint32_t c) {
    char utf8[4];
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(n == 1 ? c : (0xf00 >> n) | c);
    return push(b, utf8, n);
}

/* Look up a string with escapes, which `string` has found to be well-formed. */
static int escaped(Scan *s, Field *f, const char *p, const char *end) {
    s->spelled.used = 0;
    for (; p < end; p++) {
        uint32_t c = (unsigned char)*p;
        if (c != '\\') {
            if (push(&s->spelled, p, 1)) return -1;
            continue;
        }
        static const char names[] = "bfnrt", means[] = "\b\f\n\r\t";
        const char *name = strchr(names, *++p);
        c = name ? (unsigned char)means[name - names] : (unsigned char)*p;
        if (*p == 'u') {
            c = (uint32_t)hex4(p + 1, end);
            p += 4;
            if (c >= 0xD800 && c < 0xE000) {
                c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)hex4(p + 3, end) - 0xDC00);
                p += 6;
            }
        }
        if (spell(&s->spelled, c)) return -1;
    }
    while (s->answered != s->asked) /* words keep the order in which they appeared */
        if (answer(s)) return -1;
    const char *text = s->spelled.used ? s->spelled.data : "";
    int32_t code = words_code(f->words, text, s->spelled.used, hash_of(text, s->spelled.used));
    ((int32_t *)f->out.data)[s->n] = code;
    return code < 0 ? -1 : 0;
}

static inline unsigned slot_of(const char *name, size_t size) {
    return ((unsigned)size * 7 + (unsigned char)name[0] * 3 + (unsigned char)name[size - 1]) % SLOTS;
}

static inline Field *find(Scope *scope, const char *name, size_t size) {
    if (!size) return NULL;
    for (int i = scope->slot[slot_of(name, size)]; i >= 0; i = scope->next[i]) {
        Field *f = &scope->field[i];
        if ((size_t)f->size == size && !memcmp(f->name, name, size)) return f;
    }
    return NULL;
}

static const char *extra(Scan *s, const char *name, size_t size, const char *p, const char *end) {
    const char *from = p;
    if (!(p = skip(p, end, 0)) || memchr(from, '\n', p - from)) return NULL;
    int i = 0;
    while (i < s->n_extra && (s->extra[i].size != size || memcmp(s->extra[i].name, name, size))) i++;
    if (i == MAX_EXTRAS) return NULL;
    Extra *x = &s->extra[i];
    if (i == s->n_extra) {
        if (!(x->name = PyMem_RawMalloc(size + 1))) return NULL;
        memcpy(x->name, name, size);
        x->size = size;
        s->n_extra++;
        x->words = (Words *)words_new(&WordsType, NULL, NULL);
        if (!x->words) {
            PyErr_Clear();
            return NULL;
        }
    }
    int32_t row = (int32_t)s->n, code = words_code(x->words, from, p - from, hash_of(from, p - from));
    if (x->rows.used && ((int32_t *)x->rows.data)[x->rows.used / 4 - 1] == row) return NULL; /* named twice */
    if (code < 0 || push(&x->rows, &row, 4) || push(&x->codes, &code, 4)) return NULL;
    return p;
}

static const char *object(Scan *s, Scope *scope, const char *p, const char *end);

static const char *value(Scan *s, Field *f, const char *p, const char *end) {
    const char *from = p;
    int plain = 1;
    if (width(f->kind) && f->out.room < s->room && fit(s, f)) return NULL;
    switch (f->kind) {
    case 's':
        if (*p != '"' || !(p = string(p, end, &plain))) return NULL;
        return (plain ? await(s, f, from + 1, p - from - 2) : escaped(s, f, from + 1, p - 1)) ? NULL : p;
    case 'j':
        if (!(p = skip(p, end, 0)) || memchr(from, '\n', p - from)) return NULL;
        return await(s, f, from, p - from) ? NULL : p;
    case 'n': return number(p, end, &((double *)f->out.data)[s->n]);
    case 'i': return count(p, end, &((double *)f->out.data)[s->n]);
    case 'b':
        if (*p != 't' && *p != 'f') return NULL;
        f->out.data[s->n] = *p == 't';
        return *p == 't' ? word(p, end, "true", 4) : word(p, end, "false", 5);
    case 'q':
        if (*p != '"') return NULL; /* fall through */
    case 'v': return (p = skip(p, end, 0)) && is_utf8(from, p - from) ? p : NULL;
    case 'o': return *p == '{' ? object(s, &s->nested, p, end) : NULL;
    default: { /* 'r' */
        if (!(p = skip(p, end, 0))) return NULL;
        int64_t span[3] = {s->n, from - s->base, p - s->base};
        return push(&f->out, span, sizeof span) ? NULL : p;
    }
    }
}

static const char *object(Scan *s, Scope *scope, const char *p, const char *end) {
    uint64_t seen = 0; /* the fields it has named */
    p = space(p + 1, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        int plain = 1;
        const char *name = p + 1;
        if (p >= end || *p != '"' || !(p = string(p, end, &plain)) || !plain) return NULL;
        size_t size = p - name - 1;
        p = space(p, end);
        if (p >= end || *p != ':') return NULL;
        p = space(p + 1, end);
        if (p >= end) return NULL;
        Field *f = find(scope, name, size);
        if (!f && scope == &s->nested) return NULL;
        if (f) {
            uint64_t bit = (uint64_t)1 << (f - scope->field);
            if (seen & bit) return NULL; /* named twice */
            seen |= bit;
        }
        if (!(p = f ? value(s, f, p, end) : extra(s, name, size, p, end))) return NULL;
        p = space(p, end);
        if (p >= end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = space(p + 1, end);
    }
}

static const char *objects(Scan *s, const char *p, const char *end, int lines) {
    if (!lines) {
        if (p >= end || *p != '[') return NULL;
        p = space(p + 1, end);
        if (p < end && *p == ']') return p + 1;
    }
    for (;;) {
        p = space(p, end);
        if (lines && p >= end) return p;
        if (p >= end || *p != '{' || s->n >= INT32_MAX - 1) return NULL;
        if (s->n == s->room) s->room = s->room ? s->room * 2 : 1024;
        const char *from = p;
        if (!(p = object(s, &s->top, p, end))) return NULL;
        s->n++;
        if (lines) {
            if (memchr(from, '\n', p - from)) return NULL; /* an object on one line */
            while (p < end && SPACE(*p) && *p != '\n') p++;
            if (p < end && *p != '\n') return NULL;
            continue;
        }
        p = space(p, end);
        if (p < end && *p == ']') return p + 1;
        if (p >= end || *p != ',') return NULL;
        p++;
    }
}

/* ---- the door to Python ---- */

static int scope_from(Scope *scope, PyObject *fields) {
    Py_ssize_t n = PyTuple_GET_SIZE(fields);
    if (n > MAX_FIELDS) {
        PyErr_SetString(PyExc_ValueError, "too many fields");
        return -1;
    }
    memset(scope->slot, 0xff, sizeof scope->slot);
    for (Py_ssize_t i = 0; i < n; i++) {
        Field *f = &scope->field[i];
        PyObject *words;
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fields, i), "s#CO", &f->name, &f->size, &kind, &words)) return -1;
        f->kind = (char)kind;
        f->words = words == Py_None ? NULL : (Words *)words;
        if (!strchr("nibsjrqvo", kind) || ((kind == 's' || kind == 'j') && !PyObject_TypeCheck(words, &WordsType))) {
            PyErr_Format(PyExc_ValueError, "field %s: no such kind, or no Words", f->name);
            return -1;
        }
        int *slot = &scope->slot[slot_of(f->name, f->size)];
        scope->next[i] = *slot;
        *slot = (int)i;
        scope->n = (int)i + 1;
    }
    return 0;
}

static PyObject *columns_of(Scan *s) {
    PyObject *columns = PyDict_New();
    Scope *scopes[] = {&s->top, &s->nested};
    for (int k = 0; columns && k < 2; k++)
        for (int i = 0; i < scopes[k]->n; i++) {
            Field *f = &scopes[k]->field[i];
            if (!f->out.data) continue; /* nobody has it */
            if (f->kind != 'r' && f->out.room < s->n && fit(s, f)) {
                PyErr_NoMemory();
                Py_CLEAR(columns);
                break;
            }
            int64_t used = f->kind == 'r' ? f->out.used : s->n * (int64_t)width(f->kind);
            PyObject *bytes = PyBytes_FromStringAndSize(f->out.data, used);
            if (!bytes || PyDict_SetItemString(columns, f->name, bytes)) {
                Py_XDECREF(bytes);
                Py_CLEAR(columns);
                break;
            }
            Py_DECREF(bytes);
        }
    return columns;
}

static PyObject *extras_of(Scan *s) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < s->n_extra; i++) {
        Extra *x = &s->extra[i];
        PyObject *item = Py_BuildValue("(y#y#y#O)", x->name, (Py_ssize_t)x->size, x->rows.data, (Py_ssize_t)x->rows.used,
                                       x->codes.data, (Py_ssize_t)x->codes.used, (PyObject *)x->words);
        if (!item || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static void forget(Scan *s) {
    Scope *scopes[] = {&s->top, &s->nested};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < scopes[k]->n; i++) PyMem_RawFree(scopes[k]->field[i].out.data);
    for (int i = 0; i < s->n_extra; i++) {
        PyMem_RawFree(s->extra[i].name);
        PyMem_RawFree(s->extra[i].rows.data);
        PyMem_RawFree(s->extra[i].codes.data);
        Py_XDECREF(s->extra[i].words);
    }
    PyMem_RawFree(s->spelled.data);
    PyMem_Free(s);
}

static PyObject *py_scan(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    int lines;
    PyObject *top, *nested, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*npO!O!", &data, &start, &lines, &PyTuple_Type, &top, &PyTuple_Type, &nested))
        return NULL;
    Scan *s = PyMem_Calloc(1, sizeof *s);
    if (!s) {
        PyBuffer_Release(&data);
        return PyErr_NoMemory();
    }
    s->base = data.buf;
    if (!scope_from(&s->top, top) && !scope_from(&s->nested, nested)) {
        if (start < 0 || start > data.len) {
            PyErr_SetString(PyExc_ValueError, "start lies outside the data");
        } else {
            const char *p = objects(s, s->base + start, s->base + data.len, lines);
            while (p && s->answered != s->asked)
                if (answer(s)) p = NULL;
            if (p) {
                PyObject *columns = columns_of(s), *extras = extras_of(s);
                if (columns && extras)
                    result = Py_BuildValue("nLOO", (Py_ssize_t)(p - s->base), (long long)s->n, columns, extras);
                Py_XDECREF(columns);
                Py_XDECREF(extras);
            } else if (!PyErr_Occurred()) {
                result = Py_NewRef(Py_None);
            }
        }
    }
    forget(s);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *py_skip(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "y*n", &data, &start)) return NULL;
    const char *base = data.buf, *p = NULL;
    if (start >= 0 && start <= data.len) p = skip(base + start, base + data.len, 0);
    PyObject *answer = p ? PyLong_FromSsize_t(p - base) : Py_NewRef(Py_None);
    PyBuffer_Release(&data);
    return answer;
}

static PyMethodDef methods[] = {
    {"scan", py_scan, METH_VARARGS, "scan(data, start, lines, fields, nested) -> None | (end, n, columns, extras)"},
    {"skip", py_skip, METH_VARARGS, "skip(data, start) -> the place after the value that starts there, or None"},
    {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scan", "JSON into columns.", -1, methods};

PyMODINIT_FUNC PyInit__scan(void) {
    PyObject *salt = PyUnicode_FromString("podium.trace._scan");
    if (!salt || PyType_Ready(&WordsType) < 0) return NULL;
    secret ^= (uint64_t)PyObject_Hash(salt); /* Python's own hash is keyed per process */
    Py_DECREF(salt);
    PyObject *m = PyModule_Create(&module);
    if (!m || PyModule_AddObjectRef(m, "Words", (PyObject *)&WordsType) < 0) return NULL;
    return m;
}
